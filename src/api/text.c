/* SPDX-License-Identifier: Apache-2.0
 * text.c - tokenizer and templates as one object: opened with a model or by itself, text in, text
 * out.
 *
 * Where it came from is forgotten at once: an artifact's files are mapped, a source's are compiled
 * into the same bytes in memory, and everything after works on those. */
#include "api/text.h"

#include "api/papers.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>

/* ---- opening */

static tg_status open_parts(tg_text *t, tg_str blob, tg_str chat, tg_err *e)
{
    t->blob = blob;
    t->chat = chat;
    return blob.len ? tg_tokenizer_open(&t->tokenizer, blob.ptr, blob.len, e) : TG_OK;
}

tg_status tg_text_init(tg_text *t, const tg_artifact *a, tg_err *e)
{
    tg_str blob = {(const char *)a->tokenizer_map.data, a->tokenizer_map.n_bytes};
    tg_str chat = {(const char *)a->template_map.data, a->template_map.n_bytes};
    *t = (tg_text){.path = a->path, .chat_file = "/template.jinja", .map = &a->tokenizer_map};
    pthread_mutex_init(&t->lock, NULL);
    tg_status s = open_parts(t, blob, chat, e);
    if (s != TG_OK) tg_err_context(e, "%s/tokenizer.bin", a->path);
    return s;
}

void tg_text_deinit(tg_text *t)
{
    tg_template_free(t->template);
    tg_tokenizer_close(t->tokenizer);
    pthread_mutex_destroy(&t->lock);
}

/* Owns what tg_text_init borrows. */
typedef struct tg_opened_text {
    tg_text text; /* first: the one is the other */
    tg_artifact *artifact;
    tg_papers papers;
    char *path;
} tg_opened_text;

/* The checkpoint is closed again: the papers are copies. */
static tg_status open_source(tg_opened_text *x, const char *path, tg_err *e)
{
    tg_checkpoint *c;
    TG_TRY(tg_give_text(&x->path, tg_str_from_cstr(path), e));
    x->text.path = x->path;
    x->text.chat_file = "";
    TG_TRY(tg_checkpoint_open_texts(&c, path, e));
    tg_status s = tg_papers_read_texts(&x->papers, c, e);
    tg_checkpoint_close(c);
    if (s == TG_OK)
        s = open_parts(&x->text, tg_buf_str(&x->papers.tokenizer), tg_buf_str(&x->papers.chat), e);
    for (int32_t i = 0; s == TG_OK && x->text.tokenizer; i++) {
        const char *doubt = tg_tokenizer_find_warning(x->text.tokenizer, i);
        if (!doubt) break;
        tg_log_warn("tokenizer: %s", doubt);
    }
    return s;
}

tg_status tg_text_open(tg_text **out, const char *path, tg_err *e)
{
    *out = NULL;
    tg_opened_text *x = TG_NEW(tg_opened_text);
    if (!x) return tg_fail_nomem(e, sizeof *x, "a tokenizer");
    tg_status s;
    if (tg_artifact_is_at(path)) {
        s = tg_artifact_open(&x->artifact, path, e);
        if (s == TG_OK) s = tg_text_init(&x->text, x->artifact, e);
    } else {
        pthread_mutex_init(&x->text.lock, NULL);
        s = open_source(x, path, e);
    }
    if (s == TG_OK && !x->text.tokenizer && x->text.chat.len == 0)
        s = tg_fail(e, TG_E_UNSUPPORTED, "%s: has neither a tokenizer nor a chat template", path);
    if (s == TG_OK)
        *out = &x->text;
    else
        tg_text_close(&x->text);
    return s;
}

void tg_text_close(tg_text *t)
{
    if (!t) return;
    tg_opened_text *x = (tg_opened_text *)t;
    tg_text_deinit(t);
    tg_papers_deinit(&x->papers);
    tg_artifact_close(x->artifact);
    tg_mem_free(x->path);
    tg_mem_free(x);
}

