/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/ir/golden.h"
#include "unit/model/changed.h"

#include <math.h>

/* The numbers are those of tests/tiny's config.json files, which tools/models/mktiny describes. */
static void sizes_are_read_from_both_kinds_of_files(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-bf16", "llama-bf16/model.gguf"};
    for (size_t i = 0; i < 2; i++) {
        opened o = open_tiny(names[i]);
        assert_string_equal(tg_loaded_checkpoint_arch(o.b)->name, "llama");
        assert_int_equal(o.h->n_layers, 2);
        assert_int_equal(o.h->width, 64);
        assert_int_equal(o.h->n_heads, 4);
        assert_int_equal(o.h->n_kv_heads, 2);
        assert_int_equal(o.h->head_dim, 16);
        assert_int_equal(o.h->ffn, 64);
        assert_int_equal(o.h->n_vocab, 288);
        assert_int_equal(o.h->n_embed_rows, 288);
        assert_int_equal(o.h->max_positions, 256);
        assert_int_equal(o.h->position_limit, 256);
        assert_int_equal(o.h->act, 0);
        assert_int_equal(o.h->window, 0);
        assert_true(o.h->norm_eps == 1e-5f);
        assert_true(o.h->embed_scale == 1 && o.h->attn_scale == 0.25f);
        assert_true(o.h->is_tied);
        assert_int_equal(o.h->ropes[0].kind, TG_ROPE_PLAIN);
        assert_int_equal(o.h->ropes[0].rotary_dim, 16);
        assert_true(o.h->ropes[0].theta == 10000);
        assert_int_equal(o.h->ropes[1].rotary_dim, 0);
        assert_string_equal(test_log, "");
        close_opened(&o);
    }
}

static void an_explicit_head_size_wins(void **state)
{
    (void)state;
    opened o = open_tiny("llama-headdim24"); /* 32 / 4 would be 8 */
    assert_int_equal(o.h->head_dim, 24);
    assert_true(fabsf(o.h->attn_scale - 0.20412415f) < 1e-7f);
    close_opened(&o);
    o = open_changed("llama-headdim8", "{\"head_dim\": null}"); /* null is absent */
    assert_int_equal(o.h->head_dim, 8);
    close_opened(&o);
    check_refused(
        open_changed("llama-headdim8", "{\"head_dim\": \"(absent)\", \"hidden_size\": 33}"),
        TG_E_CORRUPT, WORDS("config.json", "33", "4 heads", "head_dim"));
    check_refused(open_changed("llama-headdim8", "{\"head_dim\": 12}"), TG_E_UNSUPPORTED,
                  WORDS("config.json", "12", "multiple of 8"));
}

static void key_heads_must_divide_the_heads(void **state)
{
    (void)state;
    check_refused(open_changed("llama-mqa", "{\"num_key_value_heads\": 3}"), TG_E_UNSUPPORTED,
                  WORDS("config.json", "4 attention heads", "3 key/value heads"));
    opened o = open_changed("llama-headdim8", "{\"num_key_value_heads\": \"(absent)\"}");
    assert_int_equal(o.h->n_kv_heads, 4);
    close_opened(&o);
}

static void old_and_new_rope_keys_say_the_same(void **state)
{
    (void)state;
    static const char *const changes[] = {
        /* the same model in the layouts of transformers 5 and 4, and with the oldest spelling */
        "{}",
        "{\"rope_parameters\": \"(absent)\", \"rope_theta\": 10000.0, \"rope_scaling\": "
        "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}}",
        "{\"rope_parameters\": \"(absent)\", \"rope_theta\": 10000.0, \"rope_scaling\": "
        "{\"type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0}, \"original_max_position_embeddings\": 64}",
    };
    float first[8], freqs[8];
    for (size_t i = 0; i < TG_COUNT(changes); i++) {
        opened o = open_changed("llama-rope-llama3", changes[i]);
        if (o.status != TG_OK) fail_msg("%s", o.e.msg);
        assert_string_equal(test_log, "");
        tg_rope_freqs(&o.h->ropes[0], 256, i ? freqs : first);
        if (i) assert_memory_equal(first, freqs, sizeof freqs);
        close_opened(&o);
    }
}

