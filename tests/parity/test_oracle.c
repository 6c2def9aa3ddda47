/* SPDX-License-Identifier: Apache-2.0 The oracles against transformers: logits of every position of
 * every tiny checkpoint. transformers computes in float32, the oracles in double, so what is left
 * is float32's own error. */
#include "check.h"
#include "expected.h"
#include "format_files.h"
#include "oracle/oracle.h"

#include <math.h>

/* Largest difference of a logit; these are a few units large, and 2e-5 is what is found. */
#define BOUND 1e-4

static double find_worst(const char *variant, const char *file, const char *which)
{
    expected x;
    char path[256];
    tg_err e = {0};
    tg_checkpoint *c = NULL;
    oracle *o = TG_NEW(oracle);
    expected_open(&x, variant, which);
    snprintf(path, sizeof path, "tests/tiny/%s%s", variant, file);
    if (tg_checkpoint_open(&c, path, &e) != TG_OK) fail_msg("%s", e.msg);
    oracle_open(o, c, x.n_ids);
    assert_int_equal(o->n_vocab, x.n_vocab);
    double *logits = oracle_new((int64_t)x.n_ids * x.n_vocab), worst = 0;
    oracle_run(o, x.ids, x.n_ids, logits);
    for (int64_t i = 0; i < (int64_t)x.n_ids * x.n_vocab; i++) {
        double error = fabs(logits[i] - (double)x.logits[i]);
        worst = error > worst || isnan(error) ? error : worst;
    }
    oracle_free(logits);
    tg_mem_free(o);
    tg_checkpoint_close(c);
    expected_close(&x);
    return worst;
}

static void check(const char *variant, const char *file, const char *which, double bound)
{
    double worst = find_worst(variant, file, which);
    print_message("%s%s %s: %.2g\n", variant, file, which, worst);
    if (!(worst <= bound)) fail_msg("%s%s differs by %g", variant, file, worst);
}

static void logits_of_folders_are_those_of_transformers(void **state)
{
    (void)state;
    tg_arena a = {0};
    char **names;
    int32_t n_names, n = 0;
    assert_int_equal(tg_dir_list(&a, "tests/tiny", &names, &n_names, NULL), TG_OK);
    for (int32_t i = 0; i < n_names; i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/tiny/%s/expected.npy", names[i]);
        if (!tg_path_is_file(path)) continue;
        check(names[i], "", "expected", BOUND);
        snprintf(path, sizeof path, "tests/tiny/%s/expected_long.npy", names[i]);
        if (tg_path_is_file(path)) check(names[i], "", "expected_long", BOUND);
        n++;
    }
    tg_arena_deinit(&a);
    assert_true(n >= 19);
}

static void logits_of_gguf_twins_are_those_of_transformers(void **state)
{
    (void)state;
    static const struct {
        const char *variant;
        double bound;
    } twins[] = {
        {"llama-bf16", BOUND},
        {"llama-mha-old", BOUND},
        {"llama-rope-llama3", 0.03}, /* float32 weights that the twin keeps as f16 */
        {"gemma3-pattern6", BOUND},
    };
    for (size_t i = 0; i < TG_COUNT(twins); i++)
        check(twins[i].variant, "/model.gguf", "expected", twins[i].bound);
}

/* ---- the real models, against transformers on the exactly dequantized file (tests/golden) */

static const json_t *find_prompt(const json_t *golden, const char *name)
{
    const json_t *list = json_object_get(golden, "prompts");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(p, "name")), name) == 0) return p;
    }
    fail_msg("no prompt %s", name);
    return NULL;
}

/* The committed row of logits after the last id of a prompt. */
static const float *find_row(const json_t *golden, const tg_file_map *npy, const char *name,
                             int32_t n_ids)
{
    const json_t *rows = json_object_get(golden, "rows");
    int64_t n_vocab = json_integer_value(json_object_get(golden, "n_vocab"));
    size_t n_rows = json_array_size(rows), row_bytes = (size_t)n_vocab * sizeof(float);
    assert_true(npy->n_bytes > n_rows * row_bytes);
    const uint8_t *first = npy->data + npy->n_bytes - n_rows * row_bytes;
    for (size_t i = 0; i < n_rows; i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "prompt")), name) == 0 &&
            json_integer_value(json_object_get(row, "position")) == n_ids - 1)
            return (const float *)(const void *)(first + i * row_bytes);
    }
    fail_msg("no row of %s", name);
    return NULL;
}

static void check_argmax(const double *logits, int32_t n_vocab, const json_t *prompt, int32_t at)
{
    double margin =
        json_number_value(json_array_get(json_object_get(prompt, "margin"), (size_t)at));
    int64_t want =
        json_integer_value(json_array_get(json_object_get(prompt, "argmax"), (size_t)at));
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    if (margin >= 0.01 && best != want)
        fail_msg("position %d: %d instead of %d, margin %g", at, best, (int)want, margin);
}

static void check_model(const char *name, const char *model_path)
{
    static const char prompt_name[] = "prose-en";
    char path[256];
    tg_err e = {0};
    json_t *golden = NULL;
    tg_file_map npy;
    tg_checkpoint *c = NULL;
    int32_t ids[EXPECTED_MAX_IDS], n = 0;
    snprintf(path, sizeof path, "tests/golden/%s.json", name);
    if (tg_json_load(&golden, path, &e) != TG_OK) fail_msg("%s", e.msg);
    snprintf(path, sizeof path, "tests/golden/%s.logits.npy", name);
    if (tg_file_map_open(&npy, path, &e) != TG_OK) fail_msg("%s", e.msg);
    const json_t *prompt = find_prompt(golden, prompt_name), *list = json_object_get(prompt, "ids");
    for (; n < (int32_t)json_array_size(list); n++)
        ids[n] = (int32_t)json_integer_value(json_array_get(list, (size_t)n));

    oracle *o = TG_NEW(oracle);
    if (tg_checkpoint_open(&c, model_path, &e) != TG_OK) fail_msg("%s", e.msg);
    oracle_open(o, c, n);
    double *logits = oracle_new((int64_t)n * o->n_vocab), worst = 0;
    oracle_run(o, ids, n, logits);
    for (int32_t t = 0; t < n; t++)
        check_argmax(logits + (int64_t)t * o->n_vocab, o->n_vocab, prompt, t);
    const float *want = find_row(golden, &npy, prompt_name, n);
    for (int32_t i = 0; i < o->n_vocab; i++) {
        double error = fabs(logits[(int64_t)(n - 1) * o->n_vocab + i] - (double)want[i]);
        assert_true(error <= 1e-3); /* not of a NaN either */
        worst = fmax(worst, error);
    }
    print_message("%s %s: %.2g\n", name, prompt_name, worst);
    oracle_free(logits);
    tg_mem_free(o);
    tg_checkpoint_close(c);
    tg_file_map_close(&npy);
    json_decref(golden);
}

static void smollm2_is_that_of_transformers(void **state)
{
    (void)state;
    const char *path = find_model("smollm2-135m-instruct.gguf");
    if (!path) skip();
    check_model("smollm2", path);
}

static void gemma_3_is_that_of_transformers(void **state)
{
    (void)state;
    const char *path = find_model("gemma3-270m.gguf");
    if (!path) skip();
    check_model("gemma3", path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_folders_are_those_of_transformers),
        cmocka_unit_test(logits_of_gguf_twins_are_those_of_transformers),
        cmocka_unit_test(smollm2_is_that_of_transformers),
        cmocka_unit_test(gemma_3_is_that_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