tg_text_info tg_text_get_info(const tg_text *t)
{
    tg_text_info info = {
        .n_templates = t->chat.len > 0, .bos_id = -1, .eos_id = -1, .unk_id = -1, .pad_id = -1};
    if (!t->tokenizer) return info;
    info.has_tokenizer = true;
    info.n_vocab = tg_tokenizer_n_vocab(t->tokenizer);
    info.bos_id = tg_tokenizer_bos_id(t->tokenizer);
    info.eos_id = tg_tokenizer_eos_id(t->tokenizer);
    info.unk_id = tg_tokenizer_unk_id(t->tokenizer);
    info.pad_id = tg_tokenizer_pad_id(t->tokenizer);
    return info;
}

/* ---- text in */

static tg_status need_tokenizer(const tg_text *t, tg_err *e)
{
    if (t->tokenizer) return TG_OK;
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: the model has no tokenizer; give token ids instead of text", t->path);
}

/* A text that begins with BOS already and gets another by the post-processor keeps the one that
 * it spells. */
static void drop_second_bos(const tg_tokenizer *t, tg_ids *ids, tg_spans *spans)
{
    int32_t bos = tg_tokenizer_bos_id(t);
    if (bos < 0 || ids->len < 2 || ids->ptr[0] != bos || ids->ptr[1] != bos) return;
    tg_log_warn("the text begins with the token that starts every text; it is used once");
    memmove(ids->ptr, ids->ptr + 1, --ids->len * sizeof *ids->ptr);
    if (spans->len) memmove(spans->ptr, spans->ptr + 1, --spans->len * sizeof *spans->ptr);
}

_Static_assert(sizeof(tg_byte_range) == sizeof(tg_span) &&
                   offsetof(tg_byte_range, end) == offsetof(tg_span, end),
               "a public range is a span");

/* The lists' memory is handed on as it is. */
static tg_status take_lists(tg_tokens *out, tg_ids *ids, tg_spans *spans, bool has_ranges,
                            tg_err *e)
{
    TG_TRY(tg_ids_check(ids, e));
    if (spans->is_failed) return tg_fail_nomem(e, spans->size * sizeof *spans->ptr, "byte ranges");
    if (ids->len > INT32_MAX)
        return tg_fail(e, TG_E_LIMIT, "the text has %zu tokens, and at most %d can be counted",
                       ids->len, INT32_MAX);
    TG_ASSERT(!has_ranges || ids->len == spans->len);
    *out = (tg_tokens){.ids = ids->ptr, .n = (int32_t)ids->len};
    *ids = (tg_ids){0};
    if (!has_ranges) return TG_OK;
    out->ranges = (tg_byte_range *)(void *)spans->ptr;
    *spans = (tg_spans){0};
    return TG_OK;
}

tg_status tg_text_tokenize(tg_tokens *out, const tg_text *t, const char *text, size_t n_bytes,
                           const tg_tokenize_options *o, tg_err *e)
{
    static const tg_tokenize_options defaults;
    if (!o) o = &defaults;
    *out = (tg_tokens){0};
    TG_TRY(need_tokenizer(t, e));
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_encode_options how = {.add_special = !o->no_add_special,
                             .parse_special = !o->no_parse_special,
                             .spans = o->has_ranges ? &spans : NULL};
    tg_status s = tg_tokenizer_encode(&ids, t->tokenizer, (tg_str){text, n_bytes}, &how, e);
    /* A long text has been all over the tables, 32 MB with Gemma's vocabulary, and the decoder
     * needs little of them. */
    if (t->map) tg_map_expect_few(t->map);
    if (s == TG_OK && how.add_special) drop_second_bos(t->tokenizer, &ids, &spans);
    if (s == TG_OK) s = take_lists(out, &ids, &spans, o->has_ranges, e);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    return s;
}

void tg_tokens_deinit(tg_tokens *x)
{
    tg_mem_free(x->ids);
    tg_mem_free(x->ranges);
    *x = (tg_tokens){0};
}

/* ---- text out */

