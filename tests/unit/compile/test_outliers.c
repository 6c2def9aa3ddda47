/* SPDX-License-Identifier: Apache-2.0
 * The table of outlier groups, from weights written down by hand. */
#include "check.h"
#include "compile/compile.h"

#include <string.h>

enum { N = 5 };

/* Lists by role: q and k {1, 4}, gate {0}; of others nothing. */
static int32_t choose(void *context, const tg_weight_entry *w, int32_t index, int32_t *out)
{
    int32_t *n_calls = context;
    assert_true(index >= 0 && index < N);
    ++*n_calls;
    bool is_qk = w->role == TG_W_Q || w->role == TG_W_K;
    out[0] = is_qk ? 1 : 0;
    out[1] = 4;
    return is_qk ? 2 : w->role == TG_W_GATE;
}

static tg_weight_entry entry(tg_weight_role role, tg_layout l, bool is_plain, int64_t cols)
{
    return (tg_weight_entry){.role = (int32_t)role,
                             .layout = (int32_t)l,
                             .is_plain = is_plain,
                             .rows = 16,
                             .cols = cols};
}

static void equal_lists_are_stored_once_and_floats_have_none(void **state)
{
    (void)state;
    const tg_weight_entry weights[N] = {
        entry(TG_W_ATTN_NORM, TG_LAYOUT_F32, true, 1), entry(TG_W_Q, TG_LAYOUT_Q4_1, false, 160),
        entry(TG_W_K, TG_LAYOUT_Q8_0, false, 160),     entry(TG_W_V, TG_LAYOUT_F16, false, 160),
        entry(TG_W_GATE, TG_LAYOUT_Q4_1, false, 160),
    };
    static const int32_t want[] = {1, 4, 0};
    tg_compiled c = {.program = {.weights = weights, .n_weights = N}};
    tg_err e = {0};
    for (int i = 0; i < 2; i++) { /* a second time replaces the first */
        int32_t n_calls = 0;
        assert_int_equal(tg_compiled_set_outliers(&c, choose, &n_calls, &e), TG_OK);
        assert_int_equal(n_calls, 3); /* q, k, gate: the quantized ones */
        const tg_weight_entry *w = c.program.weights;
        assert_int_equal(c.program.n_outliers, 3);
        assert_memory_equal(c.program.outliers, want, sizeof want);
        assert_int_equal(w[0].n_outliers, 0);
        assert_int_equal(w[1].n_outliers, 2);
        assert_int_equal(w[1].first_outlier, 0);
        assert_int_equal(w[2].n_outliers, 2);
        assert_int_equal(w[2].first_outlier, 0);
        assert_int_equal(w[3].n_outliers, 0);
        assert_int_equal(w[4].n_outliers, 1);
        assert_int_equal(w[4].first_outlier, 2);
        assert_int_equal(w[4].cols, 160);
    }
    tg_arena_deinit(&c.arena);
}

static int32_t choose_all(void *context, const tg_weight_entry *w, int32_t index, int32_t *out)
{
    (void)context;
    (void)index;
    int32_t n = (int32_t)tg_div_up(w->cols, 32);
    for (int32_t g = 0; g < n; g++)
        out[g] = g;
    return n;
}

/* A kernel counts outlier groups in an int16: 32,767 of them, 1,048,544 columns. */
static void more_groups_than_a_kernel_counts_are_refused(void **state)
{
    (void)state;
    for (int64_t more = 0; more < 2; more++) {
        tg_weight_entry w = entry(TG_W_DOWN, TG_LAYOUT_Q4_0, false, 1048544 + more);
        tg_compiled c = {.program = {.weights = &w, .n_weights = 1}};
        tg_err e = {0};
        tg_status s = tg_compiled_set_outliers(&c, choose_all, NULL, &e);
        assert_int_equal(s, more ? TG_E_UNSUPPORTED : TG_OK);
        if (more)
            assert_string_equal(e.msg, "weight 'down' has 1048545 columns; two planes are possible "
                                       "for 1048544 of them: use int8 activations");
        tg_arena_deinit(&c.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_lists_are_stored_once_and_floats_have_none),
        cmocka_unit_test(more_groups_than_a_kernel_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
