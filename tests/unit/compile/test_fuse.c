/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/compile/eval.h"
#include "unit/compile/toyprogram.h"
#include "unit/ir/golden.h"

#include <stdio.h>

static eval before, after;

static void assert_ok(tg_status s, const tg_err *e)
{
    if (s != TG_OK) fail_msg("%s", e->msg);
}

/* Sums of the same numbers in another order: double's rounding, and nothing more. */
static void assert_same_function(const eval *a, const eval *b, const char *what)
{
    for (int32_t r = 0; r < EVAL_OUTS; r++)
        for (int32_t i = 0; i < TOY_IDS; i++)
            if (!(fabs(a->logits[r][i] - b->logits[r][i]) <= 1e-9 * (1 + fabs(a->logits[r][i]))))
                fail_msg("%s: logit %d of row %d is %.17g, was %.17g", what, i, r, b->logits[r][i],
                         a->logits[r][i]);
}

static int32_t count(const tg_graph *g, tg_op op)
{
    int32_t n = 0;
    for (int32_t i = 0; i < tg_graph_n_blocks(g); i++) {
        const tg_graph_block *b = i == 0             ? &g->head
                                  : i <= g->n_bodies ? &g->bodies[i - 1]
                                                     : &g->tail;
        for (int32_t k = 0; k < b->n_nodes; k++)
            n += b->nodes[k].op == op;
    }
    return n;
}

/* Fuses and lowers a graph, and holds the function of the graph, of the fused graph and of the plan
 * (unfused and fused) against each other. */
static void assert_fusing_keeps(tg_graph *g, const char *what)
{
    tg_err e = {0};
    tg_arena arena = {0};
    tg_program p;
    eval_graph(&before, g);
    assert_true(isfinite(before.logits[0][0]) && before.logits[0][0] != before.logits[1][0]);
    assert_ok(toy_lower(g, false, &p, &arena, &e), &e);
    eval_plan(&after, g, &p.plans[0]);
    assert_same_function(&before, &after, what);
    tg_arena_deinit(&arena);

    assert_ok(toy_lower(g, true, &p, &arena, &e), &e);
    eval_graph(&after, g);
    assert_same_function(&before, &after, what);
    eval_plan(&after, g, &p.plans[0]);
    assert_same_function(&before, &after, what);
    tg_arena_deinit(&arena);
}

static void assert_prints(toy t, const char *path)
{
    tg_err e = {0};
    tg_graph *g;
    tg_arena arena = {0};
    tg_buf text = {0};
    tg_program p = toy_numbers();
    assert_ok(toy_build(&t, &g, &e), &e);
    assert_ok(tg_graph_fuse(g, &e), &e);
    assert_ok(tg_graph_group(g, &p, &arena, &e), &e);
    tg_graph_print(g, &text);
    assert_golden(path, &text);
    tg_buf_deinit(&text);
    tg_arena_deinit(&arena);
    tg_graph_free(g);
}

static void a_llama_layer_becomes_five_operations(void **state)
{
    (void)state;
    assert_prints((toy){.n_layers = 2}, "tests/golden/ir/llama2_group.txt");
}

static void a_gemma_layer_becomes_seven_operations_and_two_kv_groups(void **state)
{
    (void)state;
    assert_prints((toy){.n_layers = 6, .is_gemma = true, .is_tied = true},
                  "tests/golden/ir/gemma6_group.txt");
}

static void fusing_changes_no_function(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(toys); i++) {
        toy t = toys[i];
        tg_err e = {0};
        tg_graph *g;
        char name[32];
        snprintf(name, sizeof name, "toy %zu", i);
        assert_ok(toy_build(&t, &g, &e), &e);
        assert_fusing_keeps(g, name);
        tg_graph_free(g);
    }
}

static void fusing_twice_changes_nothing_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(toys); i++) {
        toy t = toys[i];
        tg_err e = {0};
        tg_graph *g;
        tg_buf once = {0}, twice = {0};
        assert_ok(toy_build(&t, &g, &e), &e);
        assert_ok(tg_graph_fuse(g, &e), &e);
        tg_graph_print(g, &once);
        assert_ok(tg_graph_fuse(g, &e), &e);
        tg_graph_print(g, &twice);
        assert_string_equal(tg_buf_cstr(&once), tg_buf_cstr(&twice));
        tg_buf_deinit(&once);
        tg_buf_deinit(&twice);
        tg_graph_free(g);
    }
}

/* ---- layers that the rows must leave alone, wholly or in part */

