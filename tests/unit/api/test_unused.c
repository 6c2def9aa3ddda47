/* SPDX-License-Identifier: Apache-2.0
 * Ids of the GGUF type UNUSED are never sampled, wherever they stand. The model's weights are zero,
 * so all its logits are equal: by its definition a draw then has every other id with the same
 * chance, and the largest logit of the lowest id is that of the first id in use. */
#include "base/mem.h"
#include "check.h"
#include "format_files.h"
#include "trigraph.h"

#include <stdio.h>

enum { N_VOCAB = 96, N_UNUSED = 58, WIDTH = 32, N_DRAWS = 1200, NORMAL = 1, UNUSED = 5 };

/* Three of five, the first and the last among them. */
static bool is_padding(int32_t id, bool has_padding)
{
    return has_padding && (id % 5 == 0 || id % 5 == 1 || id % 5 == 3);
}

static void put_vocab(tg_buf *b, bool has_padding)
{
    char text[16];
    put_kv_str(b, "tokenizer.ggml.model", "llama");
    put_array(b, "tokenizer.ggml.tokens", KV_STRING, N_VOCAB);
    for (int32_t i = 0; i < N_VOCAB; i++) {
        snprintf(text, sizeof text, is_padding(i, has_padding) ? "[PAD%d]" : "w%d;", (int)i);
        put_str(b, text);
    }
    put_array(b, "tokenizer.ggml.scores", KV_F32, N_VOCAB);
    put_zeros(b, N_VOCAB * sizeof(float));
    put_array(b, "tokenizer.ggml.token_type", KV_I32, N_VOCAB);
    for (int32_t i = 0; i < N_VOCAB; i++)
        put_u32(b, is_padding(i, has_padding) ? UNUSED : NORMAL);
}

static const char *save_model(const char *dir, bool has_padding)
{
    static const struct {
        const char *name;
        uint32_t n_dims;
        uint64_t dims[2];
    } tensors[] = {
        {"token_embd.weight", 2, {WIDTH, N_VOCAB}},
        {"output_norm.weight", 1, {WIDTH, 1}},
        {"blk.0.attn_norm.weight", 1, {WIDTH, 1}},
        {"blk.0.ffn_norm.weight", 1, {WIDTH, 1}},
        {"blk.0.attn_q.weight", 2, {WIDTH, WIDTH}},
        {"blk.0.attn_k.weight", 2, {WIDTH, WIDTH}},
        {"blk.0.attn_v.weight", 2, {WIDTH, WIDTH}},
        {"blk.0.ffn_gate.weight", 2, {WIDTH, WIDTH}},
        {"blk.0.attn_output.weight", 2, {WIDTH, WIDTH}},
        {"blk.0.ffn_up.weight", 2, {WIDTH, WIDTH}},
        {"blk.0.ffn_down.weight", 2, {WIDTH, WIDTH}},
    };
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"llama.context_length", 2048},     {"llama.embedding_length", WIDTH},
        {"llama.block_count", 1},           {"llama.feed_forward_length", WIDTH},
        {"llama.attention.head_count", 1},  {"llama.attention.head_count_kv", 1},
        {"llama.rope.dimension_count", 32},
    };
    const float eps = 1e-5f;
    uint64_t at = 0;
    tg_buf b = {0};
    put_header(&b, 3, TG_COUNT(tensors), TG_COUNT(numbers) + 6);
    put_kv_str(&b, "general.architecture", "llama");
    for (size_t i = 0; i < TG_COUNT(numbers); i++)
        put_kv_u32(&b, numbers[i].key, numbers[i].value);
    put_key(&b, "llama.attention.layer_norm_rms_epsilon", KV_F32);
    put(&b, &eps, sizeof eps);
    put_vocab(&b, has_padding);
    for (size_t i = 0; i < TG_COUNT(tensors); i++) {
        put_tensor(&b, tensors[i].name, tensors[i].n_dims, tensors[i].dims, GGUF_F32, at);
        at += tensors[i].dims[0] * tensors[i].dims[1] * sizeof(float);
    }
    put_padding(&b, 32);
    put_zeros(&b, at);
    return save_buf(dir, "m.gguf", &b);
}

