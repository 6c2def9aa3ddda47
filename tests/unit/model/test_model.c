/* SPDX-License-Identifier: Apache-2.0
 * Finding a checkpoint's weights: what is missing, surplus or misshapen, and sizes that
 * disagree. */
#include "unit/model/changed.h"

/* A safetensors file of float32 zeros under a Llama config of 1 layer: width 16, 2 heads, 1 KV
 * head, ffn 24, 20 ids. Names and shapes are what a test makes of them. */
typedef struct shape {
    const char *name;
    int32_t rows, cols; /* cols 0: a vector */
} shape;

enum { N_LLAMA = 11 };
static const shape llama[N_LLAMA] = {
    {"model.embed_tokens.weight", 20, 16},
    {"model.layers.0.input_layernorm.weight", 16, 0},
    {"model.layers.0.self_attn.q_proj.weight", 16, 16},
    {"model.layers.0.self_attn.k_proj.weight", 8, 16},
    {"model.layers.0.self_attn.v_proj.weight", 8, 16},
    {"model.layers.0.self_attn.o_proj.weight", 16, 16},
    {"model.layers.0.post_attention_layernorm.weight", 16, 0},
    {"model.layers.0.mlp.gate_proj.weight", 24, 16},
    {"model.layers.0.mlp.up_proj.weight", 24, 16},
    {"model.layers.0.mlp.down_proj.weight", 16, 24},
    {"model.norm.weight", 16, 0},
};

static opened open_tensors(const shape *list, size_t n)
{
    tg_buf json = {0}, file = {0}, config = {0};
    size_t at = 0;
    char dir[64];
    strcpy(dir, make_folder());
    tg_buf_printf(&config,
                  "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 16, "
                  "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
                  "\"intermediate_size\": 24, \"vocab_size\": 20, \"tie_word_embeddings\": true}");
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 4 * (size_t)list[i].rows * (size_t)TG_MAX(list[i].cols, 1);
        tg_buf_printf(&json, "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [%d", i ? ", " : "{",
                      list[i].name, list[i].rows);
        if (list[i].cols) tg_buf_printf(&json, ", %d", list[i].cols);
        tg_buf_printf(&json, "], \"data_offsets\": [%zu, %zu]}", at, at + bytes);
        at += bytes;
    }
    tg_buf_add_byte(&json, '}');
    put_safetensors(&file, tg_buf_cstr(&json), at);
    memset(file.ptr + file.len - at, 0, at);
    tg_buf_deinit(&json);
    save_buf(dir, "config.json", &config);
    save_buf(dir, "model.safetensors", &file);
    opened o = open_path(dir);
    remove_folder(dir);
    return o;
}

static void the_plain_file_is_accepted(void **state)
{
    (void)state;
    opened o = open_tensors(llama, N_LLAMA);
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_int_equal(o.h->n_vocab, 20);
    assert_int_equal(o.h->n_embed_rows, 20);
    const tg_found_weight *down = tg_loaded_checkpoint_find_weight(o.b, TG_W_DOWN, 0);
    assert_int_equal(down->tensor->dims[1], 24);
    assert_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_HEAD, 0)->tensor);
    assert_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_Q_BIAS, 0)->tensor);
    close_opened(&o);
}

static void shapes_are_said_by_role_and_layer(void **state)
{
    (void)state;
    opened o = open_tensors(llama, N_LLAMA);
    tg_weight_shape s = tg_loaded_checkpoint_weight_shape(o.b, TG_W_GATE, 0, 64);
    assert_true(s.is_present && s.rows == 24 && s.cols == 16);
    s = tg_loaded_checkpoint_weight_shape(o.b, TG_W_ATTN_NORM, 0, 64);
    assert_true(s.is_present && s.rows == 16 && s.cols == 1);
    s = tg_loaded_checkpoint_weight_shape(o.b, TG_W_ROPE_0, 0, 64);
    assert_true(s.is_present && s.rows == 64 && s.cols == 8);
    assert_false(tg_loaded_checkpoint_weight_shape(o.b, TG_W_ROPE_1, 0, 64).is_present);
    assert_false(tg_loaded_checkpoint_weight_shape(o.b, TG_W_HEAD, 0, 64).is_present);
    close_opened(&o);
}

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    check_refused(open_tensors(llama, N_LLAMA - 1), TG_E_CORRUPT,
                  WORDS("1 tensor is missing", "'model.norm.weight'"));
}

