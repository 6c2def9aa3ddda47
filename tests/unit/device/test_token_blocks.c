/* SPDX-License-Identifier: Apache-2.0
 * test_token_blocks.c - which values of a plan a block of tokens has for itself. That the results
 * are the same bits is test_bits' business. */
#include "check.h"
#include "device/token_blocks.h"

enum { T = 512, N_VALUES = 8, N_INSTRS = 8 };

/* A layer as Llama's, by hand:
 *
 *     v1 = embed v0
 *     v2 = qkv v1, v3 = attention v2, v4 = v1 + o v3, v5 = glu v4, v6 = v4 + down v5
 *     v7 = rows v1 */
typedef struct plan {
    tg_plan plan;
    tg_plan_value values[N_VALUES];
    tg_instr instrs[N_INSTRS];
    tg_segment segments[4];
    int32_t layer_refs[2];
    tg_token_blocks token_blocks;
    _Alignas(8) char memory[1024];
} plan;

static tg_plan_value make_value(int32_t width, int32_t alias, int64_t offset)
{
    return (tg_plan_value){
        .dim = TG_DIM_T, .width = width, .alias = alias, .offset = offset * T * 4};
}

static tg_instr make_instr(tg_op op, int32_t out, int32_t in0, int32_t in1)
{
    return (tg_instr){.op = (int32_t)op, .out = out, .in = {in0, in1}};
}

static void make_plan(plan *p)
{
    *p = (plan){
        .values = {[1] = make_value(64, TG_NONE, 0),
                   [2] = make_value(64, TG_NONE, 64),
                   [3] = make_value(64, TG_NONE, 128),
                   [4] = make_value(64, 1, 0),
                   [5] = make_value(160, TG_NONE, 64),
                   [6] = make_value(64, 1, 0),
                   [7] = make_value(64, TG_NONE, 64)},
        .instrs = {make_instr(TG_OP_EMBED, 1, 0, TG_NONE), make_instr(TG_OP_QKV, 2, 1, TG_NONE),
                   make_instr(TG_OP_ATTENTION, 3, 2, TG_NONE),
                   make_instr(TG_OP_MATMUL_ADD, 4, 1, 3),
                   make_instr(TG_OP_GLU_MATMUL, 5, 4, TG_NONE),
                   make_instr(TG_OP_MATMUL_ADD, 6, 4, 5), make_instr(TG_OP_ROWS, 7, 1, TG_NONE)},
        .segments = {{0, 1, 0, 0}, {1, 5, 0, 2}, {6, 1, 0, 0}},
        .layer_refs = {0, 1}};
    p->values[0] =
        (tg_plan_value){.dim = TG_DIM_T, .width = 1, .alias = TG_NONE, .offset = TG_IO_TOKENS};
    p->values[7].dim = TG_DIM_R;
    p->plan = (tg_plan){.kind = TG_KIND_CONTEXT,
                        .bucket = {1, T, T, 8},
                        .n_values = N_VALUES,
                        .n_instrs = 7,
                        .n_segments = 3,
                        .n_layer_refs = 2,
                        .arena_bytes = (int64_t)224 * T * 4,
                        .values = p->values,
                        .instrs = p->instrs,
                        .segments = p->segments,
                        .layer_refs = p->layer_refs};
    assert_true(tg_token_blocks_bytes(&p->plan) <= sizeof p->memory);
}

static bool is_own(const plan *p, int32_t value)
{
    return p->token_blocks.offsets[value] != TG_NONE;
}

static void a_block_owns_what_no_other_stretch_reads(void **state)
{
    (void)state;
    plan p;
    make_plan(&p);
    assert_true(tg_token_blocks_find(&p.token_blocks, &p.plan, p.memory));
    assert_false(is_own(&p, 1)); /* the stream, from layer to layer */
    assert_false(is_own(&p, 4));
    assert_false(is_own(&p, 6));
    assert_false(is_own(&p, 2)); /* queries wait for the keys of the others */
    assert_true(is_own(&p, 3));
    assert_true(is_own(&p, 5));
    assert_false(is_own(&p, 7)); /* output rows, not tokens */
    for (int32_t i = 0; i < 6; i++)
        assert_true(p.token_blocks.is_block[i]);
    assert_false(p.token_blocks.is_block[6]);
}