typedef enum oddity {
    WHOLE_Q_NORM, /* q normed over all heads together */
    OTHER_EPS,    /* head norms with another eps than the layer's norm */
    ONLY_Q_ROTATES,
    Q_OF_RAW_INPUT,        /* q from x, k and v from the norm of x */
    NORM_READ_TWICE,       /* the norm feeds gate, up and the residual */
    RESIDUAL_LATER,        /* the residual of the first add is read again at the end */
    NORM_AFTER_SUM,        /* x = norm(x + f(x)) */
    SUM_OF_NORM,           /* h = norm(x); x = h + f(h) */
    LAYER_NORM,            /* of another kind before attention and at the end */
    SCALED_AND_SOFTCAPPED, /* attention's result times a number; scores and logits capped */
    ODDITY_COUNT
} oddity;

static tg_value odd_attention(tg_build *b, oddity odd, tg_value x, tg_value n)
{
    tg_value q = tg_build_matmul(b, odd == Q_OF_RAW_INPUT ? x : n, TG_W_Q, TG_W_COUNT);
    tg_value k = tg_build_matmul(b, n, TG_W_K, TG_W_COUNT);
    tg_value v = tg_build_matmul(b, n, TG_W_V, TG_W_COUNT);
    if (odd == WHOLE_Q_NORM) q = tg_build_rms_norm(b, q, TG_W_ATTN_POST_NORM, 1e-5f);
    if (odd == OTHER_EPS) q = tg_build_head_norm(b, q, TG_W_Q_NORM, TOY_HEAD_DIM, 1e-3f);
    q = tg_build_rope(b, q, TG_W_ROPE_0, TOY_HEAD_DIM, 4);
    if (odd != ONLY_Q_ROTATES) k = tg_build_rope(b, k, TG_W_ROPE_0, TOY_HEAD_DIM, 4);
    tg_build_kv_write(b, k, v, TOY_KV_HEADS, TOY_HEAD_DIM);
    tg_value a =
        tg_build_attention(b, q,
                           &(tg_attention){.n_heads = TOY_HEADS,
                                           .n_kv_heads = TOY_KV_HEADS,
                                           .head_dim = TOY_HEAD_DIM,
                                           .scale = 0.25f,
                                           .softcap = odd == SCALED_AND_SOFTCAPPED ? 0.5f : 0});
    a = tg_build_matmul(b, a, TG_W_O, TG_W_COUNT);
    return tg_build_scale(b, a, odd == SCALED_AND_SOFTCAPPED ? 0.5f : 1);
}

static tg_value odd_norm(tg_build *b, oddity odd, tg_value x, tg_weight_role w)
{
    if (odd != LAYER_NORM) return toy_norm(b, x, w);
    return tg_build_layer_norm(b, x, w, w == TG_W_OUT_NORM ? TG_W_COUNT : TG_W_FFN_POST_NORM,
                               1e-5f);
}

static tg_value odd_layer(tg_build *b, oddity odd, tg_value x)
{
    tg_value first = x, n = odd_norm(b, odd, x, TG_W_ATTN_NORM);
    if (odd == SUM_OF_NORM) x = n;
    x = tg_build_add(b, x, odd_attention(b, odd, x, n));
    if (odd == NORM_AFTER_SUM) x = toy_norm(b, x, TG_W_ATTN_POST_NORM);
    n = toy_norm(b, x, TG_W_FFN_NORM);
    tg_value gate = tg_build_matmul(b, n, TG_W_GATE, TG_W_COUNT);
    tg_value up = tg_build_matmul(b, n, TG_W_UP, TG_W_COUNT);
    tg_value y = tg_build_matmul(b, tg_build_glu(b, gate, up, 0), TG_W_DOWN, TG_W_COUNT);
    if (odd == NORM_READ_TWICE) y = tg_build_add(b, n, y);
    if (odd == RESIDUAL_LATER) y = tg_build_add(b, y, toy_norm(b, first, TG_W_FFN_POST_NORM));
    x = tg_build_add(b, x, y);
    return odd == NORM_AFTER_SUM ? toy_norm(b, x, TG_W_FFN_POST_NORM) : x;
}

static tg_graph *build_odd(oddity odd)
{
    toy t = {.n_layers = 2, .is_gemma = true};
    tg_err e = {0};
    tg_graph *g;
    tg_build *b;
    toy_shapes(&t);
    toy_set(&t, TG_W_ROPE_0, TOY_LENGTH, 4);
    assert_ok(tg_build_new(&b, t.shapes, t.n_layers, &e), &e);
    tg_value x = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), 4.0f);
    for (int32_t l = 0; l < t.n_layers; l++)
        x = tg_build_layer_end(b, odd_layer(b, odd, tg_build_layer_begin(b, l, x)));
    bool is_capped = odd == SCALED_AND_SOFTCAPPED;
    tg_build_output(b, odd_norm(b, odd, x, TG_W_OUT_NORM), TG_W_HEAD, is_capped ? 0.5f : 1,
                    is_capped ? 3.0f : 0);
    assert_ok(tg_build_finish(b, &g, &e), &e);
    return g;
}