static void an_untied_head_must_be_there(void **state)
{
    (void)state;
    check_refused(open_changed("llama-mqa", "{\"tie_word_embeddings\": false}"), TG_E_CORRUPT,
                  WORDS("1 tensor is missing", "'lm_head.weight'"));
}

/* transformers 5.24 gives the same logits for these folders as with the key false, and warns;
 * checked with AutoModelForCausalLM for qwen2-plain and llama-gqa2-untied: difference 0. */
static void a_head_that_differs_from_a_tied_embedding_is_used_with_a_warning(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "llama-gqa2-untied",
        "parity/models/qwen2-plain",
        "parity/models/qwen3-plain",
        "parity/models/phi3-plain",
        "parity/models/granite-plain",
        "parity/models/olmo2-plain",
        "parity/models/stablelm-plain",
        "parity/models/glm4-plain",
        "parity/models/internlm2-plain",
    };
    for (size_t i = 0; i < TG_COUNT(variants); i++) {
        opened o = open_changed(variants[i], "{\"tie_word_embeddings\": true}");
        if (o.status != TG_OK) fail_msg("%s: %s", variants[i], o.e.msg);
        assert_false(o.h->is_tied);
        assert_non_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_HEAD, 0)->tensor);
        if (!strstr(test_log, "which is used, as in transformers"))
            fail_msg("%s: '%s'", variants[i], test_log);
        close_opened(&o);
    }
    opened o =
        open_changed("parity/models/mistral3-small", "{\"text_config.tie_word_embeddings\": true}");
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_false(o.h->is_tied);
    assert_non_null(strstr(test_log, "tie_word_embeddings"));
    close_opened(&o);
}

static void a_copy_of_a_tied_embedding_is_not_used(void **state)
{
    (void)state;
    shape list[N_LLAMA + 1];
    memcpy(list, llama, sizeof llama);
    list[N_LLAMA] = (shape){"lm_head.weight", 20, 16};
    opened o = open_tensors(list, N_LLAMA + 1);
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_true(o.h->is_tied);
    assert_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_HEAD, 0)->tensor);
    assert_string_equal(test_log, "");
    close_opened(&o);
}

static void a_tied_head_of_another_shape_is_refused(void **state)
{
    (void)state;
    static const shape heads[] = {
        {"lm_head.weight", 7, 3}, {"lm_head.weight", 0, 0}, {"lm_head.weight", 21, 16}};
    static const char *const shapes[] = {"[7, 3]", "[0]", "[21, 16]"};
    for (size_t i = 0; i < TG_COUNT(heads); i++) {
        shape list[N_LLAMA + 1];
        memcpy(list, llama, sizeof llama);
        list[N_LLAMA] = heads[i];
        check_refused(open_tensors(list, N_LLAMA + 1), TG_E_CORRUPT,
                      WORDS("'lm_head.weight'", shapes[i], "[20, 16]"));
    }
}

/* Older GPTQ converters write a bias of zeros beside every matrix; transformers drops them. */
static void a_denied_bias_of_zeros_changes_nothing(void **state)
{
    (void)state;
    shape list[N_LLAMA + 2];
    memcpy(list, llama, sizeof llama);
    list[N_LLAMA] = (shape){"model.layers.0.self_attn.o_proj.bias", 16, 0};
    list[N_LLAMA + 1] = (shape){"model.layers.0.mlp.up_proj.bias", 24, 0};
    opened o = open_tensors(list, N_LLAMA + 2);
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_O_BIAS, 0)->tensor);
    assert_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_UP_BIAS, 0)->tensor);
    close_opened(&o);
}

