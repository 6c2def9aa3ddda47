/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/ir/golden.h"
#include "unit/ir/toy.h"

static tg_graph *build(toy *t)
{
    tg_err e = {0};
    tg_graph *g = NULL;
    if (toy_build(t, &g, &e) != TG_OK) fail_msg("%s", e.msg);
    return g;
}

static void a_two_layer_model_prints_as_its_paper_says(void **state)
{
    (void)state;
    toy t = {.n_layers = 2};
    tg_graph *g = build(&t);
    tg_buf text = {0};
    tg_graph_print(g, &text);
    assert_golden("tests/golden/ir/llama2_build.txt", &text);
    tg_buf_deinit(&text);
    tg_graph_free(g);
}

static void equal_layers_share_one_body_and_others_do_not(void **state)
{
    (void)state;
    toy plain = {.n_layers = 8}, mixed = {.n_layers = 7, .is_gemma = true};
    tg_graph *g = build(&plain);
    assert_int_equal(g->n_bodies, 1);
    for (int32_t l = 0; l < 8; l++)
        assert_int_equal(g->layer_body[l], 0);
    tg_graph_free(g);

    /* Sliding layers (0, 1, 3, 4, 6) have another rope table and window than global ones (2, 5). */
    g = build(&mixed);
    assert_int_equal(g->n_bodies, 2);
    const int32_t want[] = {0, 0, 1, 0, 0, 1, 0};
    assert_memory_equal(g->layer_body, want, sizeof want);
    tg_graph_free(g);
}

static void values_of_forgotten_bodies_leave_no_trace(void **state)
{
    (void)state;
    toy two = {.n_layers = 2}, eight = {.n_layers = 8};
    tg_graph *a = build(&two), *b = build(&eight);
    assert_int_equal(a->n_values, b->n_values);
    tg_graph_free(a);
    tg_graph_free(b);
}

static void a_layer_that_lacks_an_optional_weight_has_a_body_of_its_own(void **state)
{
    (void)state;
    toy t = {.n_layers = 4, .has_bias = true};
    toy_shapes(&t);
    tg_err e = {0};
    tg_build *b;
    t.shapes[TG_W_Q_BIAS * 4 + 2].is_present = false;
    assert_int_equal(tg_build_new(&b, t.shapes, 4, &e), TG_OK);
    tg_value x = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), 1.0f);
    for (int32_t l = 0; l < 4; l++)
        x = tg_build_layer_end(b, toy_layer(&t, b, l, tg_build_layer_begin(b, l, x)));
    tg_build_output(b, x, TG_W_HEAD, 1, 0);
    tg_graph *g;
    assert_int_equal(tg_build_finish(b, &g, &e), TG_OK);
    const int32_t want[] = {0, 0, 1, 0};
    assert_int_equal(g->n_bodies, 2);
    assert_memory_equal(g->layer_body, want, sizeof want);
    tg_graph_free(g);
}

/* Builds the toy with one shape changed and expects this sentence. */
static void assert_refused(tg_weight_role role, int32_t layer, tg_weight_shape shape,
                           const char *message)
{
    toy t = {.n_layers = 2};
    tg_err e = {0};
    tg_graph *g;
    tg_build *b;
    int64_t before = tg_mem_n_alive();
    toy_shapes(&t);
    t.shapes[(int32_t)role * 2 + layer] = shape;
    assert_int_equal(tg_build_new(&b, t.shapes, 2, &e), TG_OK);
    tg_value x = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), 1.0f);
    for (int32_t l = 0; l < 2; l++)
        x = tg_build_layer_end(b, toy_layer(&t, b, l, tg_build_layer_begin(b, l, x)));
    tg_build_output(b, toy_norm(b, x, TG_W_OUT_NORM), TG_W_HEAD, 1, 0);
    assert_int_not_equal(tg_build_finish(b, &g, &e), TG_OK);
    assert_null(g);
    assert_string_equal(e.msg, message);
    assert_int_equal(tg_mem_n_alive(), before);
}

static void a_wrong_width_names_layer_operation_and_weight(void **state)
{
    (void)state;
    assert_refused(TG_W_K, 1, (tg_weight_shape){true, 8, 12},
                   "layer 1: matmul (w=k): the input is 16 wide, but weight 'k' is [8, 12]");
    assert_refused(
        TG_W_FFN_NORM, 0, (tg_weight_shape){true, 15, 1},
        "layer 0: rms_norm (norm=ffn_norm): weight 'ffn_norm' is [15, 1] where 16 numbers "
        "are needed");
    assert_refused(TG_W_DOWN, 1, (tg_weight_shape){false, 0, 0},
                   "layer 1: matmul (w=down): the model has no weight 'down'");
    assert_refused(TG_W_UP, 0, (tg_weight_shape){true, 25, 16},
                   "layer 0: glu: the inputs are 24 and 25 wide");
    assert_refused(
        TG_W_ROPE_0, 0, (tg_weight_shape){true, 130, 6},
        "layer 0: rope (rope=rope_0): the input is 8 wide, but weight 'rope_0' is [130, 6]");
    assert_refused(TG_W_HEAD, 0, (tg_weight_shape){true, 40, 8},
                   "matmul (w=head): the input is 16 wide, but weight 'head' is [40, 8]");
}