/* C30: RotaryEmbeddingConfigMixin.standardize_rope_params sets only what rope_parameters lacks. */
static void two_thetas_are_said_and_the_inner_one_is_used(void **state)
{
    (void)state;
    opened o = open_changed("llama-mqa", "{\"rope_theta\": 20000.0, \"rope_parameters\": "
                                         "{\"rope_type\": \"default\", \"rope_theta\": 5000.0}}");
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_true(o.h->ropes[0].theta == 5000);
    assert_non_null(strstr(test_log, "rope_theta is 20000 and rope_parameters.rope_theta 5000"));
    close_opened(&o);
    o = open_changed("llama-mqa", "{\"rope_theta\": 5000.0, \"rope_parameters\": "
                                  "{\"rope_type\": \"default\", \"rope_theta\": 5000.0}}");
    assert_string_equal(test_log, "");
    close_opened(&o);
    o = open_changed("llama-mqa", "{\"rope_theta\": 20000.0, \"rope_parameters\": null}");
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_true(o.h->ropes[0].theta == 20000);
    close_opened(&o);
}

static void a_gguf_file_gives_the_same_frequencies(void **state)
{
    (void)state;
    opened hf = open_tiny("llama-rope-llama3"), gguf = open_tiny("llama-rope-llama3/model.gguf");
    float a[8], b[8];
    tg_rope_freqs(&hf.h->ropes[0], 256, a);
    tg_rope_freqs(&gguf.h->ropes[0], 256, b);
    assert_int_equal(gguf.h->ropes[0].kind, TG_ROPE_PLAIN);
    assert_non_null(gguf.h->ropes[0].freqs);
    for (int i = 0; i < 8; i++) /* divided instead of blended: a rounding apart */
        assert_true(fabsf(a[i] - b[i]) <= a[i] * 0x1p-22f);
    close_opened(&gguf);
    close_opened(&hf);
}

static void dynamic_scaling_may_go_beyond_the_training_length(void **state)
{
    (void)state;
    opened o = open_tiny("llama-rope-dynamic");
    assert_int_equal(o.h->max_positions, 256);
    assert_int_equal(o.h->position_limit, 512); /* factor 2 */
    close_opened(&o);
}

static void a_theta_that_is_not_there_is_the_familys_default(void **state)
{
    (void)state;
    opened o = open_changed("llama-mqa", "{\"rope_parameters\": \"(absent)\"}");
    assert_true(o.h->ropes[0].theta == 10000);
    close_opened(&o);
}

/* ---- windows */

static void mistral_sees_a_window_in_every_layer(void **state)
{
    (void)state;
    opened o = open_tiny("mistral-window");
    assert_int_equal(o.h->window, 16);
    assert_true(o.h->is_sliding[0] && o.h->is_sliding[1]);
    close_opened(&o);
}

static void the_windows_flags_are_obeyed(void **state)
{
    (void)state;
    opened o = open_changed("mistral-window", "{\"use_sliding_window\": false}");
    assert_false(o.h->is_sliding[0] || o.h->is_sliding[1]);
    close_opened(&o);
    o = open_changed("mistral-window", "{\"sliding_window\": null}");
    assert_false(o.h->is_sliding[0] || o.h->is_sliding[1]);
    close_opened(&o);
    o = open_changed("mistral-window", "{\"sliding_window\": \"(absent)\"}");
    assert_int_equal(o.h->window, 4096); /* MistralConfig's default */
    close_opened(&o);
    o = open_changed("mistral-window",
                     "{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}");
    assert_true(!o.h->is_sliding[0] && o.h->is_sliding[1]);
    close_opened(&o);
    check_refused(open_changed("mistral-window", "{\"layer_types\": [\"full_attention\"]}"),
                  TG_E_CORRUPT, WORDS("layer_types", "1 entries for 2 layers"));
    check_refused(open_changed("mistral-window", "{\"layer_types\": [\"a\", \"b\"]}"),
                  TG_E_UNSUPPORTED, WORDS("layer_types[0]", "'a'"));
}

/* ---- what is refused and what is only said */