static void a_surplus_tensor_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"model.layers.0.self_attn.g_proj.weight",
                                        "model.layers.1.input_layernorm.weight", "rotary.weight",
                                        /* names that only end as ignorable ones do */
                                        "rope_freqs.weight", "x.rope_freqs.weight",
                                        "x.model.rotary_emb.inv_freq", "rotary_emb.inv_freq",
                                        "model.layers.99.self_attn.rotary_emb.inv_freq",
                                        "model.layers.0.mlp.rotary_emb.inv_freq",
                                        "model.layers.0.vision_tower.weight", "model.norm.bias"};
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        shape list[N_LLAMA + 1];
        memcpy(list, llama, sizeof llama);
        list[N_LLAMA] = (shape){names[i], 16, 0};
        check_refused(open_tensors(list, N_LLAMA + 1), TG_E_CORRUPT,
                      WORDS("1 tensor is not known", names[i]));
    }
}

static void saved_rotary_frequencies_and_the_vision_tower_are_ignored(void **state)
{
    (void)state;
    static const char *const names[] = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                        "model.rotary_emb.inv_freq", "vision_tower.layers.7.weight",
                                        "model.multi_modal_projector.linear_1.weight"};
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        shape list[N_LLAMA + 1];
        memcpy(list, llama, sizeof llama);
        list[N_LLAMA] = (shape){names[i], 4, 0};
        opened o = open_tensors(list, N_LLAMA + 1);
        if (o.status != TG_OK) fail_msg("%s", o.e.msg);
        close_opened(&o);
    }
}

static void a_gguf_tensor_that_ends_like_an_ignorable_one_is_not_known(void **state)
{
    (void)state;
    check_refused(open_patched_gguf("parity/models/llama-plain", "blk.1.attn_output.weight",
                                    "blk.1.xrope_freqs.weight"),
                  TG_E_CORRUPT, WORDS("is not known ('blk.1.xrope_freqs.weight')"));
}

/* The commonest reason for many wrong names: something in front. */
static void a_common_prefix_is_pointed_out(void **state)
{
    (void)state;
    static char names[N_LLAMA][80];
    shape list[N_LLAMA];
    for (int i = 0; i < N_LLAMA; i++) {
        snprintf(names[i], sizeof names[i], "text_model.%s", llama[i].name);
        list[i] = llama[i];
        list[i].name = names[i];
    }
    check_refused(open_tensors(list, N_LLAMA), TG_E_CORRUPT,
                  WORDS("11 tensors are missing", "11 tensors are not known", "'model.embed_tokens",
                        "'text_model.model.", "have 'text_model.' in front"));
    for (int i = 0; i < N_LLAMA; i++)
        list[i].name = llama[i].name + strlen("model.");
    check_refused(open_tensors(list, N_LLAMA), TG_E_CORRUPT,
                  WORDS("11 tensors are missing", "lack 'model.' in front"));
}

static void a_wrong_shape_is_named_with_both_shapes(void **state)
{
    (void)state;
    shape list[N_LLAMA];
    memcpy(list, llama, sizeof llama);
    list[9] = (shape){llama[9].name, 24, 16};
    check_refused(open_tensors(list, N_LLAMA), TG_E_CORRUPT,
                  WORDS("down_proj", "[24, 16]", "[16, 24]", "exchanged"));
    list[9] = (shape){llama[9].name, 16, 25};
    check_refused(open_tensors(list, N_LLAMA), TG_E_CORRUPT,
                  WORDS("down_proj", "[16, 25]", "[16, 24]"));
    list[9] = llama[9];
    list[1] = (shape){llama[1].name, 16, 1};
    check_refused(open_tensors(list, N_LLAMA), TG_E_CORRUPT,
                  WORDS("input_layernorm", "[16, 1]", "[16]"));
}

