/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/ir/golden.h"
#include "unit/model/changed.h"

#include <math.h>

static void sizes_are_read_from_both_kinds_of_files(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma3-pattern6", "gemma3-pattern6/model.gguf"};
    for (size_t i = 0; i < 2; i++) {
        opened o = open_tiny(names[i]);
        assert_string_equal(tg_loaded_checkpoint_arch(o.b)->name, "gemma3");
        assert_int_equal(o.h->n_layers, 7);
        assert_int_equal(o.h->width, 32);
        assert_int_equal(o.h->n_heads, 2);
        assert_int_equal(o.h->n_kv_heads, 1);
        assert_int_equal(o.h->head_dim, 16);
        assert_int_equal(o.h->ffn, 32);
        assert_int_equal(o.h->n_vocab, 372);
        assert_int_equal(o.h->act, 1);
        assert_int_equal(o.h->window, 16);
        assert_true(o.h->norm_eps == 1e-6f && o.h->attn_scale == 0.25f && o.h->is_tied);
        for (int l = 0; l < 7; l++)
            assert_int_equal(o.h->is_sliding[l], l != 5);
        assert_true(o.h->ropes[0].theta == 1e6 && o.h->ropes[1].theta == 1e4);
        assert_string_equal(test_log, "");
        close_opened(&o);
    }
}

/* sqrt(D) as float32 has it; the values of transformers in float32, and what it never may be: those
 * of bfloat16 (25.25 for 640). */
static void the_embedding_scale_is_rounded_to_float32(void **state)
{
    (void)state;
    opened o = open_tiny("gemma3"); /* D = 32 */
    assert_true(o.h->embed_scale == 5.656854152679443359375f);
    close_opened(&o);
    const char *path = find_model("gemma3-270m.gguf");
    if (!path) return;
    o = open_path(path); /* D = 640 */
    assert_true(o.h->embed_scale == 25.298221588134765625f);
    close_opened(&o);
}

static void the_score_scale_comes_from_its_own_scalar(void **state)
{
    (void)state;
    opened o = open_tiny("gemma3"); /* 24, and heads of 16 */
    assert_true(fabsf(o.h->attn_scale - 0.20412415f) < 1e-7f);
    close_opened(&o);
    check_refused(open_changed("gemma3", "{\"query_pre_attn_scalar\": 0}"), TG_E_CORRUPT,
                  WORDS("query_pre_attn_scalar is 0"));
}

static void old_keys_scale_the_global_layers_alone(void **state)
{
    (void)state;
    opened o = open_tiny("gemma3-old");
    assert_int_equal(o.h->ropes[0].kind, TG_ROPE_LINEAR);
    assert_true(o.h->ropes[0].factor == 8 && o.h->ropes[0].theta == 1e6);
    assert_int_equal(o.h->ropes[1].kind, TG_ROPE_PLAIN);
    assert_true(o.h->ropes[1].theta == 1e4);
    for (int l = 0; l < 4; l++) /* sliding_window_pattern 2, no layer_types */
        assert_int_equal(o.h->is_sliding[l], l % 2 == 0);
    close_opened(&o);
    o = open_changed("gemma3-old", "{\"rope_theta\": \"(absent)\", "
                                   "\"rope_local_base_freq\": \"(absent)\", "
                                   "\"sliding_window_pattern\": \"(absent)\"}");
    assert_true(o.h->ropes[0].theta == 1e6 && o.h->ropes[1].theta == 1e4);
    assert_true(o.h->is_sliding[0] && o.h->is_sliding[3]); /* five to one */
    close_opened(&o);
}

static void a_rotary_table_for_all_layers_is_refused(void **state)
{
    (void)state;
    check_refused(open_changed("gemma3", "{\"rope_parameters\": {\"rope_theta\": 1e6, "
                                         "\"rope_type\": \"default\"}}"),
                  TG_E_UNSUPPORTED, WORDS("rope_parameters.rope_theta"));
    check_refused(
        open_changed("gemma3", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}}"),
        TG_E_CORRUPT, WORDS("rope_scaling", "rope_parameters.full_attention"));
}

static void softcaps_are_refused_by_name(void **state)
{
    (void)state;
    check_refused(open_changed("gemma3", "{\"attn_logit_softcapping\": 50.0}"), TG_E_UNSUPPORTED,
                  WORDS("'attn_logit_softcapping'"));
    check_refused(open_changed("gemma3", "{\"final_logit_softcapping\": 30.0}"), TG_E_UNSUPPORTED,
                  WORDS("'final_logit_softcapping'"));
    check_refused(open_changed("gemma3", "{\"use_bidirectional_attention\": true}"),
                  TG_E_UNSUPPORTED, WORDS("'use_bidirectional_attention'"));
}

static void layer_types_win_over_a_pattern(void **state)
{
    (void)state;
    opened o = open_changed("gemma3", "{\"sliding_window_pattern\": 4, \"layer_types\": "
                                      "[\"full_attention\", \"full_attention\", "
                                      "\"sliding_attention\", \"full_attention\"]}");
    for (int l = 0; l < 4; l++)
        assert_int_equal(o.h->is_sliding[l], l == 2);
    close_opened(&o);
}

