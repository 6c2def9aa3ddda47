/* SPDX-License-Identifier: Apache-2.0
 * How the families of dense models read their keys: those of released files, the defaults of their
 * classes in transformers (5.24), and refusals. Numbers and
 * weights are those of tests/parity/models; logits are compared there. */
#include "unit/model/changed.h"

#define PARITY "parity/models/"

static opened open_ok(const char *variant, const char *change)
{
    opened o = open_changed(variant, change);
    if (o.status != TG_OK) fail_msg("%s: %s", variant, o.e.msg);
    return o;
}

static void keys_of_released_files_are_known(void **state)
{
    (void)state;
    /* Beside the keys of the class: what is in config.json of Qwen2.5-7B, Phi-4-mini, Granite 3.3,
     * SmolLM3-3B, gemma-2-2b, OLMo-2-7B, c4ai-command-r, stablelm-2-1_6b, internlm2_5-7b. */
    static const char *const rows[][2] = {
        {PARITY "qwen2-plain", "{\"use_mrope\": false, \"max_window_layers\": 28}"},
        {PARITY "qwen3-plain", "{\"attention_bias\": false, \"rope_scaling\": null}"},
        {PARITY "phi3-plain", "{\"full_attn_mod\": 1, \"interpolate_factor\": 1, "
                              "\"lm_head_bias\": false, \"mlp_bias\": false, \"auto_map\": {}}"},
        {PARITY "granite-plain", "{\"attention_bias\": false, \"mlp_bias\": false}"},
        {PARITY "smollm3-plain", "{\"max_window_layers\": 28, \"pretraining_tp\": 2, "
                                 "\"no_rope_layer_interval\": 4}"},
        {PARITY "gemma2-plain",
         "{\"hidden_act\": \"gelu_pytorch_tanh\", "
         "\"sliding_window_size\": 16, \"cache_implementation\": \"hybrid\"}"},
        {PARITY "olmo2-plain", "{\"attention_bias\": false}"},
        {PARITY "cohere-plain", "{\"model_max_length\": 131072, \"use_qk_norm\": false}"},
        {PARITY "stablelm-plain", "{\"qk_layernorm\": false, \"hidden_dropout\": 0.0}"},
        {PARITY "internlm2-plain", "{\"bias\": false, \"attn_implementation\": \"eager\"}"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        opened o = open_ok(rows[i][0], rows[i][1]);
        if (test_log[0]) fail_msg("%s: %s", rows[i][0], test_log);
        close_opened(&o);
    }
}

static void unsupported_features_of_a_family_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {PARITY "qwen2-plain", "{\"use_mrope\": true}", "'use_mrope'"},
        {PARITY "phi3-plain", "{\"lm_head_bias\": true}", "'lm_head_bias'"},
        {PARITY "phi3-plain", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}}",
         "rope_scaling of phi3"},
        {PARITY "granite-plain", "{\"num_local_experts\": 8}", "'num_local_experts'"},
        {PARITY "gemma2-plain", "{\"use_bidirectional_attention\": true}",
         "'use_bidirectional_attention'"},
        {PARITY "olmo2-plain", "{\"clip_qkv\": 8.0}", "'clip_qkv'"},
        {PARITY "cohere-plain", "{\"use_qk_norm\": true}", "'use_qk_norm'"},
        {PARITY "stablelm-plain", "{\"qk_layernorm\": true}", "'qk_layernorm'"},
        {PARITY "internlm2-plain", "{\"bias\": true}", "'bias'"},
        {PARITY "llama-plain", "{\"logit_scale\": 0.5}", "'logit_scale'"},
        {PARITY "llama-plain", "{\"use_parallel_residual\": true}", "'use_parallel_residual'"},
        {PARITY "mistral-window",
         "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0, "
         "\"llama_4_scaling_beta\": 0.1}}",
         "'rope_parameters.llama_4_scaling_beta'"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        check_refused(open_changed(rows[i][0], rows[i][1]), TG_E_UNSUPPORTED,
                      WORDS("config.json", rows[i][2]));
}