static void a_bias_of_some_layers_is_needed_in_all(void **state)
{
    (void)state;
    opened o = open_tiny("llama-bias");
    assert_non_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_K_BIAS, 0)->tensor);
    assert_non_null(tg_loaded_checkpoint_find_weight(o.b, TG_W_DOWN_BIAS, 1)->tensor);
    close_opened(&o);
    /* one layer more than the file has: its norms and matrices are missing, and its biases */
    check_refused(open_changed("llama-bias", "{\"num_hidden_layers\": 3}"), TG_E_CORRUPT,
                  WORDS("16 tensors are missing"));
    /* one layer fewer: what is there of it is not known */
    check_refused(open_changed("llama-bias", "{\"num_hidden_layers\": 1}"), TG_E_CORRUPT,
                  WORDS("16 tensors are not known", "model.layers.1."));
}

static void the_embeddings_rows_rule_and_surplus_ones_are_padding(void **state)
{
    (void)state;
    opened o = open_changed("llama-mqa", "{\"vocab_size\": 280}");
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    assert_int_equal(o.h->n_vocab, 280);
    assert_int_equal(o.h->n_embed_rows, 288);
    close_opened(&o);
    check_refused(open_changed("llama-mqa", "{\"vocab_size\": 300}"), TG_E_CORRUPT,
                  WORDS("300 tokens", "model.embed_tokens.weight", "288 rows"));
}

static void refused_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-bias", "gemma3-pattern6/model.gguf"};
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        char path[128];
        tg_checkpoint *c = NULL;
        snprintf(path, sizeof path, "tests/tiny/%s", names[i]);
        assert_int_equal(tg_checkpoint_open(&c, path, NULL), TG_OK);
        int64_t before = tg_mem_n_alive();
        tg_status s = TG_E_NOMEM;
        for (int64_t n = 0; s != TG_OK; n++) {
            tg_loaded_checkpoint *b = NULL;
            tg_graph *g = NULL;
            tg_err e = {0};
            assert_true(n < 10000);
            tg_mem_fail_after(n);
            s = tg_loaded_checkpoint_open(&b, c, &e);
            if (s == TG_OK) s = tg_loaded_checkpoint_build(b, 64, &g, &e);
            tg_mem_fail_after(-1);
            if (s != TG_OK && s != TG_E_NOMEM) fail_msg("allocation %d: %s", (int)n, e.msg);
            tg_graph_free(g);
            tg_loaded_checkpoint_free(b);
            assert_int_equal(tg_mem_n_alive(), before);
        }
        tg_checkpoint_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_file_is_accepted),
        cmocka_unit_test(shapes_are_said_by_role_and_layer),
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(an_untied_head_must_be_there),
        cmocka_unit_test(a_surplus_tensor_is_named),
        cmocka_unit_test(saved_rotary_frequencies_and_the_vision_tower_are_ignored),
        cmocka_unit_test(a_gguf_tensor_that_ends_like_an_ignorable_one_is_not_known),
        cmocka_unit_test(a_head_that_differs_from_a_tied_embedding_is_used_with_a_warning),
        cmocka_unit_test(a_copy_of_a_tied_embedding_is_not_used),
        cmocka_unit_test(a_tied_head_of_another_shape_is_refused),
        cmocka_unit_test(a_denied_bias_of_zeros_changes_nothing),
        cmocka_unit_test(a_common_prefix_is_pointed_out),
        cmocka_unit_test(a_wrong_shape_is_named_with_both_shapes),
        cmocka_unit_test(a_bias_of_some_layers_is_needed_in_all),
        cmocka_unit_test(the_embeddings_rows_rule_and_surplus_ones_are_padding),
        cmocka_unit_test(refused_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