tg_status tg_text_detokenize(char **text, size_t *n_bytes, const tg_text *t, const int32_t *ids,
                             int32_t n_ids, bool skip_special, tg_err *e)
{
    *text = NULL;
    *n_bytes = 0;
    TG_TRY(need_tokenizer(t, e));
    if (n_ids < 0) return tg_fail(e, TG_E_ARGUMENT, "%" PRId32 " ids cannot be", n_ids);
    tg_buf b = {0};
    tg_status s = tg_tokenizer_decode(&b, t->tokenizer, ids, (size_t)n_ids, skip_special, e);
    if (s == TG_OK) s = tg_buf_check(&b, e);
    if (s == TG_OK) s = tg_give_text(text, tg_buf_str(&b), e);
    if (s == TG_OK) *n_bytes = b.len;
    tg_buf_deinit(&b);
    return s;
}

struct tg_detokenizer {
    tg_detok detok;
    tg_buf ready;
};

tg_status tg_detokenizer_new(tg_detokenizer **out, const tg_text *t, bool skip_special, tg_err *e)
{
    *out = NULL;
    TG_TRY(need_tokenizer(t, e));
    tg_detokenizer *d = TG_NEW(tg_detokenizer);
    if (!d) return tg_fail_nomem(e, sizeof *d, "a detokenizer");
    tg_detok_init(&d->detok, t->tokenizer, skip_special);
    *out = d;
    return TG_OK;
}

void tg_detokenizer_free(tg_detokenizer *d)
{
    if (!d) return;
    tg_detok_deinit(&d->detok);
    tg_buf_deinit(&d->ready);
    tg_mem_free(d);
}

tg_status tg_detokenizer_push(const char **text, size_t *n_bytes, tg_detokenizer *d, int32_t id,
                              tg_err *e)
{
    tg_buf_clear(&d->ready);
    tg_status s = tg_detok_push(&d->detok, &d->ready, id, e);
    *text = tg_buf_cstr(&d->ready);
    *n_bytes = d->ready.len;
    return s;
}

tg_status tg_detokenizer_flush(const char **text, size_t *n_bytes, tg_detokenizer *d, tg_err *e)
{
    tg_buf_clear(&d->ready);
    tg_status s = tg_detok_flush(&d->detok, &d->ready, e);
    *text = tg_buf_cstr(&d->ready);
    *n_bytes = d->ready.len;
    return s;
}

tg_status tg_text_get_token(tg_token *out, const tg_text *t, int32_t id, tg_err *e)
{
    uint32_t flags = 0;
    *out = (tg_token){0};
    TG_TRY(need_tokenizer(t, e));
    tg_str bytes = tg_tokenizer_get_token(t->tokenizer, id, &flags);
    if (flags & TG_TOKEN_HOLE)
        return tg_fail(e, TG_E_ARGUMENT,
                       "id %" PRId32 " is no token; the vocabulary has ids 0 to %" PRId32, id,
                       tg_tokenizer_n_vocab(t->tokenizer) - 1);
    *out = (tg_token){.bytes = bytes.ptr,
                      .n_bytes = bytes.len,
                      .is_special = flags & TG_TOKEN_SPECIAL,
                      .is_added = flags & TG_TOKEN_ADDED,
                      .is_byte = flags & TG_TOKEN_BYTE};
    return TG_OK;
}

tg_status tg_text_print_token(char **spelling, const tg_text *t, int32_t id, tg_err *e)
{
    tg_token token;
    tg_buf b = {0};
    *spelling = NULL;
    TG_TRY(tg_text_get_token(&token, t, id, e));
    tg_tokenizer_print_token(&b, t->tokenizer, id);
    tg_status s = tg_buf_check(&b, e);
    if (s == TG_OK) s = tg_give_text(spelling, tg_buf_str(&b), e);
    tg_buf_deinit(&b);
    return s;
}

/* ---- chat */

const char *tg_text_get_template_name(const tg_text *t, int32_t i)
{
    TG_ASSERT(i >= 0 && i < tg_text_get_info(t).n_templates);
    return "default";
}

