/* SPDX-License-Identifier: Apache-2.0
 * loaded.c - an opened artifact: text in and out. */
#include "api/api.h"
#include "base/log.h"

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
    pthread_mutex_init(&m->lock, NULL);
    tg_status s = tg_artifact_open(&m->artifact, dir, e);
    if (s == TG_OK && m->artifact->tokenizer_map.n_bytes > 0) {
        s = tg_tokenizer_open(&m->tokenizer, m->artifact->tokenizer_map.data,
                              m->artifact->tokenizer_map.n_bytes, e);
        if (s != TG_OK) tg_err_context(e, "%s/tokenizer.bin", dir);
    }
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
    tg_template_free(m->chat);
    tg_tokenizer_close(m->tokenizer);
    tg_artifact_close(m->artifact);
    tg_mem_free(m->stop_ids);
    pthread_mutex_destroy(&m->lock);
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
        .has_tokenizer = m->tokenizer != NULL,
        .has_template = m->artifact->template_map.n_bytes > 0,
        .bos_id = m->tokenizer ? tg_tokenizer_bos_id(m->tokenizer) : -1,
    };
}

tg_sampling tg_model_get_sampling(const tg_model *m)
{
    return m->sampling;
}

/* ---- text */

static tg_status need_tokenizer(const tg_model *m, tg_err *e)
{
    if (m->tokenizer) return TG_OK;
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: the model has no tokenizer; give token ids instead of text",
                   m->artifact->path);
}

/* A text that begins with BOS already and gets another by the post-processor keeps one. */
static void drop_second_bos(const tg_model *m, tg_ids *ids)
{
    int32_t bos = tg_tokenizer_bos_id(m->tokenizer);
    if (bos < 0 || ids->len < 2 || ids->ptr[0] != bos || ids->ptr[1] != bos) return;
    tg_log_warn("the text begins with the token that starts every text; it is used once");
    memmove(ids->ptr, ids->ptr + 1, --ids->len * sizeof *ids->ptr);
}

tg_status tg_model_tokenize(const tg_model *m, const char *text, size_t n_bytes, bool add_special,
                            bool parse_special, int32_t **ids, int32_t *n_ids, tg_err *e)
{
    *ids = NULL;
    *n_ids = 0;
    TG_TRY(need_tokenizer(m, e));
    tg_ids list = {0};
    tg_encode_options o = {.add_special = add_special, .parse_special = parse_special};
    tg_status s = tg_tokenizer_encode(&list, m->tokenizer, (tg_str){text, n_bytes}, &o, e);
    /* A long text has been all over the tables, 32 MB with Gemma's vocabulary, and the decoder
     * needs little of them. */
    tg_map_expect_few(&m->artifact->tokenizer_map);
    if (s == TG_OK) s = tg_ids_check(&list, e);
    if (s == TG_OK && add_special) drop_second_bos(m, &list);
    if (s == TG_OK) {
        *ids = TG_NEW_ARRAY(int32_t, list.len + 1);
        if (!*ids) s = tg_fail_nomem(e, list.len, "token ids");
    }
    if (s == TG_OK) {
        if (list.len) memcpy(*ids, list.ptr, list.len * sizeof **ids);
        *n_ids = (int32_t)list.len;
    }
    tg_ids_deinit(&list);
    return s;
}

tg_status tg_model_detokenize(const tg_model *m, const int32_t *ids, int32_t n_ids,
                              bool skip_special, char **text, size_t *n_bytes, tg_err *e)
{
    *text = NULL;
    *n_bytes = 0;
    TG_TRY(need_tokenizer(m, e));
    tg_buf b = {0};
    tg_status s =
        tg_tokenizer_decode(&b, m->tokenizer, ids, (size_t)TG_MAX(n_ids, 0), skip_special, e);
    if (s == TG_OK) s = tg_buf_check(&b, e);
    if (s == TG_OK) s = tg_give_text(text, tg_buf_str(&b), e);
    if (s == TG_OK) *n_bytes = b.len;
    tg_buf_deinit(&b);
    return s;
}