static void values_of_a_block_do_not_overlap_and_fit(void **state)
{
    (void)state;
    static const int32_t tokens[] = {16, 50, 79, 80, 81, 100, 333, 512, 4096};
    for (size_t k = 0; k < TG_COUNT(tokens); k++) {
        plan p;
        make_plan(&p);
        p.plan.bucket.tokens = tokens[k];
        /* v3 and v5 live one after the other in one place; apart they may not touch. */
        int64_t at = 0;
        for (int32_t v = 1; v < N_VALUES; v++) {
            if (p.values[v].alias != TG_NONE) continue;
            p.values[v].offset = at;
            at += (int64_t)tg_align_up((size_t)tg_plan_value_bytes(&p.plan, &p.values[v]), 64);
        }
        p.plan.arena_bytes = at;
        assert_true(tg_token_blocks_find(&p.token_blocks, &p.plan, p.memory));
        int64_t rows = TG_MIN(tokens[k], TG_TOKEN_BLOCK_TOKENS);
        int64_t end = p.token_blocks.offsets[3] + rows * p.values[3].width * 4;
        assert_int_equal(p.token_blocks.offsets[3] % 64, 0);
        assert_int_equal(p.token_blocks.offsets[5] % 64, 0);
        assert_true(end <= p.token_blocks.offsets[5]);
        assert_true(p.token_blocks.offsets[5] + rows * p.values[5].width * 4 <=
                    p.token_blocks.block_bytes);
    }
}

static void shared_values_in_one_place_keep_a_plan_from_running_in_blocks(void **state)
{
    (void)state;
    plan p;
    make_plan(&p);
    /* A second value that outlives its stretch, in the queries' memory after their last use. */
    p.values[5].offset = p.values[2].offset;
    p.segments[1].n_instrs = 4;
    p.segments[2] = (tg_segment){5, 1, 0, 0};
    assert_false(tg_token_blocks_find(&p.token_blocks, &p.plan, p.memory));
}

/* A layer, and a last one of another body, whose attention is read after its stretch:
 *
 *     v1 = embed v0
 *     v2 = qkv v1, v3 = attention v2, v4 = v1 + o v3
 *     v5 = qkv v1, v6 = attention v5
 *     v7 = rows v6 */
static void make_two_bodies(plan *p)
{
    make_plan(p);
    p->values[5] = make_value(64, TG_NONE, 192);
    p->values[6] = make_value(64, TG_NONE, 96); /* over half of v2 */
    p->instrs[4] = make_instr(TG_OP_QKV, 5, 1, TG_NONE);
    p->instrs[5] = make_instr(TG_OP_ATTENTION, 6, 5, TG_NONE);
    p->instrs[6] = make_instr(TG_OP_ROWS, 7, 6, TG_NONE);
    p->values[7].offset = make_value(64, TG_NONE, 256).offset;
    p->plan.arena_bytes = (int64_t)320 * T * 4;
    p->segments[1] = (tg_segment){1, 3, 0, 1};
    p->segments[2] = (tg_segment){4, 2, 1, 1};
    p->segments[3] = (tg_segment){6, 1, 0, 0};
    p->plan.n_segments = 4;
}

static void values_of_different_stretches_may_overlap(void **state)
{
    (void)state;
    plan p;
    make_two_bodies(&p);
    assert_true(tg_token_blocks_find(&p.token_blocks, &p.plan, p.memory));
    assert_false(is_own(&p, 6));
    /* v2 is read and v5 is written in one stretch. */
    p.values[5].offset = p.values[6].offset;
    assert_false(tg_token_blocks_find(&p.token_blocks, &p.plan, p.memory));
    /* In one place and as wide, each token has its own row of both. */
    p.values[5].offset = p.values[2].offset;
    p.values[6].offset = make_value(64, TG_NONE, 128).offset;
    assert_true(tg_token_blocks_find(&p.token_blocks, &p.plan, p.memory));
}

static void a_value_read_before_it_is_written_is_not_a_blocks_own(void **state)
{
    (void)state;
    plan p;
    make_plan(&p);
    p.instrs[4].in[0] = 5;
    assert_true(!tg_token_blocks_find(&p.token_blocks, &p.plan, p.memory) || !is_own(&p, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_owns_what_no_other_stretch_reads),
        cmocka_unit_test(values_of_a_block_do_not_overlap_and_fit),
        cmocka_unit_test(shared_values_in_one_place_keep_a_plan_from_running_in_blocks),
        cmocka_unit_test(values_of_different_stretches_may_overlap),
        cmocka_unit_test(a_value_read_before_it_is_written_is_not_a_blocks_own),
    };
    return cmocka_run_group_tests_name("many", tests, NULL, NULL);
}