static tg_status get_template(const tg_text *shared, const char *name, const tg_template **out,
                              tg_err *e)
{
    /* The parsed template is a cache behind a lock: the text is read-only to everybody else. */
    tg_text *t = (tg_text *)(uintptr_t)shared;
    if (t->chat.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED, "%s: the model has no chat template", t->path);
    if (name && !tg_str_is(tg_str_from_cstr(name), "default"))
        return tg_fail(e, TG_E_ARGUMENT, "%s: there is no template '%s'; it has: default", t->path,
                       name);
    tg_status s = TG_OK;
    pthread_mutex_lock(&t->lock);
    if (!t->template) s = tg_template_load(&t->template, t->chat, e);
    *out = t->template;
    pthread_mutex_unlock(&t->lock);
    if (s != TG_OK) tg_err_context(e, "%s%s", t->path, t->chat_file);
    return s;
}

/* A variable given as JSON text; null where there is none, as transformers gives None. */
static tg_status set_json(json_t *context, const char *name, const char *text, tg_err *e)
{
    json_t *v = NULL;
    if (text) {
        TG_TRY(tg_json_parse(&v, tg_str_from_cstr(text), name, e));
        if (!json_is_array(v)) {
            json_decref(v);
            return tg_fail(e, TG_E_ARGUMENT, "%s must be a list", name);
        }
    }
    json_object_set_new(context, name, v ? v : json_null());
    return TG_OK;
}

static void set_token(json_t *context, const char *name, const tg_tokenizer *t, int32_t id)
{
    if (id < 0) return;
    tg_buf b = {0};
    tg_tokenizer_print_token(&b, t, id);
    json_object_set_new(context, name, json_stringn(tg_buf_cstr(&b), b.len));
    tg_buf_deinit(&b);
}

static void set_tokens(json_t *context, const tg_tokenizer *t)
{
    set_token(context, "bos_token", t, tg_tokenizer_bos_id(t));
    set_token(context, "eos_token", t, tg_tokenizer_eos_id(t));
    set_token(context, "unk_token", t, tg_tokenizer_unk_id(t));
    set_token(context, "pad_token", t, tg_tokenizer_pad_id(t));
}

/* What the caller adds wins over everything. */
static tg_status add_kwargs(json_t *context, const char *text, tg_err *e)
{
    json_t *more = NULL;
    if (!text) return TG_OK;
    TG_TRY(tg_json_parse(&more, tg_str_from_cstr(text), "template variables", e));
    tg_status s = TG_OK;
    if (!json_is_object(more))
        s = tg_fail(e, TG_E_ARGUMENT, "template variables must be a JSON object");
    else
        json_object_update(context, more);
    json_decref(more);
    return s;
}

static tg_status make_context(json_t *context, const tg_text *t, const char *messages,
                              const tg_chat_options *o, tg_err *e)
{
    TG_TRY(set_json(context, "messages", messages, e));
    if (json_array_size(json_object_get(context, "messages")) == 0)
        return tg_fail(e, TG_E_ARGUMENT, "messages must be a list of at least one message");
    TG_TRY(set_json(context, "tools", o->tools, e));
    TG_TRY(set_json(context, "documents", o->documents, e));
    json_object_set_new(context, "add_generation_prompt", json_boolean(!o->no_generation_prompt));
    if (t->tokenizer) set_tokens(context, t->tokenizer);
    return add_kwargs(context, o->kwargs, e);
}

tg_status tg_text_render_chat(char **text, size_t *n_bytes, const tg_text *t, const char *messages,
                              const tg_chat_options *o, tg_err *e)
{
    static const tg_chat_options defaults;
    const tg_template *template = NULL;
    tg_buf b = {0};
    *text = NULL;
    *n_bytes = 0;
    if (!o) o = &defaults;
    TG_TRY(get_template(t, o->template_name, &template, e));
    json_t *context = json_object();
    if (!context) return tg_fail_nomem(e, sizeof *context, "template variables");
    tg_status s = make_context(context, t, messages, o, e);
    if (s == TG_OK) s = tg_template_render(template, context, NULL, &b, e);
    if (s == TG_OK) s = tg_buf_check(&b, e);
    if (s == TG_OK) s = tg_give_text(text, tg_buf_str(&b), e);
    if (s == TG_OK) *n_bytes = b.len;
    json_decref(context);
    tg_buf_deinit(&b);
    return s;
}