/* How often each id came in N_DRAWS; returns the first that did. */
static int32_t count_draws(int n_of[N_VOCAB], const char *artifact, tg_sampling sampling)
{
    tg_err e = {0};
    tg_model *m = NULL;
    tg_engine *g = NULL;
    tg_request *r = NULL;
    const int32_t prompt[] = {2};
    tg_request_options o = {.sampling = sampling, .max_tokens = N_DRAWS, .ignore_eos = true};
    if (tg_model_open(&m, artifact, &e) != TG_OK || tg_engine_open(&g, m, NULL, &e) != TG_OK ||
        tg_engine_submit(&r, g, prompt, 1, &o, &e) != TG_OK || tg_request_wait(r, &e) != TG_OK)
        fail_msg("%s", e.msg);
    int32_t n;
    const int32_t *ids = tg_request_get_tokens(r, &n);
    assert_int_equal(n, N_DRAWS);
    memset(n_of, 0, N_VOCAB * sizeof *n_of);
    for (int32_t i = 0; i < n; i++) {
        assert_in_range(ids[i], 0, N_VOCAB - 1);
        n_of[ids[i]]++;
    }
    int32_t first = ids[0];
    tg_request_free(r);
    tg_engine_close(g);
    tg_model_close(m);
    return first;
}

static void export(char artifact[256], const char *dir, bool has_padding)
{
    tg_err e = {0};
    snprintf(artifact, 256, "%s/%s.tg", dir, has_padding ? "padded" : "plain");
    if (tg_export(save_model(dir, has_padding), artifact, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
}

static void no_draw_gives_an_unused_id(void **state)
{
    (void)state;
    static const tg_sampling samplings[] = {
        {.temperature = 2, .seed = 1},
        {.temperature = 2, .seed = 2, .top_k = 90},
        {.temperature = 2, .seed = 3, .top_p = 0.99f},
        {.temperature = 2, .seed = 4, .repeat_penalty = 1.3f, .presence_penalty = -2},
    };
    const char *dir = make_folder();
    char artifact[256];
    int n_of[N_VOCAB], n_padding = 0;
    begin_log();
    export(artifact, dir, true);
    for (size_t i = 0; i < TG_COUNT(samplings); i++) {
        count_draws(n_of, artifact, samplings[i]);
        n_padding = 0;
        for (int32_t id = 0; id < N_VOCAB; id++) {
            n_padding += is_padding(id, true);
            if (is_padding(id, true)) assert_int_equal(n_of[id], 0);
            /* 1,200 draws of 38 ids miss one with a chance of 38 * (37 / 38)^1200 = 5e-13. */
            if (i == 0 && !is_padding(id, true)) assert_int_not_equal(n_of[id], 0);
        }
    }
    assert_int_equal(n_padding, N_UNUSED);
    assert_int_equal(count_draws(n_of, artifact, (tg_sampling){0}), 2); /* greedy: 0, 1 unused */
    remove_folder(dir);
}

static void where_no_id_is_unused_all_are_drawn(void **state)
{
    (void)state;
    const char *dir = make_folder();
    char artifact[256];
    int n_of[N_VOCAB];
    begin_log();
    export(artifact, dir, false);
    count_draws(n_of, artifact, (tg_sampling){.temperature = 2, .seed = 1});
    int n_drawn = 0;
    for (int32_t id = 0; id < N_VOCAB; id++)
        n_drawn += n_of[id] > 0;
    assert_int_equal(n_drawn, N_VOCAB);
    assert_int_equal(count_draws(n_of, artifact, (tg_sampling){0}), 0);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_draw_gives_an_unused_id),
        cmocka_unit_test(where_no_id_is_unused_all_are_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
