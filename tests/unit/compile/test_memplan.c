/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "unit/compile/toyprogram.h"

static void assert_ok(tg_status s, const tg_err *e)
{
    if (s != TG_OK) fail_msg("%s", e->msg);
}

typedef struct made {
    tg_graph *g;
    tg_program p;
    tg_arena arena;
} made;

static made make(toy t, bool is_fused)
{
    made m = {0};
    tg_err e = {0};
    assert_ok(toy_build(&t, &m.g, &e), &e);
    assert_ok(toy_lower(m.g, is_fused, &m.p, &m.arena, &e), &e);
    return m;
}

static void unmake(made *m)
{
    tg_arena_deinit(&m->arena);
    tg_graph_free(m->g);
}

/* ---- liveness by running through the steps one by one, layers unrolled: not as the planner does
 * it */

enum { MAX_STEPS = 256 };

typedef struct step {
    const tg_instr *x;
} step;

static int32_t unroll(const tg_plan *p, step *out)
{
    int32_t n = 0;
    for (int32_t s = 0; s < p->n_segments; s++)
        for (int32_t l = 0; l < TG_MAX(p->segments[s].n_layers, 1); l++)
            for (int32_t i = 0; i < p->segments[s].n_instrs; i++) {
                assert_true(n < MAX_STEPS);
                out[n++].x = &p->instrs[p->segments[s].first_instr + i];
            }
    return n;
}

/* Is the memory of value v read after step i before it is written again as a whole? `v` stands for
 * all values with its memory. */
static bool is_read_later(const tg_plan *p, const step *steps, int32_t n, int32_t i, int32_t v)
{
    for (int32_t k = i + 1; k < n; k++) {
        const tg_instr *x = steps[k].x;
        for (int32_t a = 0; a < tg_op_get((tg_op)x->op)->n_inputs; a++)
            if (x->in[a] == v || p->values[x->in[a]].alias == v) return true;
        if (x->out == v) return false; /* an alias's writer reads it too, and was found above */
    }
    return false;
}

static bool overlap(const tg_plan *p, int32_t a, int32_t b)
{
    const tg_plan_value *v = &p->values[a], *w = &p->values[b];
    return v->offset < w->offset + tg_plan_value_bytes(p, w) &&
           w->offset < v->offset + tg_plan_value_bytes(p, v);
}

static int32_t root_of(const tg_plan *p, int32_t v)
{
    return p->values[v].alias == TG_NONE ? v : p->values[v].alias;
}

/* A step may write over nothing that is read later, save the root it is part of. */
static void assert_no_live_value_is_hit(const tg_plan *p)
{
    step steps[MAX_STEPS];
    int32_t n = unroll(p, steps);
    bool is_written[TG_MAX_INSTRS] = {false};
    for (int32_t i = 0; i < n; i++) {
        int32_t out = steps[i].x->out;
        if (out == TG_NONE || p->values[out].offset < 0) continue;
        for (int32_t v = 0; v < p->n_values; v++) {
            if (!is_written[v] || p->values[v].offset < 0 || v == root_of(p, out)) continue;
            if (p->values[v].alias == TG_NONE && overlap(p, out, v) &&
                is_read_later(p, steps, n, i - 1, v))
                fail_msg("step %d writes value %d over value %d, which is read later", i, out, v);
        }
        is_written[root_of(p, out)] = true;
    }
}

static void no_step_writes_over_what_is_read_later(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(toys); i++)
        for (int fused = 0; fused < 2; fused++) {
            made m = make(toys[i], fused);
            for (int32_t k = 0; k < m.p.n_plans; k++)
                assert_no_live_value_is_hit(&m.p.plans[k]);
            unmake(&m);
        }
}

static void every_value_is_inside_its_arena_and_aligned(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(toys); i++) {
        made m = make(toys[i], true);
        for (int32_t k = 0; k < m.p.n_plans; k++) {
            const tg_plan *p = &m.p.plans[k];
            for (int32_t v = 0; v < p->n_values; v++) {
                if (p->values[v].offset < 0) continue;
                assert_int_equal(p->values[v].offset % 64, 0);
                assert_true(p->values[v].offset + tg_plan_value_bytes(p, &p->values[v]) <=
                            p->arena_bytes);
            }
        }
        unmake(&m);
    }
}

/* Llama's layer: the stream with q and the attention's result, or with the result of gate and up.
 * 64 tokens: 64 * 16 * 4 = 4096 bytes, 64 * 24 * 4 = 6144. Together 3 * 4096 = 12288 and 10240.
 * Gemma's: stream + down's result + gate and up's: 2 * 4096 + 6144 = 14336. */