static void norms_of_folders_need_one_added_and_those_of_gguf_do_not(void **state)
{
    (void)state;
    static const tg_weight_role norms[] = {TG_W_OUT_NORM, TG_W_ATTN_NORM,     TG_W_ATTN_POST_NORM,
                                           TG_W_FFN_NORM, TG_W_FFN_POST_NORM, TG_W_Q_NORM,
                                           TG_W_K_NORM};
    opened hf = open_tiny("gemma3-pattern6"), gguf = open_tiny("gemma3-pattern6/model.gguf");
    for (size_t i = 0; i < TG_COUNT(norms); i++) {
        assert_int_equal(tg_loaded_checkpoint_find_weight(hf.b, norms[i], 0)->order.fix,
                         TG_WEIGHT_FIX_ADD_ONE);
        assert_int_equal(tg_loaded_checkpoint_find_weight(gguf.b, norms[i], 0)->order.fix,
                         TG_WEIGHT_FIX_NONE);
    }
    assert_int_equal(tg_loaded_checkpoint_find_weight(gguf.b, TG_W_Q, 0)->order.fix,
                     TG_WEIGHT_FIX_NONE);
    close_opened(&gguf);
    close_opened(&hf);
}

/* The same text model, alone and inside the multimodal one: nested keys, other names, a tower to
 * ignore. */
static void the_text_model_is_found_inside_the_multimodal_one(void **state)
{
    (void)state;
    tg_buf a = {0}, b = {0};
    opened alone = open_tiny("gemma3"), inside = open_tiny("gemma3-vision");
    print_graph(&alone, 256, &a);
    print_graph(&inside, 256, &b);
    assert_string_equal(tg_buf_cstr(&a), tg_buf_cstr(&b));
    assert_string_equal(test_log, "");
    tg_buf_deinit(&a);
    tg_buf_deinit(&b);
    close_opened(&inside);
    close_opened(&alone);
}

static void gemma_3_270m_is_understood(void **state)
{
    (void)state;
    const char *path = find_model("gemma3-270m.gguf");
    if (!path) skip();
    opened o = open_path(path);
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_int_equal(o.h->n_layers, 18);
    assert_int_equal(o.h->width, 640);
    assert_int_equal(o.h->n_heads, 4);
    assert_int_equal(o.h->n_kv_heads, 1);
    assert_int_equal(o.h->head_dim, 256);
    assert_int_equal(o.h->ffn, 2048);
    assert_int_equal(o.h->n_vocab, 262144);
    assert_int_equal(o.h->max_positions, 32768);
    assert_int_equal(o.h->window, 512);
    assert_true(o.h->attn_scale == 0.0625f && o.h->is_tied);
    for (int l = 0; l < 18; l++) /* the file has no pattern: five to one */
        assert_int_equal(o.h->is_sliding[l], l != 5 && l != 11 && l != 17);
    assert_string_equal(test_log, "");
    close_opened(&o);
}

static void graphs_are_those_of_the_paper(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma3", "gemma3-old", "gemma3-pattern6"};
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        char path[128];
        tg_buf text = {0};
        opened o = open_tiny(names[i]);
        print_graph(&o, 256, &text);
        snprintf(path, sizeof path, "tests/golden/ir/tiny-%s.txt", names[i]);
        assert_golden(path, &text);
        tg_buf_deinit(&text);
        close_opened(&o);
    }
}

static void both_kinds_of_files_give_one_graph(void **state)
{
    (void)state;
    tg_buf a = {0}, b = {0};
    opened hf = open_tiny("gemma3-pattern6"), gguf = open_tiny("gemma3-pattern6/model.gguf");
    print_graph(&hf, 256, &a);
    print_graph(&gguf, 256, &b);
    assert_string_equal(tg_buf_cstr(&a), tg_buf_cstr(&b));
    tg_buf_deinit(&a);
    tg_buf_deinit(&b);
    close_opened(&gguf);
    close_opened(&hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_from_both_kinds_of_files),
        cmocka_unit_test(the_embedding_scale_is_rounded_to_float32),
        cmocka_unit_test(the_score_scale_comes_from_its_own_scalar),
        cmocka_unit_test(old_keys_scale_the_global_layers_alone),
        cmocka_unit_test(a_rotary_table_for_all_layers_is_refused),
        cmocka_unit_test(softcaps_are_refused_by_name),
        cmocka_unit_test(layer_types_win_over_a_pattern),
        cmocka_unit_test(norms_of_folders_need_one_added_and_those_of_gguf_do_not),
        cmocka_unit_test(the_text_model_is_found_inside_the_multimodal_one),
        cmocka_unit_test(gemma_3_270m_is_understood),
        cmocka_unit_test(graphs_are_those_of_the_paper),
        cmocka_unit_test(both_kinds_of_files_give_one_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