static void keys_that_change_the_arithmetic_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"{\"quantization_config\": {\"quant_method\": \"hqq\"}}", "quant_method is 'hqq'"},
        {"{\"rope_interleaved\": true}", "'rope_interleaved'"},
        {"{\"embedding_multiplier\": 12.0}", "'embedding_multiplier'"},
        {"{\"residual_multiplier\": 0.22}", "'residual_multiplier'"},
        {"{\"logits_scaling\": 8.0}", "'logits_scaling'"},
        {"{\"attention_multiplier\": 0.015625}", "'attention_multiplier'"},
        {"{\"attention_multiplier\": 0.015625, \"rope_interleaved\": true}",
         "keys 'rope_interleaved' (rotation goes by halves), 'attention_multiplier' (scores are "
         "scaled by the head size) change the model's arithmetic"},
        {"{\"attention_multiplier\": 2, \"rope_interleaved\": true, \"embedding_multiplier\": 2, "
         "\"residual_multiplier\": 2, \"logits_scaling\": 2}",
         "are not scaled) and 2 more change the model's arithmetic"},
        {"{\"final_logit_softcapping\": 30.0}", "'final_logit_softcapping'"},
        {"{\"use_qk_norm\": true}", "'use_qk_norm'"},
        {"{\"num_local_experts\": 8}", "'num_local_experts'"},
        {"{\"hidden_act\": \"relu\"}", "'relu'"},
    };
    for (size_t i = 0; i < TG_COUNT(changes); i++)
        check_refused(open_changed("llama-mqa", changes[i][0]), TG_E_UNSUPPORTED,
                      WORDS("config.json", changes[i][1]));
}

static void neutral_values_of_those_keys_are_fine(void **state)
{
    (void)state;
    opened o =
        open_changed("llama-mqa", "{\"quantization_config\": null, \"rope_interleaved\": false, "
                                  "\"embedding_multiplier\": 1, \"logits_scaling\": 1.0, "
                                  "\"num_local_experts\": 0, \"final_logit_softcapping\": null}");
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_string_equal(test_log, "");
    close_opened(&o);
}

static void unknown_keys_are_named_once_in_a_warning(void **state)
{
    (void)state;
    opened o = open_changed("llama-mqa", "{\"sliding_window\": 7, \"num_hiden_layers\": 2, "
                                         "\"rope_parameters\": {\"rope_theta\": 10000.0, "
                                         "\"rope_type\": \"default\", \"fator\": 3}}");
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    const char *at = strstr(test_log, "sliding_window");
    assert_non_null(at);
    assert_null(strstr(at + 1, "sliding_window"));
    assert_non_null(strstr(test_log, "num_hiden_layers"));
    assert_non_null(strstr(test_log, "rope_parameters.fator"));
    assert_null(strstr(test_log, "rope_theta"));
    assert_int_equal(o.h->window, 0); /* a Llama has none, in transformers too */
    close_opened(&o);
}

static void missing_and_mistyped_keys_are_named(void **state)
{
    (void)state;
    check_refused(open_changed("llama-mqa", "{\"num_hidden_layers\": \"(absent)\"}"), TG_E_CORRUPT,
                  WORDS("config.json", "num_hidden_layers"));
    check_refused(open_changed("llama-mqa", "{\"hidden_size\": \"64\"}"), TG_E_CORRUPT,
                  WORDS("config.json", "hidden_size", "string"));
    check_refused(open_changed("llama-mqa", "{\"num_hidden_layers\": 0}"), TG_E_CORRUPT,
                  WORDS("config.json", "num_hidden_layers", "0"));
    check_refused(open_changed("llama-mqa", "{\"rms_norm_eps\": 0}"), TG_E_CORRUPT,
                  WORDS("config.json", "rms_norm_eps"));
    check_refused(open_changed("llama-mqa", "{\"model_type\": \"llamma\"}"), TG_E_UNSUPPORTED,
                  WORDS("config.json", "llamma", "llama, mistral"));
}

/* transformers makes the biases that these keys promise, and leaves out those that they deny. */
static void biases_are_there_where_the_config_says_so(void **state)
{
    (void)state;
    check_refused(open_changed("llama-mqa", "{\"attention_bias\": true}"), TG_E_CORRUPT,
                  WORDS("8 tensors are missing", "model.layers.0.self_attn.q_proj.bias"));
    check_refused(open_changed("llama-mqa", "{\"mlp_bias\": true}"), TG_E_CORRUPT,
                  WORDS("6 tensors are missing", "model.layers.0.mlp.gate_proj.bias"));
    check_refused(open_changed("llama-bias", "{\"attention_bias\": false}"), TG_E_CORRUPT,
                  WORDS("config.json", "attention_bias is false",
                        "'model.layers.0.self_attn.q_proj.bias'", "set the key to true"));
    check_refused(open_changed("llama-bias", "{\"mlp_bias\": \"(absent)\"}"), TG_E_CORRUPT,
                  WORDS("config.json", "mlp_bias is absent, which means false",
                        "'model.layers.0.mlp.gate_proj.bias'"));
}

/* ---- GGUF keys */

