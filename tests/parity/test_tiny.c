/* SPDX-License-Identifier: Apache-2.0
 * test_tiny.c - every tiny checkpoint against transformers: logits of every position with --weights
 * f32 within
 * 2e-3, greedy ids all equal, the same for its GGUF twin; and the other weight modes run. */
#include "parity.h"

#include <math.h>
#include <stdio.h>

enum { MAX_TOKENS = 512 };

typedef struct check {
    const float *want;
    int32_t n_cols;
    double worst;
} check;

static bool check_row(void *context, int32_t i, const float *logits, int32_t n_vocab)
{
    check *c = context;
    assert_true(n_vocab <= c->n_cols);
    for (int32_t k = 0; k < n_vocab; k++)
        c->worst = fmax(c->worst, fabs((double)logits[k] - (double)c->want[i * c->n_cols + k]));
    return false;
}

/* The largest difference of any logit; greedy ids must be equal. */
static double compare(const char *artifact, const char *folder, const char *expected_name,
                      bool has_exact_greedy)
{
    tg_model *m;
    tg_engine *g;
    tg_err e = {0};
    tg_buf path = {0};
    int64_t n_rows, n_cols;
    int32_t ids[MAX_TOKENS], want[MAX_TOKENS], n_got;
    if (tg_model_open(&m, artifact, &e) != TG_OK) fail_msg("%s: %s", folder, e.msg);
    if (tg_engine_open(&g, m, NULL, &e) != TG_OK) fail_msg("%s: %s", folder, e.msg);
    char name[64];
    snprintf(name, sizeof name, "%s.json", expected_name);
    json_t *expected = parity_load_json(tg_path_join(&path, folder, name));
    snprintf(name, sizeof name, "%s.npy", expected_name);
    check c = {.want = parity_load_npy(tg_path_join(&path, folder, name), &n_rows, &n_cols)};
    c.n_cols = (int32_t)n_cols;
    int32_t n = parity_get_ids(json_object_get(expected, "ids"), ids, MAX_TOKENS);
    assert_int_equal(n, n_rows);
    if (tg_engine_eval(g, ids, n, 0, check_row, &c, &e) != TG_OK) fail_msg("%s: %s", folder, e.msg);

    int32_t n_want = parity_get_ids(json_object_get(expected, "greedy"), want, MAX_TOKENS);
    tg_request *r;
    tg_request_options o = {.max_tokens = n_want, .ignore_eos = true};
    int32_t n_prompt = (int32_t)json_integer_value(json_object_get(expected, "prompt"));
    if (tg_engine_submit(&r, g, ids, n_prompt, &o, &e) != TG_OK) fail_msg("%s: %s", folder, e.msg);
    if (tg_request_wait(r, &e) != TG_OK) fail_msg("%s: %s", folder, e.msg);
    const int32_t *got = tg_request_get_tokens(r, &n_got);
    assert_int_equal(n_got, n_want);
    for (int32_t i = 0; has_exact_greedy && i < n_want; i++)
        if (got[i] != want[i])
            fail_msg("%s: greedy id %d is %d instead of %d", folder, i, got[i], want[i]);
    tg_request_free(r);
    json_decref(expected);
    tg_buf_deinit(&path);
    tg_engine_close(g);
    tg_model_close(m);
    return c.worst;
}

static double export_and_compare(const char *source, const char *folder, const char *expected_name,
                                 const char *weights, bool has_exact_greedy)
{
    char artifact[256];
    tg_err e = {0};
    tg_export_options o = {.weights = weights, .is_forced = true};
    snprintf(artifact, sizeof artifact, "%s/tiny", parity_dir());
    if (tg_export(source, artifact, &o, &e) != TG_OK) fail_msg("%s: %s", source, e.msg);
    return compare(artifact, folder, expected_name, has_exact_greedy);
}

static void every_tiny_checkpoint_agrees_with_transformers(void **state)
{
    (void)state;
    tg_arena a = {0};
    char **names;
    int32_t n, n_compared = 0;
    assert_int_equal(tg_dir_list(&a, "tests/tiny", &names, &n, NULL), TG_OK);
    for (int32_t i = 0; i < n; i++) {
        char folder[256], path[300];
        snprintf(folder, sizeof folder, "tests/tiny/%s", names[i]);
        snprintf(path, sizeof path, "%s/expected.npy", folder);
        if (!tg_path_is_file(path)) continue;
        double error = export_and_compare(folder, folder, "expected", "f32", true);
        /* The longrope checkpoint, beyond its original length too: one artifact for both. */
        snprintf(path, sizeof path, "%s/expected_long.npy", folder);
        if (tg_path_is_file(path))
            error = fmax(error, export_and_compare(folder, folder, "expected_long", "f32", true));
        print_message("%-24s largest difference of a logit %.1e\n", names[i], error);
        if (error > 2e-3) fail_msg("%s: a logit differs by %g", names[i], error);
        snprintf(path, sizeof path, "%s/model.gguf", folder);
        if (tg_path_is_file(path)) {
            error = export_and_compare(path, folder, "expected", "f32", true);
            print_message("%-24s    its GGUF twin %.1e\n", names[i], error);
            /* One twin keeps its weights in F16, which llama.cpp too evaluates within 0.03. */
            if (error > 0.03) fail_msg("%s: a logit differs by %g", path, error);
        }
        n_compared++;
    }
    assert_true(n_compared >= 15);
    tg_arena_deinit(&a);
}

/* Dynamic scaling begins behind max_position_embeddings, 256, however long the artifact. */
static void short_texts_do_not_depend_on_max_length(void **state)
{
    (void)state;
    static const char folder[] = "tests/tiny/llama-rope-dynamic";
    char artifact[256];
    tg_err e = {0};
    tg_export_options o = {.weights = "f32", .max_length = 512, .is_forced = true};
    snprintf(artifact, sizeof artifact, "%s/tiny", parity_dir());
    if (tg_export(folder, artifact, &o, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_true(compare(artifact, folder, "expected", true) <= 2e-3);
}

/* Rounded weights move logits by what the rounding says. A matrix's relative error is about 2^-9
 * (bf16), 2^-12 (f16), 1/250 (q8_0, with int8 inputs the same again), 1/15 (q4_0, q4_1), 1/30
 * (q5_1); two layers of
 * seven matrices with logits up to 10 gather some four times that in the largest of 30,000 logits:
 * tenfold as the bound. */
static void rounded_weights_stay_near(void **state)
{
    (void)state;
    static const struct {
        const char *weights;
        double most;
    } rows[] = {{"bf16", 0.4},  {"f16", 0.05},  {"q8_0", 1.6},
                {"q4_0", 13.0}, {"q4_1", 13.0}, {"q5_1", 6.5}};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        double error =
            export_and_compare("tests/tiny/llama-gqa2-untied", "tests/tiny/llama-gqa2-untied",
                               "expected", rows[i].weights, false);
        print_message("%s: %.2g\n", rows[i].weights, error);
        assert_true(error > 0 && error < rows[i].most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tiny_checkpoint_agrees_with_transformers),
        cmocka_unit_test(short_texts_do_not_depend_on_max_length),
        cmocka_unit_test(rounded_weights_stay_near),
    };
    return cmocka_run_group_tests_name("tiny", tests, NULL, NULL);
}