static void the_first_mistake_of_a_builder_is_the_one_reported(void **state)
{
    (void)state;
    toy t = {.n_layers = 2};
    tg_err e = {0};
    tg_graph *g;
    tg_build *b;
    toy_shapes(&t);
    assert_int_equal(tg_build_new(&b, t.shapes, 2, &e), TG_OK);
    tg_value x = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), 1.0f);
    tg_build_layer_begin(b, 1, x);
    tg_build_fail(b, "something else");
    tg_build_output(b, x, TG_W_HEAD, 1, 0);
    assert_int_equal(tg_build_finish(b, &g, &e), TG_E_CORRUPT);
    assert_string_equal(e.msg, "layers must be begun and ended one by one, in order");
}

static void a_layer_cannot_read_a_value_of_another_layer(void **state)
{
    (void)state;
    toy t = {.n_layers = 2};
    tg_err e = {0};
    tg_graph *g;
    tg_build *b;
    toy_shapes(&t);
    assert_int_equal(tg_build_new(&b, t.shapes, 2, &e), TG_OK);
    tg_value x0 = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), 1.0f);
    tg_value x = tg_build_layer_begin(b, 0, x0);
    tg_build_add(b, x, x0);
    assert_int_equal(tg_build_finish(b, &g, &e), TG_E_CORRUPT);
    assert_string_equal(e.msg, "an operation reads a value of another layer or block");
}

static void the_check_finds_what_a_pass_broke(void **state)
{
    (void)state;
    toy t = {.n_layers = 2};
    tg_err e = {0};
    tg_graph *g = build(&t);
    tg_node *n = &g->bodies[0].nodes[1];
    int32_t was = n->in[0];
    n->in[0] = g->head.out; /* a value of the head, read in a body */
    assert_int_equal(tg_graph_check(g, &e), TG_E_CORRUPT);
    assert_string_equal(e.msg, "block 1: node 1, matmul: input 0 is not defined before");
    n->in[0] = was;
    g->values[n->out].width++;
    e = (tg_err){0};
    assert_int_equal(tg_graph_check(g, &e), TG_E_CORRUPT);
    g->values[n->out].width--;
    assert_int_equal(tg_graph_check(g, NULL), TG_OK);
    tg_graph_free(g);
}

static void every_refused_allocation_ends_a_build_without_a_leak(void **state)
{
    (void)state;
    int64_t before = tg_mem_n_alive();
    for (int64_t n = 0;; n++) {
        toy t = {.n_layers = 6, .is_gemma = true};
        tg_err e = {0};
        tg_graph *g;
        tg_mem_fail_after(n);
        tg_status s = toy_build(&t, &g, &e);
        tg_mem_fail_after(-1);
        if (s == TG_OK) {
            assert_true(n > 2); /* some were refused before */
            tg_graph_free(g);
            break;
        }
        assert_int_equal(s, TG_E_NOMEM);
        assert_int_equal(tg_mem_n_alive(), before);
    }
    assert_int_equal(tg_mem_n_alive(), before);
}

static void floats_print_as_the_shortest_decimal_that_reads_back(void **state)
{
    (void)state;
    const struct {
        float f;
        const char *text;
    } cases[] = {{1e-5f, "1e-05"}, {0.25f, "0.25"},  {0.1f, "0.1"},
                 {1.0f, "1"},      {1e30f, "1e+30"}, {0.0625f, "0.0625"}};
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        tg_buf b = {0};
        tg_float_print(cases[i].f, &b);
        assert_string_equal(tg_buf_cstr(&b), cases[i].text);
        tg_buf_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_two_layer_model_prints_as_its_paper_says),
        cmocka_unit_test(equal_layers_share_one_body_and_others_do_not),
        cmocka_unit_test(values_of_forgotten_bodies_leave_no_trace),
        cmocka_unit_test(a_layer_that_lacks_an_optional_weight_has_a_body_of_its_own),
        cmocka_unit_test(a_wrong_width_names_layer_operation_and_weight),
        cmocka_unit_test(the_first_mistake_of_a_builder_is_the_one_reported),
        cmocka_unit_test(a_layer_cannot_read_a_value_of_another_layer),
        cmocka_unit_test(the_check_finds_what_a_pass_broke),
        cmocka_unit_test(every_refused_allocation_ends_a_build_without_a_leak),
        cmocka_unit_test(floats_print_as_the_shortest_decimal_that_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