/* A GGUF file of keys alone: enough to be refused by. */
static opened open_keys(void (*add)(tg_buf *), uint64_t n_added)
{
    tg_buf b = {0};
    char dir[64];
    strcpy(dir, make_folder());
    put_header(&b, 3, 0, 8 + n_added);
    put_kv_str(&b, "general.architecture", "llama");
    put_kv_u32(&b, "llama.block_count", 2);
    put_kv_u32(&b, "llama.context_length", 256);
    put_kv_u32(&b, "llama.embedding_length", 64);
    put_kv_u32(&b, "llama.feed_forward_length", 64);
    put_kv_u32(&b, "llama.attention.head_count", 4);
    put_kv_u32(&b, "llama.attention.head_count_kv", 2);
    put_key(&b, "llama.attention.layer_norm_rms_epsilon", KV_F32);
    float eps = 1e-5f;
    put(&b, &eps, 4);
    add(&b);
    put_padding(&b, 32);
    opened o = open_path(save_buf(dir, "keys.gguf", &b));
    remove_folder(dir);
    return o;
}

static void put_kv_f32(tg_buf *b, const char *key, float v)
{
    put_key(b, key, KV_F32);
    put(b, &v, 4);
}

static void add_nothing(tg_buf *b)
{
    (void)b;
}

static void add_experts(tg_buf *b)
{
    put_kv_u32(b, "llama.expert_count", 8);
}

static void add_long_rotation(tg_buf *b)
{
    put_kv_u32(b, "llama.rope.dimension_count", 32);
}

static void add_unknown_scaling(tg_buf *b)
{
    put_kv_str(b, "llama.rope.scaling.type", "spiral");
}

static void add_longrope(tg_buf *b)
{
    put_kv_str(b, "llama.rope.scaling.type", "longrope");
}

static void add_value_length(tg_buf *b)
{
    put_kv_u32(b, "llama.attention.value_length", 32);
}

static void add_logit_scale(tg_buf *b)
{
    put_kv_f32(b, "llama.logit_scale", 0.5f);
}

static void add_ext_factor(tg_buf *b)
{
    put_kv_str(b, "llama.rope.scaling.type", "yarn");
    put_kv_f32(b, "llama.rope.scaling.factor", 4);
    put_kv_f32(b, "llama.rope.scaling.yarn_ext_factor", 0.5f);
}

static void add_yarn_alone(tg_buf *b)
{
    put_kv_str(b, "llama.rope.scaling.type", "yarn");
}

static void add_linear_by_0(tg_buf *b)
{
    put_kv_str(b, "llama.rope.scaling.type", "linear");
    put_kv_f32(b, "llama.rope.scaling.factor", 0);
}

static void add_shorter_original(tg_buf *b)
{
    put_kv_u32(b, "llama.rope.scaling.original_context_length", 64);
}

static void add_infinite_factor(tg_buf *b)
{
    put_kv_f32(b, "llama.rope.scale_linear", 1e-40f);
}

static void add_sliding_base(tg_buf *b)
{
    put_kv_f32(b, "llama.rope.freq_base_swa", 5000);
}

/* llama.cpp runs the first three as plain rotation; transformers refuses a missing factor. */
static void a_gguf_file_must_say_how_positions_are_stretched(void **state)
{
    (void)state;
    check_refused(open_keys(add_yarn_alone, 1), TG_E_CORRUPT,
                  WORDS("keys.gguf", "type is yarn", "rope.scaling.factor is missing"));
    check_refused(open_keys(add_linear_by_0, 2), TG_E_CORRUPT,
                  WORDS("keys.gguf", "type is linear", "rope.scaling.factor is 0"));
    check_refused(open_keys(add_shorter_original, 1), TG_E_CORRUPT,
                  WORDS("original_context_length is 64", "context_length 256"));
    check_refused(open_keys(add_infinite_factor, 1), TG_E_CORRUPT,
                  WORDS("factor 9.99995e-41", "frequency of inf"));
}

