/* SPDX-License-Identifier: Apache-2.0
 * The oracles against transformers: logits of every position of every tiny checkpoint. transformers computes
 * in float32, the oracles in double, so what is left is float32's own error. */
#include "check.h"
#include "expected.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_folders_are_those_of_transformers),
        cmocka_unit_test(logits_of_gguf_twins_are_those_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