static void numbers_without_sense_are_refused(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {PARITY "granite-plain", "{\"residual_multiplier\": 0}", "residual_multiplier is 0"},
        {PARITY "granite-plain", "{\"logits_scaling\": -1.0}", "logits_scaling is -1"},
        {PARITY "gemma2-plain", "{\"attn_logit_softcapping\": 0.0}", "attn_logit_softcapping is 0"},
        {PARITY "smollm3-plain", "{\"no_rope_layers\": [1, 0]}", "2 entries for 4 layers"},
        {PARITY "cohere-plain", "{\"layer_norm_eps\": 0}", "layer_norm_eps is 0"},
        {PARITY "qwen2-window", "{\"layer_types\": [\"full_attention\"]}", "1 entries for 2"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        check_refused(open_changed(rows[i][0], rows[i][1]), TG_E_CORRUPT, WORDS(rows[i][2]));
}

static void absent_keys_take_the_defaults_of_the_class(void **state)
{
    (void)state;
    opened o = open_ok(PARITY "granite-plain", "{\"attention_multiplier\": \"(absent)\", "
                                               "\"logits_scaling\": \"(absent)\"}");
    assert_true(o.h->attn_scale == 1 && o.h->logit_scale == 1); /* not 1 / sqrt(head_dim) */
    close_opened(&o);
    o = open_ok(PARITY "cohere-plain", "{\"logit_scale\": \"(absent)\"}");
    assert_true(o.h->logit_scale == 0.0625f && o.h->is_tied);
    close_opened(&o);
    o = open_ok(PARITY "gemma2-plain", "{\"attn_logit_softcapping\": \"(absent)\", "
                                       "\"final_logit_softcapping\": null}");
    assert_true(o.h->attn_softcap == 50 && o.h->logit_softcap == 0);
    close_opened(&o);
    o = open_ok(PARITY "smollm3-plain", "{\"no_rope_layers\": \"(absent)\"}");
    for (int32_t l = 0; l < 4; l++)
        assert_int_equal(o.h->has_no_rope[l], l == 3);
    close_opened(&o);
    o = open_ok(PARITY "stablelm-plain",
                "{\"rope_parameters\": \"(absent)\", \"rope_theta\": 10000}");
    assert_int_equal(o.h->ropes[0].rotary_dim, o.h->head_dim / 4);
    close_opened(&o);
    /* Qwen3Config's head size is 128 whatever the width: the weights do not have it. */
    check_refused(open_changed(PARITY "qwen3-plain", "{\"head_dim\": \"(absent)\"}"), TG_E_CORRUPT,
                  WORDS("q_proj.weight", "[512, 32]"));
}

static void windows_hold_where_the_flags_say(void **state)
{
    (void)state;
    opened o = open_ok(PARITY "qwen2-window", "{\"layer_types\": \"(absent)\"}");
    assert_int_equal(o.h->window, 16);
    assert_true(!o.h->is_sliding[0] && o.h->is_sliding[1]); /* from max_window_layers on */
    close_opened(&o);
    o = open_ok(PARITY "qwen2-window", "{\"use_sliding_window\": false}");
    assert_true(o.h->window == 0 && !o.h->is_sliding[1]);
    close_opened(&o);
    o = open_ok(PARITY "qwen2-window", "{\"use_sliding_window\": \"(absent)\"}");
    assert_int_equal(o.h->window, 0); /* off, unlike Mistral's */
    close_opened(&o);
    o = open_ok(PARITY "mistral3-small", "{}");
    assert_int_equal(o.h->window, 0); /* null inside text_config: not Mistral's default */
    close_opened(&o);
    o = open_ok(PARITY "mistral-window", "{\"sliding_window\": \"(absent)\"}");
    assert_int_equal(o.h->window, 4096);
    close_opened(&o);
    o = open_ok(PARITY "smollm3-window", "{\"layer_types\": \"(absent)\"}");
    assert_true(!o.h->is_sliding[0] && o.h->is_sliding[1]); /* the layer that does not rotate */
    close_opened(&o);
    o = open_ok(PARITY "gemma2-plain", "{\"layer_types\": \"(absent)\"}");
    for (int32_t l = 0; l < 3; l++)
        assert_int_equal(o.h->is_sliding[l], l % 2 == 0);
    close_opened(&o);
    o = open_ok(PARITY "phi3-plain", "{\"sliding_window\": 8}");
    assert_true(o.h->window == 8 && o.h->is_sliding[0] && o.h->is_sliding[1]);
    close_opened(&o);
}

/* Qwen2.5's README: YaRN is added to a config whose max_position_embeddings stays as it was. */
static void yarn_reaches_beyond_the_original_length(void **state)
{
    (void)state;
    opened o = open_ok(PARITY "qwen2-plain",
                       "{\"max_position_embeddings\": 32768, \"rope_parameters\": \"(absent)\", "
                       "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"type\": \"yarn\", "
                       "\"factor\": 4.0, \"original_max_position_embeddings\": 32768}}");
    assert_int_equal(o.h->position_limit, 131072);
    assert_int_equal(o.h->max_positions, 32768);
    close_opened(&o);
}

static void old_names_of_longrope_are_understood(void **state)
{
    (void)state;
    opened o = open_ok(PARITY "phi3-short",
                       "{\"rope_parameters\": \"(absent)\", \"rope_theta\": 10000.0, "
                       "\"rope_scaling\": {\"type\": \"su\", "
                       "\"short_factor\": [1, 1, 1, 1], \"long_factor\": [2, 2, 2, 2]}}");
    assert_int_equal(o.h->ropes[0].kind, TG_ROPE_LONGROPE);
    assert_int_equal(o.h->ropes[0].original_max_positions, 128);
    close_opened(&o);
}

/* What Phi3Config makes of each (transformers 5.24: its rope_parameters after construction). */
static void phi3s_original_length_is_the_one_beside_the_rope_settings(void **state)
{
    (void)state;
    static const struct {
        const char *beside, *inside;
        int32_t want;
        const char *warning;
    } rows[] = {
        {"\"(absent)\"", "", 4096, ""},
        {"\"(absent)\"", ", \"original_max_position_embeddings\": 48", 4096,
         "rope_parameters.original_max_position_embeddings is 48 and "
         "original_max_position_embeddings 4096 where the key is absent"},
        {"64", "", 64, ""},
        {"64", ", \"original_max_position_embeddings\": 48", 64,
         "rope_parameters.original_max_position_embeddings is 48 and "
         "original_max_position_embeddings 64; the latter is used"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char change[400];
        snprintf(change, sizeof change,
                 "{\"max_position_embeddings\": 8192, \"original_max_position_embeddings\": %s, "
                 "\"rope_parameters\": {\"rope_type\": \"longrope\", \"rope_theta\": 10000.0, "
                 "\"short_factor\": [1, 1, 1, 1], \"long_factor\": [2, 2, 2, 2]%s}}",
                 rows[i].beside, rows[i].inside);
        opened o = open_ok(PARITY "phi3-short", change);
        assert_int_equal(o.h->ropes[0].original_max_positions, rows[i].want);
        if (!strstr(test_log, rows[i].warning) || (!rows[i].warning[0] && test_log[0]))
            fail_msg("row %zu warns '%s'", i, test_log);
        close_opened(&o);
    }
}

static void a_fused_tensor_of_another_size_is_named(void **state)
{
    (void)state;
    /* 4 heads and 2 KV heads of 8 make 64 rows; with 4 KV heads it would be 96. */
    check_refused(open_changed(PARITY "phi3-plain", "{\"num_key_value_heads\": 4}"), TG_E_CORRUPT,
                  WORDS("qkv_proj.weight", "[64, 32]", "[96, 32]"));
    check_refused(open_changed(PARITY "phi3-plain", "{\"intermediate_size\": 40}"), TG_E_CORRUPT,
                  WORDS("gate_up_proj.weight", "[96, 32]", "[80, 32]"));
}

/* transformers' classes always make these, whatever the config says. */
static void weights_that_a_family_always_has_are_required(void **state)
{
    (void)state;
    static const char *const hf[][4] = {
        {PARITY "qwen2-plain", "_proj.bias\"", "_proj.bixs\"", "6 tensors are missing"},
        {PARITY "stablelm-plain", "input_layernorm.bias", "input_layernorm.bixs",
         "2 tensors are missing"},
        {PARITY "stablelm-plain", "post_attention_layernorm.", "post_attention_layerxxrm.",
         "4 tensors are missing"},
        {PARITY "stablelm-plain", "model.norm.bias", "model.norm.bixs", "1 tensor is missing"},
        {PARITY "qwen3-plain", "q_norm.weight", "x_norm.weight", "2 tensors are missing"},
        {PARITY "olmo2-plain", "k_norm.weight", "x_norm.weight", "2 tensors are missing"},
        {PARITY "gemma3-plain", "q_norm.weight", "x_norm.weight", "2 tensors are missing"},
    };
    for (size_t i = 0; i < TG_COUNT(hf); i++)
        check_refused(open_patched(hf[i][0], "{}", hf[i][1], hf[i][2]), TG_E_CORRUPT,
                      WORDS(hf[i][3]));
    static const char *const gguf[][4] = {
        {PARITY "qwen2-plain", ".bias", ".bixs", "6 tensors are missing"},
        {PARITY "stablelm-plain", "attn_norm.bias", "attn_norm.bixs", "2 tensors are missing"},
        {PARITY "stablelm-plain", "ffn_norm.", "ffn_xorm.", "4 tensors are missing"},
        {PARITY "stablelm-plain", "output_norm.bias", "output_norm.bixs", "1 tensor is missing"},
    };
    for (size_t i = 0; i < TG_COUNT(gguf); i++)
        check_refused(open_patched_gguf(gguf[i][0], gguf[i][1], gguf[i][2]), TG_E_CORRUPT,
                      WORDS(gguf[i][3]));
}

/* transformers leaves such tensors out without a word: here a refusal that names both. */
static void weights_that_the_config_denies_are_refused_in_every_family(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {PARITY "qwen3-window", "{\"attention_bias\": false}", "attention_bias is false"},
        {PARITY "granite-bias", "{\"attention_bias\": \"(absent)\"}", "attention_bias is absent"},
        {PARITY "granite-bias", "{\"mlp_bias\": false}", "mlp_bias is false"},
        {PARITY "cohere-bias", "{\"attention_bias\": false}", "attention_bias is false"},
        {PARITY "cohere2-bias", "{\"attention_bias\": false}", "attention_bias is false"},
        {PARITY "glm4-plain", "{\"attention_bias\": false}", "attention_bias is false"},
        {PARITY "stablelm-bias", "{\"use_qkv_bias\": false}", "use_qkv_bias is false"},
        {PARITY "stablelm-plain", "{\"use_parallel_residual\": true}",
         "use_parallel_residual is true"},
        {PARITY "llama-bias",
         "{\"model_type\": \"mistral\", \"attention_bias\": false, "
         "\"mlp_bias\": false}",
         "models of this kind have no such weights"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        check_refused(open_changed(rows[i][0], rows[i][1]), TG_E_CORRUPT,
                      WORDS(rows[i][2], "model.layers.0."));
    /* a promise that the class does not know */
    check_refused(open_changed(PARITY "mistral-none", "{\"attention_bias\": true}"),
                  TG_E_UNSUPPORTED, WORDS("'attention_bias'"));
    check_refused(open_changed(PARITY "mistral3-small", "{\"text_config.mlp_bias\": true}"),
                  TG_E_UNSUPPORTED, WORDS("'mlp_bias'"));
    /* Qwen2's class does not read the key, and has its biases all the same */
    opened o = open_ok(PARITY "qwen2-plain", "{\"attention_bias\": false}");
    assert_non_null(strstr(test_log, "qwen2 always has these weights"));
    close_opened(&o);
}

/* A key that llama.cpp needs, or for which llama.cpp and transformers take different numbers. */
static void a_gguf_file_must_have_keys_without_a_common_default(void **state)
{
    (void)state;
    static const char *const rows[][4] = {
        {PARITY "granite-plain", "granite.logit_scale", "granite.logit_scxxx",
         "granite.logit_scale"},
        {PARITY "cohere-plain", "command-r.logit_scale", "command-r.logit_scxxx",
         "command-r.logit_scale"},
        {PARITY "cohere-plain", "command-r.rope.freq_base", "command-r.rope.freq_bxxx",
         "command-r.rope.freq_base"},
        {PARITY "smollm3-plain", "smollm3.rope.freq_base", "smollm3.rope.freq_bxxx",
         "smollm3.rope.freq_base"},
        {PARITY "glm4-plain", "glm4.rope.dimension_count", "glm4.rope.dimension_cxxxx",
         "glm4.rope.dimension_count"},
        {PARITY "stablelm-plain", "stablelm.rope.dimension_count", "stablelm.rope.dimension_cxxxx",
         "stablelm.rope.dimension_count"},
        {PARITY "olmo3-plain", "olmo2.rope.scaling.factor", "olmo2.rope.scaling.fxxxxx",
         "rope.scaling.factor is missing"},
        {PARITY "phi3-long", "phi3.rope.scaling.attn_factor", "phi3.rope.scaling.attn_fxxxxx",
         "phi3.rope.scaling.attn_factor"},
        {"gemma3-pattern6", "gemma3.attention.sliding_window", "gemma3.attention.sliding_wxxxxx",
         "gemma3.attention.sliding_window"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        check_refused(open_patched_gguf(rows[i][0], rows[i][1], rows[i][2]), TG_E_CORRUPT,
                      WORDS(rows[i][3], "missing"));
    /* the kind of scaling stood in the tensors */
    check_refused(open_patched_gguf(PARITY "phi3-long", "rope_factors_", "rope_faxxxxx_"),
                  TG_E_CORRUPT, WORDS("nothing says how positions are stretched"));
}

/* llama.cpp: f_embedding_scale and f_residual_scale of 0 do nothing, f_attention_scale of 0 means
 * 1 / sqrt(head size): here 8. */
static void absent_scales_of_granite_are_reported_with_the_value_used(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"granite.embedding_scale", "granite.embedding_scxxx", "embedding_scale (1 is used)"},
        {"granite.residual_scale", "granite.residual_scxxx", "residual_scale (1 is used)"},
        {"granite.attention.scale", "granite.attention.scxxx",
         "attention.scale (0.353553 is used)"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        opened o = open_patched_gguf(PARITY "granite-plain", rows[i][0], rows[i][1]);
        if (o.status != TG_OK) fail_msg("%s", o.e.msg);
        if (!strstr(test_log, rows[i][2])) fail_msg("'%s' in '%s'", rows[i][2], test_log);
        close_opened(&o);
    }
}

/* float32 rounds them to 0 or to infinity, and every logit would be NaN. */
static void numbers_that_float32_cannot_hold_are_refused(void **state)
{
    (void)state;
#define LINEAR(x) "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": " x "}}"
    static const char *const rows[][3] = {
        {"llama-plain", LINEAR("1e-320"), "factor 9.99989e-321"},
        {"llama-plain", LINEAR("1e300"), "factor 1e+300"},
        {"qwen2-plain", "{\"rope_parameters\": {\"rope_theta\": 1e300}}", "theta 1e+300"},
        {"qwen2-plain",
         "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 1e-320, "
         "\"original_max_position_embeddings\": 64}}",
         "factor 9.99989e-321"},
        {"llama-plain", "{\"rms_norm_eps\": 1e-320}", "rms_norm_eps is 9.99989e-321"},
        {"granite-plain", "{\"logits_scaling\": 1e-320}", "logits_scaling is 9.99989e-321"},
        {"granite-plain", "{\"residual_multiplier\": 1e300}", "residual_multiplier is 1e+300"},
        {"cohere-plain", "{\"logit_scale\": 1e-320}", "logit_scale is 9.99989e-321"},
        {"gemma2-plain", "{\"attn_logit_softcapping\": 1e-320}",
         "attn_logit_softcapping is 9.99989e-321"},
        {"gemma2-plain", "{\"query_pre_attn_scalar\": 1e300}", "query_pre_attn_scalar is 1e+300"},
        {"gemma3-plain", "{\"query_pre_attn_scalar\": 1e-320}",
         "query_pre_attn_scalar is 9.99989e-321"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char path[64];
        snprintf(path, sizeof path, PARITY "%s", rows[i][0]);
        check_refused(open_changed(path, rows[i][1]), TG_E_CORRUPT,
                      WORDS("config.json", rows[i][2]));
    }
}

/* Keys of expert models in the config of a dense family. */
static void experts_are_refused_in_every_family(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "llama-plain",  "qwen2-plain",   "qwen3-plain",    "phi3-plain",      "granite-plain",
        "gemma2-plain", "gemma3-plain",  "olmo2-plain",    "cohere-plain",    "cohere2-plain",
        "glm4-plain",   "smollm3-plain", "stablelm-plain", "internlm2-plain",
    };
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts",
                                       "moe_num_experts"};
    for (size_t i = 0; i < TG_COUNT(variants); i++)
        for (size_t k = 0; k < TG_COUNT(keys); k++) {
            char path[64], change[64];
            snprintf(path, sizeof path, PARITY "%s", variants[i]);
            snprintf(change, sizeof change, "{\"%s\": 8}", keys[k]);
            check_refused(open_changed(path, change), TG_E_UNSUPPORTED, WORDS(keys[k]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_released_files_are_known),
        cmocka_unit_test(unsupported_features_of_a_family_are_refused_by_name),
        cmocka_unit_test(numbers_without_sense_are_refused),
        cmocka_unit_test(absent_keys_take_the_defaults_of_the_class),
        cmocka_unit_test(windows_hold_where_the_flags_say),
        cmocka_unit_test(yarn_reaches_beyond_the_original_length),
        cmocka_unit_test(old_names_of_longrope_are_understood),
        cmocka_unit_test(weights_that_a_family_always_has_are_required),
        cmocka_unit_test(weights_that_the_config_denies_are_refused_in_every_family),
        cmocka_unit_test(a_gguf_file_must_have_keys_without_a_common_default),
        cmocka_unit_test(absent_scales_of_granite_are_reported_with_the_value_used),
        cmocka_unit_test(numbers_that_float32_cannot_hold_are_refused),
        cmocka_unit_test(experts_are_refused_in_every_family),
        cmocka_unit_test(phi3s_original_length_is_the_one_beside_the_rope_settings),
        cmocka_unit_test(a_fused_tensor_of_another_size_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