static void what_matches_no_row_stays_and_stays_right(void **state)
{
    (void)state;
    /* How many of qkv, glu_matmul, matmul_add are left to make in the odd layer. */
    const struct {
        oddity odd;
        int32_t n_qkv, n_glu_matmul, n_matmul_add, n_rms_norm;
    } cases[] = {
        {WHOLE_Q_NORM, 0, 1, 2, 2}, /* the layer's norm feeds three matmuls, and the norm of q */
        {OTHER_EPS, 1, 1, 2, 1},    /* qkv with head norm, but not with the layer's norm */
        {ONLY_Q_ROTATES, 0, 1, 2, 1},  {Q_OF_RAW_INPUT, 0, 1, 2, 1}, /* the norm feeds k and v */
        {NORM_READ_TWICE, 1, 1, 2, 1}, /* down is added over the norm, which nothing reads later */
        {RESIDUAL_LATER, 1, 1, 0, 0},  /* no sum over x, which lives on */
        {NORM_AFTER_SUM, 1, 1, 2, 2},  {SUM_OF_NORM, 1, 1, 1, 1},
        {LAYER_NORM, 1, 1, 2, 0},      {SCALED_AND_SOFTCAPPED, 1, 1, 1, 0},
    };
    _Static_assert(TG_COUNT(cases) == ODDITY_COUNT, "every oddity has a row");
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        tg_graph *g = build_odd(cases[i].odd);
        char name[32];
        snprintf(name, sizeof name, "oddity %d", (int)cases[i].odd);
        assert_fusing_keeps(g, name);
        const int32_t got[] = {count(g, TG_OP_QKV), count(g, TG_OP_GLU_MATMUL),
                               count(g, TG_OP_MATMUL_ADD), count(g, TG_OP_RMS_NORM)};
        const int32_t want[] = {cases[i].n_qkv, cases[i].n_glu_matmul, cases[i].n_matmul_add,
                                cases[i].n_rms_norm};
        for (size_t k = 0; k < TG_COUNT(got); k++)
            if (got[k] != want[k])
                fail_msg("%s: %d of kind %zu instead of %d", name, got[k], k, want[k]);
        tg_graph_free(g);
    }
}

static void only_wanted_rows_reach_the_last_norm(void **state)
{
    (void)state;
    toy t = {.n_layers = 1};
    tg_err e = {0};
    tg_graph *g;
    assert_ok(toy_build(&t, &g, &e), &e);
    assert_ok(tg_graph_fuse(g, &e), &e);
    assert_int_equal(g->tail.nodes[0].op, TG_OP_ROWS);
    assert_int_equal(g->tail.nodes[0].in[0], g->tail.in);
    tg_graph_free(g);
}

static void every_refused_allocation_ends_the_passes_without_a_leak(void **state)
{
    (void)state;
    int64_t start = tg_mem_n_alive();
    bool is_done = false;
    for (int64_t n = 0; !is_done; n++) {
        toy t = {.n_layers = 6, .is_gemma = true};
        tg_err e = {0};
        tg_graph *g = NULL;
        tg_program p;
        tg_arena arena = {0};
        tg_buf block = {0};
        tg_mem_fail_after(n);
        tg_status s = toy_build(&t, &g, &e);
        if (s == TG_OK) s = toy_lower(g, true, &p, &arena, &e);
        if (s == TG_OK) s = tg_program_print_block(&p, &block, &e);
        tg_mem_fail_after(-1);
        if (s != TG_OK) assert_int_equal(s, TG_E_NOMEM);
        if (s != TG_OK) assert_true(e.msg[0] != 0);
        is_done = s == TG_OK;
        tg_buf_deinit(&block);
        tg_arena_deinit(&arena);
        tg_graph_free(g);
        assert_int_equal(tg_mem_n_alive(), start);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_layer_becomes_five_operations),
        cmocka_unit_test(a_gemma_layer_becomes_seven_operations_and_two_kv_groups),
        cmocka_unit_test(fusing_changes_no_function),
        cmocka_unit_test(fusing_twice_changes_nothing_more),
        cmocka_unit_test(what_matches_no_row_stays_and_stays_right),
        cmocka_unit_test(only_wanted_rows_reach_the_last_norm),
        cmocka_unit_test(every_refused_allocation_ends_the_passes_without_a_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