/* ---- chat */

static tg_status get_template(const tg_model *shared, const tg_template **out, tg_err *e)
{
    /* The parsed template is a cache behind a lock: the model is read-only to everybody else. */
    tg_model *m = (tg_model *)(uintptr_t)shared;
    const tg_map *text = &m->artifact->template_map;
    if (text->n_bytes == 0)
        return tg_fail(e, TG_E_UNSUPPORTED, "%s: the model has no chat template",
                       m->artifact->path);
    tg_status s = TG_OK;
    pthread_mutex_lock(&m->lock);
    if (!m->chat)
        s = tg_template_load(&m->chat, (tg_str){(const char *)text->data, text->n_bytes}, e);
    *out = m->chat;
    pthread_mutex_unlock(&m->lock);
    if (s != TG_OK) tg_err_context(e, "%s/template.jinja", m->artifact->path);
    return s;
}

static void set_token(json_t *context, const char *name, const tg_tokenizer *t, int32_t id)
{
    if (id < 0) return;
    tg_buf b = {0};
    tg_tokenizer_print_token(&b, t, id);
    json_object_set_new(context, name, json_stringn(tg_buf_cstr(&b), b.len));
    tg_buf_deinit(&b);
}

/* The variables transformers gives a template. */
static tg_status make_context(const tg_model *m, const char *messages, const char *kwargs,
                              bool add_generation_prompt, json_t **out, tg_err *e)
{
    json_t *list = NULL, *more = NULL;
    *out = json_object();
    tg_status s = tg_json_parse(&list, tg_str_from_cstr(messages), "messages", e);
    if (s == TG_OK && kwargs)
        s = tg_json_parse(&more, tg_str_from_cstr(kwargs), "template variables", e);
    if (s == TG_OK && (!json_is_array(list) || json_array_size(list) == 0))
        s = tg_fail(e, TG_E_ARGUMENT, "messages must be a list of at least one message");
    if (s == TG_OK && more && !json_is_object(more))
        s = tg_fail(e, TG_E_ARGUMENT, "template variables must be a JSON object");
    if (s == TG_OK && !*out) s = tg_fail_nomem(e, sizeof **out, "template variables");
    if (s == TG_OK) {
        json_object_set(*out, "messages", list);
        json_object_set_new(*out, "add_generation_prompt", json_boolean(add_generation_prompt));
        if (m->tokenizer) {
            set_token(*out, "bos_token", m->tokenizer, tg_tokenizer_bos_id(m->tokenizer));
            set_token(*out, "eos_token", m->tokenizer, tg_tokenizer_eos_id(m->tokenizer));
            set_token(*out, "unk_token", m->tokenizer, tg_tokenizer_unk_id(m->tokenizer));
            set_token(*out, "pad_token", m->tokenizer, tg_tokenizer_pad_id(m->tokenizer));
        }
        if (more) json_object_update(*out, more);
    }
    json_decref(list);
    json_decref(more);
    return s;
}

tg_status tg_model_render_chat(const tg_model *m, const char *messages_json,
                               const char *kwargs_json, bool add_generation_prompt, char **text,
                               tg_err *e)
{
    const tg_template *t = NULL;
    json_t *context = NULL;
    tg_buf b = {0};
    *text = NULL;
    TG_TRY(get_template(m, &t, e));
    tg_status s = make_context(m, messages_json, kwargs_json, add_generation_prompt, &context, e);
    if (s == TG_OK) s = tg_template_render(t, context, NULL, &b, e);
    if (s == TG_OK) s = tg_buf_check(&b, e);
    if (s == TG_OK) s = tg_give_text(text, tg_buf_str(&b), e);
    json_decref(context);
    tg_buf_deinit(&b);
    return s;
}