static void gguf_keys_that_are_not_supported_are_named(void **state)
{
    (void)state;
    check_refused(open_keys(add_experts, 1), TG_E_UNSUPPORTED, WORDS("keys.gguf", "expert_count"));
    check_refused(open_keys(add_long_rotation, 1), TG_E_CORRUPT,
                  WORDS("keys.gguf", "rope.dimension_count is 32", "16"));
    check_refused(open_keys(add_unknown_scaling, 1), TG_E_UNSUPPORTED,
                  WORDS("keys.gguf", "spiral", "longrope"));
    check_refused(open_keys(add_longrope, 1), TG_E_CORRUPT,
                  WORDS("keys.gguf", "rope_factors_short.weight"));
    check_refused(open_keys(add_value_length, 1), TG_E_UNSUPPORTED, WORDS("16", "32"));
    check_refused(open_keys(add_logit_scale, 1), TG_E_UNSUPPORTED, WORDS("logit_scale"));
    check_refused(open_keys(add_ext_factor, 3), TG_E_UNSUPPORTED, WORDS("ext_factor 0.5"));
    check_refused(open_keys(add_sliding_base, 1), TG_E_UNSUPPORTED, WORDS("rope.freq_base_swa"));
    /* without any of them it is only the tensors that are missing */
    check_refused(open_keys(add_nothing, 0), TG_E_CORRUPT,
                  WORDS("keys.gguf", "20 tensors are missing", "token_embd.weight"));
}

/* ---- real model, and graphs */

static void smollm2_is_understood(void **state)
{
    (void)state;
    const char *path = find_model("smollm2-135m-instruct.gguf");
    if (!path) skip();
    opened o = open_path(path);
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_int_equal(o.h->n_layers, 30);
    assert_int_equal(o.h->width, 576);
    assert_int_equal(o.h->n_heads, 9);
    assert_int_equal(o.h->n_kv_heads, 3);
    assert_int_equal(o.h->head_dim, 64);
    assert_int_equal(o.h->ffn, 1536);
    assert_int_equal(o.h->n_vocab, 49152);
    assert_int_equal(o.h->max_positions, 8192);
    assert_true(o.h->ropes[0].theta == 100000 && o.h->is_tied && o.h->norm_eps == 1e-5f);
    assert_int_equal(tg_loaded_checkpoint_find_weight(o.b, TG_W_Q, 29)->order.fix,
                     TG_WEIGHT_FIX_UNPERMUTE_Q);
    assert_string_equal(test_log, "");
    close_opened(&o);
}

static void graphs_are_those_of_the_paper(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama-mqa",
        "llama-gqa2-untied",
        "llama-mha-old",
        "llama-headdim24",
        "llama-headdim8",
        "llama-bias",
        "llama-bf16",
        "llama-f16-old",
        "llama-sharded",
        "llama-rope-dynamic",
        "llama-rope-linear-old",
        "llama-rope-llama3",
        "llama-rope-llama3-old",
        "llama-rope-longrope",
        "llama-rope-yarn",
        "mistral-window",
    };
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
    static const char *const names[] = {"llama-bf16", "llama-mha-old", "llama-rope-llama3"};
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        char path[128];
        tg_buf a = {0}, b = {0};
        snprintf(path, sizeof path, "%s/model.gguf", names[i]);
        opened hf = open_tiny(names[i]), gguf = open_tiny(path);
        print_graph(&hf, 256, &a);
        print_graph(&gguf, 256, &b);
        assert_string_equal(tg_buf_cstr(&a), tg_buf_cstr(&b));
        tg_buf_deinit(&a);
        tg_buf_deinit(&b);
        close_opened(&gguf);
        close_opened(&hf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_from_both_kinds_of_files),
        cmocka_unit_test(an_explicit_head_size_wins),
        cmocka_unit_test(key_heads_must_divide_the_heads),
        cmocka_unit_test(old_and_new_rope_keys_say_the_same),
        cmocka_unit_test(two_thetas_are_said_and_the_inner_one_is_used),
        cmocka_unit_test(a_gguf_file_gives_the_same_frequencies),
        cmocka_unit_test(dynamic_scaling_may_go_beyond_the_training_length),
        cmocka_unit_test(a_theta_that_is_not_there_is_the_familys_default),
        cmocka_unit_test(mistral_sees_a_window_in_every_layer),
        cmocka_unit_test(the_windows_flags_are_obeyed),
        cmocka_unit_test(keys_that_change_the_arithmetic_are_refused_by_name),
        cmocka_unit_test(neutral_values_of_those_keys_are_fine),
        cmocka_unit_test(unknown_keys_are_named_once_in_a_warning),
        cmocka_unit_test(missing_and_mistyped_keys_are_named),
        cmocka_unit_test(biases_are_there_where_the_config_says_so),
        cmocka_unit_test(gguf_keys_that_are_not_supported_are_named),
        cmocka_unit_test(a_gguf_file_must_say_how_positions_are_stretched),
        cmocka_unit_test(smollm2_is_understood),
        cmocka_unit_test(graphs_are_those_of_the_paper),
        cmocka_unit_test(both_kinds_of_files_give_one_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
