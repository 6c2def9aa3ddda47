/* SPDX-License-Identifier: Apache-2.0
 * Which groups are worth a second plane, on two matrices of 16 rows whose errors are written down.
 *
 * o reads 20 groups, down 40; all weights are 1 but those of o's group 12, which are 4. 6 % of 60
 * groups of equal cost pay for 3. */
#include "check.h"
#include "compile/compile.h"

#include <math.h>
#include <string.h>

enum { O_GROUPS = 20, DOWN_GROUPS = 40, PART_BYTES = 1088, CODES_BYTES = 1024 };

typedef struct two_matrices {
    _Alignas(64) uint8_t file[(O_GROUPS + DOWN_GROUPS) / 2 * PART_BYTES];
    tg_weight_entry weights[2];
    tg_instr instrs[2];
    tg_segment segment;
    int32_t layer;
    tg_plan plan;
    tg_compiled compiled;
    double o[O_GROUPS], down[DOWN_GROUPS]; /* squared scales */
    const double *squares[2];
} two_matrices;

/* Two groups of q8_0 for 16 rows: codes 128 + 1, then the scales of both groups as f16. */
static void fill_part(uint8_t *part, uint16_t first, uint16_t second)
{
    memset(part, 129, CODES_BYTES);
    for (int r = 0; r < 16; r++) {
        memcpy(part + CODES_BYTES + 2 * r, &first, 2);
        memcpy(part + CODES_BYTES + 32 + 2 * r, &second, 2);
    }
}

static void fill_two_matrices(two_matrices *p)
{
    enum { ONE = 0x3c00, FOUR = 0x4400 }; /* as f16 */
    memset(p, 0, sizeof *p);
    for (int i = 0; i < (O_GROUPS + DOWN_GROUPS) / 2; i++)
        fill_part(p->file + i * PART_BYTES, i == 12 / 2 ? FOUR : ONE, ONE);
    const tg_weight_role roles[2] = {TG_W_O, TG_W_DOWN};
    for (int i = 0; i < 2; i++) {
        int64_t n_groups = i ? DOWN_GROUPS : O_GROUPS;
        p->weights[i] = (tg_weight_entry){.role = (int32_t)roles[i],
                                          .layout = TG_LAYOUT_Q8_0,
                                          .rows = 16,
                                          .cols = 32 * n_groups,
                                          .offset = i * O_GROUPS / 2 * PART_BYTES,
                                          .tile_stride = n_groups / 2 * PART_BYTES};
        p->instrs[i].op = TG_OP_MATMUL;
        for (int k = 0; k < TG_MAX_WEIGHTS; k++)
            p->instrs[i].weights[k] = k == TG_SLOT_W ? (int32_t)roles[i] : TG_NONE;
    }
    p->segment = (tg_segment){0, 2, 0, 1};
    p->plan =
        (tg_plan){.n_instrs = 2, .n_segments = 1, .instrs = p->instrs, .segments = &p->segment};
    p->plan.layer_refs = &p->layer;
    p->compiled.program = (tg_program){
        .n_layers = 1, .n_weights = 2, .n_plans = 1, .weights = p->weights, .plans = &p->plan};
    for (int g = 0; g < O_GROUPS; g++)
        p->o[g] = 1;
    for (int g = 0; g < DOWN_GROUPS; g++)
        p->down[g] = 1;
    p->squares[0] = p->o;
    p->squares[1] = p->down;
}

static void choose_outliers(two_matrices *p)
{
    tg_err e = {0};
    if (tg_compiled_choose_outliers(&p->compiled, p->file, p->squares, &e) != TG_OK)
        fail_msg("%s", e.msg);
}

static void assert_list(const two_matrices *p, int weight, const int32_t *want, int32_t n)
{
    const tg_weight_entry *w = &p->compiled.program.weights[weight];
    assert_int_equal(w->n_outliers, n);
    if (n)
        assert_memory_equal(p->compiled.program.outliers + w->first_outlier, want, (size_t)n * 4);
}

/* o: group 7 has 50, group 12 has 2 x 4^2 = 32, 18 have 1: 100, a mean of 5, so 10 and 6.4 times
 * it. down: 38 have 1, group 3 has 11, group 39 has 21: 70, a mean of 1.75, so 6.29 and 12 times
 * it. Three fit: 39 of down, 7 and 12 of o. */
static void groups_far_above_the_mean_of_their_input_come_first(void **state)
{
    (void)state;
    two_matrices p;
    fill_two_matrices(&p);
    p.o[7] = 50;
    p.o[12] = 2;
    p.down[3] = 11;
    p.down[39] = 21;
    choose_outliers(&p);
    assert_list(&p, 0, (int32_t[]){7, 12}, 2);
    assert_list(&p, 1, (int32_t[]){39}, 1);
    tg_compiled_deinit(&p.compiled);
}

/* With rows of down twice as many, all groups cost 20 + 2 x 40 = 100 units: 6 are there to spend.
 * down's two take 4, o's two take 2. */
static void a_group_costs_what_its_matrices_have_rows(void **state)
{
    (void)state;
    two_matrices p;
    fill_two_matrices(&p);
    p.weights[1].rows = 32;
    p.weights[1].tile_stride = 0; /* both tiles are the same bytes */
    p.o[7] = 50;
    p.o[8] = 40;
    p.o[9] = 30;
    p.down[3] = 110;
    p.down[39] = 210;
    choose_outliers(&p);
    assert_list(&p, 0, (int32_t[]){7, 8}, 2);
    assert_list(&p, 1, (int32_t[]){3, 39}, 2);
    tg_compiled_deinit(&p.compiled);
}

static void inputs_that_are_not_numbers_or_never_ran_get_nothing(void **state)
{
    (void)state;
    two_matrices p;
    fill_two_matrices(&p);
    p.o[7] = 50;
    p.o[11] = (double)NAN;
    p.down[39] = 21;
    choose_outliers(&p);
    assert_int_equal(p.compiled.program.weights[0].n_outliers, 0);
    assert_list(&p, 1, (int32_t[]){39}, 1);
    tg_compiled_deinit(&p.compiled);
    fill_two_matrices(&p);
    p.o[11] = (double)INFINITY;
    p.squares[1] = NULL;
    choose_outliers(&p);
    assert_int_equal(p.compiled.program.n_outliers, 0);
    tg_compiled_deinit(&p.compiled);
}

/* o: 18 groups have 5, group 7 has 24, group 8 has 10: 124, a mean of 6.2. */
static void groups_below_twice_the_mean_keep_one_plane(void **state)
{
    (void)state;
    two_matrices p;
    fill_two_matrices(&p);
    for (int g = 0; g < O_GROUPS; g++)
        p.o[g] = g == 12 ? 5.0 / 16 : 5;
    p.o[7] = 24;
    p.o[8] = 10;
    p.squares[1] = NULL;
    choose_outliers(&p);
    assert_list(&p, 0, (int32_t[]){7}, 1);
    tg_compiled_deinit(&p.compiled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_far_above_the_mean_of_their_input_come_first),
        cmocka_unit_test(a_group_costs_what_its_matrices_have_rows),
        cmocka_unit_test(groups_below_twice_the_mean_keep_one_plane),
        cmocka_unit_test(inputs_that_are_not_numbers_or_never_ran_get_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
