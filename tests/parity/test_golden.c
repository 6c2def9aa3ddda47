/* SPDX-License-Identifier: Apache-2.0
 * test_golden.c - the real models against transformers in float32 (tests/golden/README.md).
 *
 * Teacher-forced on every golden: with int8 activations the argmax is equal wherever the
 * reference's margin is at least 0.35 (SmolLM2; the largest that is lost is 0.31) or 0.5 (Gemma 3;
 * 0.45), with int16 wherever it is at least 0.05; and whole rows of logits are close. A sample
 * (check.h) reads every third prompt, and every prompt with whole rows of logits, where no position
 * may differ; a share of all positions needs them all. */
#include "parity.h"

#include <math.h>
#include <stdio.h>

enum { MAX_TOKENS = 2048 };

typedef struct check {
    const json_t *prompt;
    double margin;
    int32_t n_checked, n_wrong;
    const float *want; /* a row of logits to hold against position want_at, or NULL */
    int32_t want_at;
    double error; /* relative to the spread of the wanted row */
} check;

static double distance(const float *got, const float *want, int32_t n)
{
    double sum = 0, square = 0, error = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)want[i];
        square += (double)want[i] * (double)want[i];
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
    }
    return sqrt(error / (square - sum * sum / n));
}

static bool check_row(void *context, int32_t i, const float *logits, int32_t n_vocab)
{
    check *c = context;
    int32_t best = 0;
    for (int32_t k = 1; k < n_vocab; k++)
        if (logits[k] > logits[best]) best = k;
    if (parity_get_number(json_object_get(c->prompt, "margin"), i) >= c->margin) {
        double want = parity_get_number(json_object_get(c->prompt, "argmax"), i);
        c->n_checked++;
        c->n_wrong += best != (int32_t)want;
        if (best != (int32_t)want)
            print_message("%s, position %d: id %d instead of %d (margin %g)\n",
                          json_string_value(json_object_get(c->prompt, "name")), i, best, (int)want,
                          parity_get_number(json_object_get(c->prompt, "margin"), i));
    }
    if (c->want && i == c->want_at) c->error = fmax(c->error, distance(logits, c->want, n_vocab));
    return false;
}

/* The committed row of logits of a prompt, if there is one. */
static const float *find_row(const json_t *golden, const char *name, const float *rows,
                             int64_t n_cols, int32_t *position)
{
    const json_t *list = json_object_get(golden, "rows"), *x;
    size_t i;
    json_array_foreach(list, i, x)
    {
        if (strcmp(json_string_value(json_object_get(x, "prompt")), name) != 0) continue;
        *position = (int32_t)json_integer_value(json_object_get(x, "position"));
        return rows + (int64_t)i * n_cols;
    }
    return NULL;
}

/* The tolerances of a run. */
typedef struct bounds {
    double margin;    /* of the likeliest id, from which on it must be the reference's */
    double share;     /* of those positions where it need not */
    double row_error; /* relative, of whole rows */
} bounds;

static void check_goldens(const char *artifact, const char *json_file, const char *npy_file,
                          bounds most)
{
    tg_model *m;
    tg_engine *g;
    tg_err e = {0};
    if (tg_model_open(&m, artifact, &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_engine_open(&g, m, NULL, &e) != TG_OK) fail_msg("%s", e.msg);

    json_t *golden = parity_load_json(json_file);
    int64_t n_rows, n_cols;
    const float *rows = parity_load_npy(npy_file, &n_rows, &n_cols);
    const json_t *prompts = json_object_get(golden, "prompts"), *p;
    check c = {.margin = most.margin};
    bool is_sampled = tg_test_is_sampled() && most.share == 0;
    size_t k;
    json_array_foreach(prompts, k, p)
    {
        int32_t ids[MAX_TOKENS];
        int32_t n = parity_get_ids(json_object_get(p, "ids"), ids, MAX_TOKENS);
        n += parity_get_ids(json_object_get(p, "greedy"), ids + n, MAX_TOKENS - n);
        c.prompt = p;
        c.want = find_row(golden, json_string_value(json_object_get(p, "name")), rows, n_cols,
                          &c.want_at);
        if (is_sampled && !c.want && k % 3 != 0) continue;
        if (tg_engine_eval(g, ids, n, 0, check_row, &c, &e) != TG_OK) fail_msg("%s", e.msg);
    }
    print_message("%d positions with a margin of %g or more, %d differ; error of whole rows %.2g\n",
                  c.n_checked, most.margin, c.n_wrong, c.error);
    assert_true(c.n_checked > (is_sampled ? 200 : 500));
    assert_true(c.n_wrong <= most.share * c.n_checked);
    assert_true(c.error < most.row_error);
    json_decref(golden);
    tg_engine_close(g);
    tg_model_close(m);
}

static void check_model(const char *file, const char *name, const char *activations, bounds most)
{
    const char *source = parity_find_model(file);
    if (!source) skip();
    char artifact[64], json_file[64], npy_file[64];
    tg_export_options o = {.max_length = MAX_TOKENS, .activations = activations};
    snprintf(artifact, sizeof artifact, "%s.%s", name, activations);
    snprintf(json_file, sizeof json_file, "tests/golden/%s.json", name);
    snprintf(npy_file, sizeof npy_file, "tests/golden/%s.logits.npy", name);
    check_goldens(parity_export(source, artifact, &o), json_file, npy_file, most);
}

/* 8 bits reach the few positions that every rounding shakes: of twelve choices of outlier groups
 * and largest codes, all within 0.0015 to 0.0018 nats of the reference, 0 to 2 of 2,944 positions
 * differ, other ones each time, and the worst row is off by 0.06 to 0.23. */
static void smollm2_int8_agrees_but_for_one_in_a_thousand_where_the_margin_is_a_third(void **state)
{
    (void)state;
    check_model("smollm2-135m-instruct.gguf", "smollm2", "int8", (bounds){0.35, 0.001, 0.2});
}

static void smollm2_int16_agrees_where_the_margin_is_a_twentieth(void **state)
{
    (void)state;
    check_model("smollm2-135m-instruct.gguf", "smollm2", "int16", (bounds){0.05, 0, 0.005});
}

static void gemma3_int8_agrees_where_the_margin_is_half(void **state)
{
    (void)state;
    check_model("gemma3-270m.gguf", "gemma3", "int8", (bounds){0.5, 0, 0.1});
}

static void gemma3_int16_agrees_where_the_margin_is_a_twentieth(void **state)
{
    (void)state;
    check_model("gemma3-270m.gguf", "gemma3", "int16", (bounds){0.05, 0, 0.005});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_int8_agrees_but_for_one_in_a_thousand_where_the_margin_is_a_third),
        cmocka_unit_test(smollm2_int16_agrees_where_the_margin_is_a_twentieth),
        cmocka_unit_test(gemma3_int8_agrees_where_the_margin_is_half),
        cmocka_unit_test(gemma3_int16_agrees_where_the_margin_is_a_twentieth),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
