/* SPDX-License-Identifier: Apache-2.0
 * test_output_rows.c - the last layer for output rows alone: the form of the graph, and that it is
 * the same function. */
#include "check.h"
#include "unit/compile/eval.h"
#include "unit/compile/toyprogram.h"

static eval before, after;

static void assert_ok(tg_status s, const tg_err *e)
{
    if (s != TG_OK) fail_msg("%s", e->msg);
}

static tg_graph *make_fused(toy t)
{
    tg_err e = {0};
    tg_graph *g;
    assert_ok(toy_build(&t, &g, &e), &e);
    assert_ok(tg_graph_fuse(g, &e), &e);
    return g;
}

static void pick(tg_graph *g)
{
    tg_err e = {0};
    assert_ok(tg_graph_pick_output_rows(g, &e), &e);
}

static void assert_dims(const tg_graph *g, const tg_graph_block *b, int32_t from, int32_t to,
                        tg_dim dim)
{
    for (int32_t i = from; i < to; i++)
        if (b->nodes[i].out != TG_NONE) assert_int_equal(g->values[b->nodes[i].out].dim, dim);
}

static void behind_its_attention_the_last_layer_has_wanted_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(toys); i++) {
        tg_graph *g = make_fused(toys[i]);
        pick(g);
        int32_t last = g->layer_body[g->n_layers - 1], n = 0;
        const tg_graph_block *b = &g->bodies[last];
        for (int32_t l = 0; l < g->n_layers - 1; l++) {
            assert_int_not_equal(g->layer_body[l], last);
            const tg_graph_block *other = &g->bodies[g->layer_body[l]];
            assert_dims(g, other, 0, other->n_nodes, TG_DIM_T);
        }
        while (b->nodes[n].op != TG_OP_ATTENTION)
            n++;
        assert_dims(g, b, 0, n + 1, TG_DIM_T);
        assert_dims(g, b, n + 1, b->n_nodes, TG_DIM_R);
        /* The residual and attention's result are all that goes on. */
        assert_int_equal(b->nodes[n + 1].op, TG_OP_ROWS);
        assert_int_equal(b->nodes[n + 2].op, TG_OP_ROWS);
        assert_int_not_equal(b->nodes[n + 3].op, TG_OP_ROWS);
        assert_int_equal(g->values[g->tail.in].dim, TG_DIM_R);
        assert_dims(g, &g->tail, 0, g->tail.n_nodes, TG_DIM_R);
        for (int32_t k = 0; k < g->tail.n_nodes; k++)
            assert_int_not_equal(g->tail.nodes[k].op, TG_OP_ROWS);
        tg_graph_free(g);
    }
}

/* The sums and their order stay, so the numbers are the same and not only close. A plan computes no
 * logit of the surplus row. */
static void assert_same_logits(void)
{
    for (int32_t r = 0; r < EVAL_OUTS; r++)
        assert_memory_equal(before.logits[r], after.logits[r], TOY_IDS * sizeof(double));
}

static void picking_changes_no_function(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(toys); i++) {
        tg_graph *g = make_fused(toys[i]);
        tg_err e = {0};
        tg_arena arena = {0};
        tg_program p;
        eval_graph(&before, g);
        pick(g);
        eval_graph(&after, g);
        assert_same_logits();
        assert_ok(toy_lower(g, false, &p, &arena, &e), &e);
        for (int32_t k = 0; k < p.n_plans; k++) {
            if (p.plans[k].bucket.tokens < EVAL_TOKENS) continue;
            eval_plan(&after, g, &p.plans[k]);
            assert_same_logits();
        }
        tg_arena_deinit(&arena);
        tg_graph_free(g);
    }
}

static void assert_picking_leaves(tg_graph *g)
{
    tg_buf was = {0}, is = {0};
    tg_graph_print(g, &was);
    pick(g);
    tg_graph_print(g, &is);
    assert_string_equal(tg_buf_cstr(&was), tg_buf_cstr(&is));
    tg_buf_deinit(&was);
    tg_buf_deinit(&is);
}

static void picking_twice_changes_nothing_more(void **state)
{
    (void)state;
    tg_graph *g = make_fused((toy){.n_layers = 3});
    pick(g);
    assert_picking_leaves(g);
    tg_graph_free(g);
}

static void a_tail_that_norms_all_tokens_first_is_left_alone(void **state)
{
    (void)state;
    toy t = {.n_layers = 2};
    tg_err e = {0};
    tg_graph *g;
    assert_ok(toy_build(&t, &g, &e), &e); /* not fused: the norm stands before the rows */
    assert_int_not_equal(g->tail.nodes[0].op, TG_OP_ROWS);
    assert_picking_leaves(g);
    tg_graph_free(g);
}

static void a_graph_without_room_for_a_body_is_left_alone(void **state)
{
    (void)state;
    tg_graph *g = make_fused((toy){.n_layers = 2});
    for (int32_t k = 1; k < TG_MAX_BODIES; k++)
        g->bodies[k] = g->bodies[0];
    g->n_bodies = TG_MAX_BODIES;
    assert_picking_leaves(g);
    tg_graph_free(g);
}

static void every_refused_allocation_ends_the_pass_without_a_leak(void **state)
{
    (void)state;
    bool is_done = false;
    for (int64_t n = 0; !is_done; n++) {
        tg_graph *g = make_fused((toy){.n_layers = 3, .is_gemma = true});
        int64_t start = tg_mem_n_alive();
        tg_err e = {0};
        tg_mem_fail_after(n);
        tg_status s = tg_graph_pick_output_rows(g, &e);
        tg_mem_fail_after(-1);
        if (s != TG_OK) {
            assert_int_equal(s, TG_E_NOMEM);
            assert_true(e.msg[0] != 0);
            assert_int_equal(tg_mem_n_alive(), start);
        }
        is_done = s == TG_OK;
        tg_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behind_its_attention_the_last_layer_has_wanted_rows),
        cmocka_unit_test(picking_changes_no_function),
        cmocka_unit_test(picking_twice_changes_nothing_more),
        cmocka_unit_test(a_tail_that_norms_all_tokens_first_is_left_alone),
        cmocka_unit_test(a_graph_without_room_for_a_body_is_left_alone),
        cmocka_unit_test(every_refused_allocation_ends_the_pass_without_a_leak),
    };
    return cmocka_run_group_tests_name("output-rows", tests, NULL, NULL);
}
