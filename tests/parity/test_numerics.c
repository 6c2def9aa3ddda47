/* SPDX-License-Identifier: Apache-2.0
 * test_numerics.c - what people met in other engines' arithmetic, on the random models of
 * tests/parity/models: windows that are lost on some layers or held on all, numbers beyond half
 * precision, positions beyond a scaling. */
#include "parity.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

enum { N_TOKENS = 72, N_VOCAB = 96 };

static void export_and_open(parity_run *r, const char *source, const char *weights)
{
    char artifact[256];
    tg_err e = {0};
    tg_export_options o = {
        .batch = 1, .max_length = 128, .weights = weights, .kv = "f16", .is_forced = true};
    snprintf(artifact, sizeof artifact, "%s/model", parity_dir());
    if (tg_export(source, artifact, &o, &e) != TG_OK) fail_msg("%s: %s", source, e.msg);
    parity_open(r, artifact, 2, NULL);
}

/* Logits after the last of N_TOKENS tokens. */
static void run(parity_run *r, const int32_t *ids, float logits[N_VOCAB])
{
    tg_err e = {0};
    const float *row;
    tg_exec_row x = {.tokens = ids, .n_tokens = N_TOKENS, .n_outs = 1};
    if (tg_exec_step(r->exec, TG_KIND_CONTEXT, &x, 1, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(tg_exec_read_logits(r->exec, 0, &row, NULL), TG_OK);
    assert_int_equal(r->artifact->program.n_vocab, N_VOCAB);
    memcpy(logits, row, sizeof *logits * N_VOCAB);
}

static void draw_ids(int32_t ids[N_TOKENS])
{
    uint64_t rng = tg_test_seed();
    for (int32_t i = 0; i < N_TOKENS; i++)
        ids[i] = 3 + (int32_t)(tg_test_next(&rng) % (N_VOCAB - 3));
}

/* A marker `back` tokens before the last one: does the answer hear of it? */
static bool hears(const char *source, int32_t back)
{
    parity_run r;
    int32_t ids[N_TOKENS];
    float before[N_VOCAB], after[N_VOCAB];
    export_and_open(&r, source, "f32");
    draw_ids(ids);
    run(&r, ids, before);
    ids[N_TOKENS - 1 - back] = ids[N_TOKENS - 1 - back] == 50 ? 51 : 50;
    run(&r, ids, after);
    parity_close(&r);
    return memcmp(before, after, sizeof before) != 0;
}

/* Two layers with a window of 16 reach back 2 x 15 tokens, and not one more. */
static void a_window_hides_what_lies_before_it(void **state)
{
    (void)state;
    assert_true(hears("tests/parity/models/mistral-window", 30));
    assert_false(hears("tests/parity/models/mistral-window", 31));
    assert_false(hears("tests/parity/models/mistral-window", N_TOKENS - 1));
}

/* Layers of two kinds: what a window hides, a layer without one still sees. */
static void only_full_layers_see_a_marker_beyond_the_window(void **state)
{
    (void)state;
    static const char *const models[] = {"mistral-ministral", "qwen2-window", "gemma2-types",
                                         "gemma3-scalar",     "olmo3-types",  "cohere2-types",
                                         "smollm3-window"};
    for (size_t i = 0; i < TG_COUNT(models); i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/parity/models/%s", models[i]);
        if (!hears(path, N_TOKENS - 1)) fail_msg("%s does not hear the first token", models[i]);
    }
}

/* A folder's model under other keys. */
static const char *change(const char *source, const char *key, double value)
{
    static tg_buf dir;
    char path[300];
    tg_err e = {0};
    tg_buf text = {0};
    tg_path_join(&dir, parity_dir(), "changed");
    if (!tg_path_is_file(dir.ptr)) (void)!mkdir(dir.ptr, 0777);
    snprintf(path, sizeof path, "%s/config.json", source);
    json_t *config = parity_load_json(path);
    json_object_set_new(config, key, json_real(value));
    assert_int_equal(tg_json_print(&text, config, 1, &e), TG_OK);
    snprintf(path, sizeof path, "%s/config.json", dir.ptr);
    if (tg_file_save(path, tg_buf_str(&text), &e) != TG_OK) fail_msg("%s", e.msg);
    json_decref(config);
    text.len = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    assert_int_equal(tg_file_load(&text, path, 1 << 24, &e), TG_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", dir.ptr);
    if (tg_file_save(path, tg_buf_str(&text), &e) != TG_OK) fail_msg("%s", e.msg);
    tg_buf_deinit(&text);
    return dir.ptr;
}

/* A residual stream of some 10^6, where half precision ends at 65,504. */
static void activations_beyond_half_precision_stay_finite(void **state)
{
    (void)state;
    static const char *const weights[] = {"f32", "bf16", "f16", "q8_0", "q4_0"};
    const char *source = change("tests/parity/models/granite-plain", "embedding_multiplier", 1e6);
    for (size_t w = 0; w < TG_COUNT(weights); w++) {
        parity_run r;
        int32_t ids[N_TOKENS];
        float logits[N_VOCAB], low = INFINITY, high = -INFINITY;
        export_and_open(&r, source, weights[w]);
        draw_ids(ids);
        run(&r, ids, logits);
        for (int32_t i = 0; i < N_VOCAB; i++) {
            if (!isfinite(logits[i]))
                fail_msg("%s: logit %d is %g", weights[w], i, (double)logits[i]);
            low = fminf(low, logits[i]);
            high = fmaxf(high, logits[i]);
        }
        assert_true(high > low + 1);
        parity_close(&r);
    }
}

/* A length that the model was not made for is refused with both numbers. */
static void positions_beyond_a_scaling_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int32_t limit;
    } rows[] = {{"qwen2-plain", 256}, {"qwen2-tied", 256}, {"internlm2-mqa", 512}};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char source[256], artifact[256], number[32];
        tg_err e = {0};
        snprintf(source, sizeof source, "tests/parity/models/%s", rows[i].model);
        snprintf(artifact, sizeof artifact, "%s/model", parity_dir());
        tg_export_options o = {.max_length = rows[i].limit, .is_forced = true};
        if (tg_export(source, artifact, &o, &e) != TG_OK) fail_msg("%s: %s", source, e.msg);
        o.max_length++;
        assert_true(tg_export(source, artifact, &o, &e) != TG_OK);
        snprintf(number, sizeof number, "%d", rows[i].limit);
        if (!strstr(e.msg, number)) fail_msg("%s: %s", source, e.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_hides_what_lies_before_it),
        cmocka_unit_test(only_full_layers_see_a_marker_beyond_the_window),
        cmocka_unit_test(activations_beyond_half_precision_stay_finite),
        cmocka_unit_test(positions_beyond_a_scaling_are_refused),
    };
    return cmocka_run_group_tests_name("numerics", tests, NULL, NULL);
}
