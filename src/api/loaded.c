/* SPDX-License-Identifier: Apache-2.0
 * loaded.c - an opened artifact and its defaults. */
#include "api/api.h"

#include <string.h>

const char *tg_version(void)
{
    return TG_VERSION;
}

void tg_free(void *p)
{
    tg_mem_free(p);
}

tg_status tg_give_text(char **out, tg_str text, tg_err *e)
{
    *out = tg_mem_new(text.len + 1);
    if (!*out) return tg_fail_nomem(e, text.len + 1, "a text");
    if (text.len) memcpy(*out, text.ptr, text.len);
    return TG_OK;
}

/* ---- opening */

static tg_status read_sampling(tg_model *m, const char *path, tg_err *e)
{
    const json_t *s = json_object_get(m->artifact->defaults, "sampling");
    double temperature = 0, top_p = 0, min_p = 0, penalty = 0;
    int64_t top_k = 0;
    bool is_present;
    TG_TRY(tg_json_get_f64(s, "temperature", &temperature, &is_present, path, e));
    TG_TRY(tg_json_get_f64(s, "top_p", &top_p, &is_present, path, e));
    TG_TRY(tg_json_get_f64(s, "min_p", &min_p, &is_present, path, e));
    TG_TRY(tg_json_get_f64(s, "repeat_penalty", &penalty, &is_present, path, e));
    TG_TRY(tg_json_get_i64(s, "top_k", &top_k, &is_present, path, e));
    if (top_k < 0 || top_k > INT32_MAX)
        return tg_fail(e, TG_E_CORRUPT, "%s: top_k is %lld in defaults.json", path,
                       (long long)top_k);
    m->sampling = (tg_sampling){
        .temperature = (float)temperature,
        .top_p = (float)top_p,
        .min_p = (float)min_p,
        .repeat_penalty = (float)penalty,
        .top_k = (int32_t)top_k,
    };
    return TG_OK;
}

static tg_status read_stop_ids(tg_model *m, const char *path, tg_err *e)
{
    const json_t *ids = json_object_get(m->artifact->defaults, "stop_ids"), *x;
    size_t i;
    m->stop_ids = TG_NEW_ARRAY(int32_t, json_array_size(ids) + 1);
    if (!m->stop_ids) return tg_fail_nomem(e, json_array_size(ids), "stop ids");
    json_array_foreach(ids, i, x)
    {
        json_int_t id = json_integer_value(x);
        if (!json_is_integer(x) || id < 0 || id > INT32_MAX)
            return tg_fail(e, TG_E_CORRUPT, "%s: stop id %zu in defaults.json is not a token id",
                           path, i);
        m->stop_ids[m->n_stop_ids++] = (int32_t)id;
    }
    return TG_OK;
}

tg_status tg_model_open(tg_model **out, const char *dir, tg_err *e)
{
    *out = NULL;
    tg_model *m = TG_NEW(tg_model);
    if (!m) return tg_fail_nomem(e, sizeof *m, "a model");
    tg_status s = tg_artifact_open(&m->artifact, dir, e);
    if (s == TG_OK) s = tg_text_init(&m->text, m->artifact, e);
    if (s == TG_OK) s = read_sampling(m, dir, e);
    if (s == TG_OK) s = read_stop_ids(m, dir, e);
    if (s != TG_OK) {
        tg_model_close(m);
        return s;
    }
    *out = m;
    return TG_OK;
}

void tg_model_close(tg_model *m)
{
    if (!m) return;
    tg_text_deinit(&m->text);
    tg_artifact_close(m->artifact);
    tg_mem_free(m->stop_ids);
    tg_mem_free(m);
}

tg_model_info tg_model_get_info(const tg_model *m)
{
    const tg_program *p = &m->artifact->program;
    return (tg_model_info){
        .architecture = json_string_value(json_object_get(m->artifact->json, "architecture")),
        .n_vocab = p->n_vocab,
        .n_embed_rows = p->n_embed_rows,
        .max_length = p->max_length,
        .batch = p->batch,
        .speculation = p->speculation,
    };
}

const tg_text *tg_model_get_text(const tg_model *m)
{
    return &m->text;
}

tg_sampling tg_model_get_sampling(const tg_model *m)
{
    return m->sampling;
}