static void no_smaller_arena_is_possible_for_the_common_layers(void **state)
{
    (void)state;
    const struct {
        toy t;
        int64_t bytes;
    } cases[] = {{{.n_layers = 2}, 12288}, {{.n_layers = 7, .is_gemma = true}, 14336}};
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        made m = make(cases[i].t, true);
        const tg_plan *p = tg_program_find_plan(&m.p, TG_KIND_CONTEXT, 1, 64, 1, 1);
        assert_int_equal(p->bucket.tokens, 64);
        assert_int_equal(p->arena_bytes, cases[i].bytes);
        assert_int_equal(tg_plan_live_bytes(p), cases[i].bytes);
        unmake(&m);
    }
}

static void layers_that_call_the_same_body_in_a_row_are_one_segment(void **state)
{
    (void)state;
    made m = make((toy){.n_layers = 7, .is_gemma = true}, true);
    /* Sliding 0 1, global 2, sliding 3 4, global 5, sliding 6; before and after them head and tail.
     * */
    const int32_t n_layers[] = {0, 2, 1, 2, 1, 1, 0}, first[] = {0, 0, 2, 3, 5, 6, 7};
    const tg_plan *p = &m.p.plans[0];
    assert_int_equal(p->n_segments, 7);
    for (int32_t i = 0; i < 7; i++) {
        assert_int_equal(p->segments[i].n_layers, n_layers[i]);
        assert_int_equal(p->segments[i].first_layer, first[i]);
    }
    assert_int_equal(p->segments[3].first_instr, p->segments[1].first_instr);
    assert_int_equal(p->segments[5].first_instr, p->segments[1].first_instr);
    assert_int_equal(p->segments[4].first_instr, p->segments[2].first_instr);
    for (int32_t l = 0; l < 7; l++)
        assert_int_equal(p->layer_refs[l], l);
    unmake(&m);
}

static void layers_with_equal_windows_share_pages(void **state)
{
    (void)state;
    made m = make((toy){.n_layers = 7, .is_gemma = true}, true);
    assert_int_equal(m.p.n_kv_groups, 2);
    /* 5 and 2 layers * 1 head * 8 * 64 * 2 * 2 bytes */
    assert_int_equal(m.p.kv_groups[0].window, 64);
    assert_int_equal(m.p.kv_groups[0].page_bytes, 5 * 2048);
    assert_int_equal(m.p.kv_groups[1].window, 0);
    assert_int_equal(m.p.kv_groups[1].page_bytes, 2 * 2048);
    const int32_t group[] = {0, 0, 1, 0, 0, 1, 0}, index[] = {0, 1, 0, 2, 3, 1, 4};
    for (int32_t l = 0; l < 7; l++) {
        assert_int_equal(m.p.layers[l].kv_group, group[l]);
        assert_int_equal(m.p.layers[l].kv_index, index[l]);
    }
    unmake(&m);
}

static void heads_that_q8_cannot_hold_are_refused(void **state)
{
    (void)state;
    toy t = {.n_layers = 1};
    made m = {0};
    tg_err e = {0};
    assert_ok(toy_build(&t, &m.g, &e), &e);
    m.p = toy_numbers();
    m.p.kv_type = TG_KV_Q8;
    assert_int_equal(tg_graph_group(m.g, &m.p, &m.arena, &e), TG_E_UNSUPPORTED);
    assert_string_equal(e.msg, "kv q8 takes heads whose dimensions are a multiple of 32, and this "
                               "model's have 8; use f16");
    unmake(&m);
}

static void buckets_are_those_of_the_three_graphs(void **state)
{
    (void)state;
    made m = make((toy){.n_layers = 1}, true);
    /* 2 rows, K = 3, 130 positions = 3 pages. */
    const struct {
        tg_graph_kind kind;
        tg_bucket bucket;
    } want[] = {{TG_KIND_CONTEXT, {2, 5, 5, 3}},
                {TG_KIND_CONTEXT, {2, 32, 32, 3}},
                {TG_KIND_CONTEXT, {2, 64, 64, 3}},
                {TG_KIND_TOKEN, {2, 2, 2, 3}},
                {TG_KIND_SPECULATE, {2, 8, 8, 3}}};
    assert_int_equal(m.p.n_plans, TG_COUNT(want));
    for (size_t i = 0; i < TG_COUNT(want); i++) {
        assert_int_equal(m.p.plans[i].kind, want[i].kind);
        assert_memory_equal(&m.p.plans[i].bucket, &want[i].bucket, sizeof(tg_bucket));
    }
    unmake(&m);
}

static const tg_weight_entry *weight(const made *m, tg_weight_role role, int32_t layer)
{
    const tg_weight_entry *w = tg_program_find_weight(&m->p, role, layer);
    assert_non_null(w);
    return w;
}

