/* SPDX-License-Identifier: Apache-2.0
 * config.json and its relatives: any text either is refused with a message or answers every
 * question an architecture may ask. */
#include "base/log.h"
#include "format/hparams.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void be_quiet(void *context, const char *line)
{
    (void)context;
    (void)line;
}

static void ask(tg_config *c, const char *key)
{
    int64_t i, each[3];
    int32_t n;
    double d;
    bool is, is_present;
    tg_str s;
    const int64_t *ints;
    const double *reals;
    const tg_str *strs;
    const bool *flags;
    tg_err e = {0};
    if (tg_config_get_i64(c, key, &i, NULL, &e) != TG_OK && e.msg[0] == 0) abort();
    (void)!tg_config_get_f64(c, key, &d, &is_present, NULL);
    (void)!tg_config_get_bool(c, key, &is, &is_present, NULL);
    (void)!tg_config_get_str(c, key, &s, &is_present, NULL);
    (void)!tg_config_get_i64s(c, key, &ints, &n, &is_present, NULL);
    (void)!tg_config_get_f64s(c, key, &reals, &n, &is_present, NULL);
    (void)!tg_config_get_strs(c, key, &strs, &n, &is_present, NULL);
    (void)!tg_config_get_bools(c, key, &flags, &n, &is_present, NULL);
    (void)!tg_config_get_i64_each(c, key, each, 3, &is_present, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {
        "model_type",          "/model_type", "hidden_size", "eos_token_id",
        "rope_scaling.factor", "layer_types", "a",           "a.b.c"};
    json_t *root = NULL;
    tg_config *c = NULL;
    tg_err e = {0};
    tg_arena a = {0};
    const char **unread;
    int32_t n;
    tg_str token;
    tg_log_set_sink(be_quiet, NULL);
    tg_status s = tg_json_parse(&root, (tg_str){(const char *)data, size}, "fuzz", &e);
    if (s == TG_OK) s = tg_config_new_json(&c, root, "fuzz", &e);
    if (s != TG_OK && e.msg[0] == 0) abort();
    if (s == TG_OK) {
        (void)tg_config_has(c, "rope_scaling");
        (void)!tg_hf_get_token(root, "bos_token", &token, NULL, "fuzz", NULL);
        tg_config_ignore(c, "ign*");
        for (size_t i = 0; i < TG_COUNT(keys); i++)
            ask(c, keys[i]);
        if (tg_config_unread(c, &a, &unread, &n, NULL) != TG_OK) abort();
    }
    tg_config_free(c);
    json_decref(root);
    tg_arena_deinit(&a);
    if (tg_mem_n_alive() != 0) abort();
    return 0;
}