/* q8_0: a tile of 16 rows of up to 64 columns has 1088 bytes (format/layout.h). */
static void weights_lie_in_the_order_in_which_they_are_read(void **state)
{
    (void)state;
    made m = make((toy){.n_layers = 2, .is_tied = true}, true);
    static const tg_weight_role order[] = {TG_W_Q, TG_W_K, TG_W_V, TG_W_O};
    int64_t at = 0;
    for (int32_t i = 0; i < m.p.n_weights; i++)
        if (m.p.weights[i].is_plain)
            at += (m.p.weights[i].rows * m.p.weights[i].cols * 4 + 63) / 64 * 64;
    for (int32_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < TG_COUNT(order); i++) {
            assert_int_equal(weight(&m, order[i], l)->offset, at);
            assert_int_equal(weight(&m, order[i], l)->tile_stride, 1088);
            at += (weight(&m, order[i], l)->rows + 15) / 16 * 1088;
        }
        /* Two tiles each, one by one. */
        assert_int_equal(weight(&m, TG_W_GATE, l)->offset, at);
        assert_int_equal(weight(&m, TG_W_UP, l)->offset, at + 1088);
        assert_int_equal(weight(&m, TG_W_GATE, l)->tile_stride, 2 * 1088);
        assert_int_equal(weight(&m, TG_W_UP, l)->tile_stride, 2 * 1088);
        assert_int_equal(weight(&m, TG_W_DOWN, l)->offset, at + 4 * 1088);
        at += 5 * 1088;
    }
    assert_int_equal(weight(&m, TG_W_EMBED, 0)->offset, at);
    assert_int_equal(m.p.weights_bytes, at + 3 * 1088);
    assert_null(tg_program_find_weight(&m.p, TG_W_HEAD, 0));
    unmake(&m);
}

static tg_status choose_by_role(void *context, tg_weight_role role, int32_t layer, bool is_plain,
                                tg_layout *out, tg_err *e)
{
    (void)context, (void)layer, (void)is_plain, (void)e;
    *out = role == TG_W_UP ? TG_LAYOUT_Q4_0 : TG_LAYOUT_F16;
    return TG_OK;
}

/* Tiles of 16 f16 columns are 512 bytes; of 16 columns of q4_0, padded to 64, 576. */
static void gate_and_up_of_unequal_tiles_lie_one_after_the_other(void **state)
{
    (void)state;
    toy t = {.n_layers = 1};
    tg_err e = {0};
    tg_arena arena = {0};
    made m = {.p = toy_numbers()};
    assert_ok(toy_build(&t, &m.g, &e), &e);
    assert_ok(tg_graph_fuse(m.g, &e), &e);
    assert_ok(tg_graph_place_weights(m.g, &m.p, &arena, choose_by_role, NULL, &e), &e);
    const tg_weight_entry *gate = weight(&m, TG_W_GATE, 0), *up = weight(&m, TG_W_UP, 0);
    assert_int_equal(gate->tile_stride, 16 * 16 * 2);
    assert_int_equal(up->tile_stride, 576);
    assert_int_equal(up->offset, gate->offset + 2 * gate->tile_stride);
    tg_arena_deinit(&arena);
    tg_graph_free(m.g);
}

static void lowering_twice_gives_the_same_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(toys); i++) {
        made a = make(toys[i], true), b = make(toys[i], true);
        tg_buf x = {0}, y = {0};
        tg_err e = {0};
        assert_ok(tg_program_print_block(&a.p, &x, &e), &e);
        assert_ok(tg_program_print_block(&b.p, &y, &e), &e);
        assert_true(x.len > 1000 && tg_str_is_equal(tg_buf_str(&x), tg_buf_str(&y)));
        /* And what was printed opens as the same program. */
        tg_program p;
        tg_arena arena = {0};
        tg_buf z = {0};
        assert_ok(tg_program_open(&p, &arena, x.ptr, x.len, &e), &e);
        assert_ok(tg_program_print_block(&p, &z, &e), &e);
        assert_true(tg_str_is_equal(tg_buf_str(&x), tg_buf_str(&z)));
        tg_arena_deinit(&arena);
        tg_buf_deinit(&x);
        tg_buf_deinit(&y);
        tg_buf_deinit(&z);
        unmake(&a);
        unmake(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_writes_over_what_is_read_later),
        cmocka_unit_test(every_value_is_inside_its_arena_and_aligned),
        cmocka_unit_test(no_smaller_arena_is_possible_for_the_common_layers),
        cmocka_unit_test(layers_that_call_the_same_body_in_a_row_are_one_segment),
        cmocka_unit_test(layers_with_equal_windows_share_pages),
        cmocka_unit_test(heads_that_q8_cannot_hold_are_refused),
        cmocka_unit_test(buckets_are_those_of_the_three_graphs),
        cmocka_unit_test(weights_lie_in_the_order_in_which_they_are_read),
        cmocka_unit_test(gate_and_up_of_unequal_tiles_lie_one_after_the_other),
        cmocka_unit_test(lowering_twice_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
