/* SPDX-License-Identifier: Apache-2.0
 * text.c - tokenizer and templates as one object: opened with a model or by itself, text in, text
 * out.
 *
 * Where it came from is forgotten at once: an artifact's files are copied, a source's are
 * compiled into the same bytes in memory, and everything after works on those. */
#include "api/text.h"

#include "api/assets.h"
#include "base/log.h"
#include "base/os.h"
#include "chat/literal.h"
#include "token/run/tokbatch.h"

#include <inttypes.h>
#include <string.h>

/* ---- opening */

/* The spellings that templates write as variables. */
static tg_status set_tokens(tg_chat *c, const tg_tokenizer *t, tg_err *e)
{
    const struct {
        const char *name;
        int32_t id;
    } rows[] = {
        {"bos_token", tg_tokenizer_bos_id(t)},
        {"eos_token", tg_tokenizer_eos_id(t)},
        {"unk_token", tg_tokenizer_unk_id(t)},
        {"pad_token", tg_tokenizer_pad_id(t)},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf b = {0};
        if (rows[i].id < 0) continue;
        tg_tokenizer_print_token(&b, t, rows[i].id);
        tg_status s = tg_buf_check(&b, e);
        if (s == TG_OK) s = tg_chat_set_token(c, rows[i].name, tg_buf_str(&b), e);
        tg_buf_deinit(&b);
        if (s != TG_OK) return s;
    }
    return TG_OK;
}

static tg_status open_tokenizer(tg_text *t, tg_str blob, tg_err *e)
{
    t->blob = blob;
    if (!blob.len) return TG_OK;
    TG_TRY(tg_tokenizer_open(&t->tokenizer, blob.ptr, blob.len, e));
    return set_tokens(t->chat, t->tokenizer, e);
}

tg_status tg_artifact_open_chat(tg_chat **out, const tg_artifact *a, tg_err *e)
{
    const tg_file_map *text = &a->template_map, *named = &a->templates_map;
    return tg_chat_new(out, (tg_str){(const char *)text->data, text->n_bytes},
                       (tg_str){(const char *)named->data, named->n_bytes}, a->path, e);
}

tg_status tg_text_init(tg_text *t, const tg_artifact *a, tg_err *e)
{
    tg_str blob = {(const char *)a->tokenizer_map.data, a->tokenizer_map.n_bytes};
    *t = (tg_text){.path = a->path};
    TG_TRY(tg_artifact_open_chat(&t->chat, a, e));
    tg_status s = open_tokenizer(t, blob, e);
    if (s != TG_OK) tg_err_context(e, "%s/tokenizer.bin", a->path);
    return s;
}

void tg_text_deinit(tg_text *t)
{
    tg_chat_free(t->chat);
    tg_tokenizer_close(t->tokenizer);
}

/* Owns what tg_text_init borrows. */
typedef struct tg_opened_text {
    tg_text text; /* first: the one is the other */
    tg_artifact *artifact;
    tg_assets assets;
    char *path;
} tg_opened_text;

/* Without a tokenizer tokenizer_config.json still spells the tokens that templates write. */
static tg_status set_named_tokens(tg_chat *chat, const tg_checkpoint *c, tg_err *e)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    const json_t *config = tg_checkpoint_get_json(c, TG_HF_TOKENIZER_CONFIG);
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        tg_str token;
        bool is_present;
        TG_TRY(tg_hf_get_token(config, names[i], &token, &is_present,
                               tg_checkpoint_get_part_path(c, TG_HF_TOKENIZER_CONFIG), e));
        if (is_present) TG_TRY(tg_chat_set_token(chat, names[i], token, e));
    }
    return TG_OK;
}

static tg_status open_assets(tg_opened_text *x, const tg_checkpoint *c, tg_err *e)
{
    TG_TRY(tg_assets_read_texts(&x->assets, c, e));
    tg_str blob = tg_buf_str(&x->assets.tokenizer);
    TG_TRY(tg_chat_new(&x->text.chat, tg_buf_str(&x->assets.chat), tg_buf_str(&x->assets.named),
                       x->path, e));
    return blob.len ? open_tokenizer(&x->text, blob, e) : set_named_tokens(x->text.chat, c, e);
}

/* The checkpoint is closed again: the assets are copies. */
static tg_status open_source(tg_opened_text *x, const char *path, tg_err *e)
{
    tg_checkpoint *c;
    TG_TRY(tg_give_text(&x->path, tg_str_from_cstr(path), e));
    x->text.path = x->path;
    TG_TRY(tg_checkpoint_open_texts(&c, path, e));
    tg_status s = open_assets(x, c, e);
    tg_checkpoint_close(c);
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
        s = open_source(x, path, e);
    }
    if (s == TG_OK && !x->text.tokenizer && tg_chat_n_templates(x->text.chat) == 0)
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
    tg_assets_deinit(&x->assets);
    tg_artifact_close(x->artifact);
    tg_mem_free(x->path);
    tg_mem_free(x);
}

tg_text_info tg_text_get_info(const tg_text *t)
{
    tg_text_info info = {.n_templates = tg_chat_n_templates(t->chat),
                         .bos_id = -1,
                         .eos_id = -1,
                         .unk_id = -1,
                         .pad_id = -1};
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

static const tg_tokenize_options default_options;

static tg_status need_tokenizer(const tg_text *t, tg_err *e)
{
    if (t->tokenizer) return TG_OK;
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: the model has no tokenizer; give token ids instead of text", t->path);
}

/* A text that begins with BOS already and gets another by the post-processor keeps the one that
 * it spells. Which ids begin every text is asked of the tokenizer: a file need not name its BOS. */
static void drop_second_bos(const tg_tokenizer *t, tg_ids *ids, tg_spans *spans)
{
    size_t n = (size_t)tg_tokenizer_n_prefix(t);
    if (n == 0 || ids->len < 2 * n || memcmp(ids->ptr, ids->ptr + n, n * sizeof *ids->ptr) != 0)
        return;
    tg_log_warn("the text begins with the token that starts every text; it is used once");
    ids->len -= n;
    memmove(ids->ptr, ids->ptr + n, ids->len * sizeof *ids->ptr);
    if (spans->len < n) return;
    spans->len -= n;
    memmove(spans->ptr, spans->ptr + n, spans->len * sizeof *spans->ptr);
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

static tg_encode_options read_options(const tg_tokenize_options *o)
{
    return (tg_encode_options){.add_special = !o->no_add_special,
                               .parse_special = !o->no_parse_special};
}

tg_status tg_text_tokenize(tg_tokens *out, const tg_text *t, const char *text, size_t n_bytes,
                           const tg_tokenize_options *o, tg_err *e)
{
    if (!o) o = &default_options;
    *out = (tg_tokens){0};
    TG_TRY(need_tokenizer(t, e));
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_encode_options how = read_options(o);
    how.spans = o->has_ranges ? &spans : NULL;
    tg_status s = tg_tokenizer_encode(&ids, t->tokenizer, (tg_str){text, n_bytes}, &how, e);
    if (s == TG_OK && how.add_special) drop_second_bos(t->tokenizer, &ids, &spans);
    if (s == TG_OK) s = take_lists(out, &ids, &spans, o->has_ranges, e);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    return s;
}

/* The input and output lists of a batch; n of each. */
typedef struct tg_batch_lists {
    tg_str *texts;
    tg_ids *ids;
    tg_spans *spans; /* NULL: not asked */
} tg_batch_lists;

static tg_status encode_batch(tg_tokens *out, const tg_batch_lists *x, const tg_text *t, int32_t n,
                              const tg_tokenize_options *o, tg_err *e)
{
    tg_encode_options how = read_options(o);
    int32_t n_threads = o->n_threads;
    if (n_threads == 0) {
        TG_TRY(tg_threads_find(&n_threads, 0, e));
        n_threads = TG_MIN(n_threads, TG_TOKENIZER_MAX_THREADS);
    }
    TG_TRY(
        tg_tokenizer_encode_batch(x->ids, x->spans, t->tokenizer, x->texts, n, &how, n_threads, e));
    for (int32_t i = 0; i < n; i++) {
        tg_spans none = {0}, *spans = x->spans ? &x->spans[i] : &none;
        if (how.add_special) drop_second_bos(t->tokenizer, &x->ids[i], spans);
        TG_TRY(take_lists(&out[i], &x->ids[i], spans, o->has_ranges, e));
    }
    return TG_OK;
}

tg_status tg_text_tokenize_batch(tg_tokens *out, const tg_text *t, const char *const *texts,
                                 const size_t *n_bytes, int32_t n_texts,
                                 const tg_tokenize_options *o, tg_err *e)
{
    if (!o) o = &default_options;
    if (n_texts < 0) return tg_fail(e, TG_E_ARGUMENT, "%" PRId32 " texts cannot be", n_texts);
    for (int32_t i = 0; i < n_texts; i++)
        out[i] = (tg_tokens){0};
    TG_TRY(need_tokenizer(t, e));
    tg_batch_lists x = {.texts = TG_NEW_ARRAY(tg_str, n_texts + 1),
                        .ids = TG_NEW_ARRAY(tg_ids, n_texts + 1),
                        .spans = o->has_ranges ? TG_NEW_ARRAY(tg_spans, n_texts + 1) : NULL};
    tg_status s = TG_OK;
    if (!x.texts || !x.ids || (o->has_ranges && !x.spans))
        s = tg_fail_nomem(e, (size_t)n_texts * sizeof *x.ids, "lists of token ids");
    for (int32_t i = 0; s == TG_OK && i < n_texts; i++)
        x.texts[i] = (tg_str){texts[i], n_bytes[i]};
    if (s == TG_OK) s = encode_batch(out, &x, t, n_texts, o, e);
    for (int32_t i = 0; i < n_texts; i++) {
        if (x.ids) tg_ids_deinit(&x.ids[i]);
        if (x.spans) tg_spans_deinit(&x.spans[i]);
        if (s != TG_OK) tg_tokens_deinit(&out[i]);
    }
    tg_mem_free(x.texts);
    tg_mem_free(x.ids);
    tg_mem_free(x.spans);
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
    if (id < 0 || id >= tg_tokenizer_n_vocab(t->tokenizer))
        return tg_fail(e, TG_E_ARGUMENT,
                       "id %" PRId32 " is no token; the vocabulary has ids 0 to %" PRId32, id,
                       tg_tokenizer_n_vocab(t->tokenizer) - 1);
    *out = (tg_token){.bytes = bytes.ptr,
                      .n_bytes = bytes.len,
                      .is_special = flags & TG_TOKEN_SPECIAL,
                      .is_added = flags & TG_TOKEN_ADDED,
                      .is_byte = flags & TG_TOKEN_BYTE,
                      .is_unused = flags & (TG_TOKEN_UNUSED | TG_TOKEN_HOLE)};
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
    return tg_chat_get_name(t->chat, i);
}

/* A part of the conversation given as JSON text; absent when there is none. */
static tg_status add_json(json_t *parts, const char *name, const char *text, tg_err *e)
{
    json_t *v = NULL;
    if (!text) return TG_OK;
    TG_TRY(tg_json_parse_exact(&v, tg_str_from_cstr(text), name, e));
    return json_object_set_new(parts, name, v) == 0 ? TG_OK : tg_fail_nomem(e, sizeof *v, name);
}

/* How the control tokens are spelled; *texts is to be freed. */
static tg_status list_controls(tg_spellings *out, tg_str **texts, const tg_tokenizer *t, tg_err *e)
{
    int32_t n_added = t ? tg_tokenizer_n_added(t) : 0;
    *out = (tg_spellings){0};
    *texts = TG_NEW_ARRAY(tg_str, n_added + 1);
    if (!*texts) return tg_fail_nomem(e, (size_t)n_added * sizeof **texts, "control tokens");
    for (int32_t i = 0; i < n_added; i++) {
        uint32_t flags;
        tg_str s = tg_tokenizer_get_token(t, tg_tokenizer_added_id(t, i), &flags);
        if ((flags & TG_TOKEN_SPECIAL) && s.len) (*texts)[out->n++] = s;
    }
    out->texts = *texts;
    return TG_OK;
}

/* Appends the prompt; *literal where messages are safe. */
static tg_status render_parts(tg_buf *out, tg_offsets *literal, const tg_text *t, json_t *parts,
                              const char *messages, const tg_chat_options *o, tg_err *e)
{
    static const char variables[] = "template variables";
    TG_TRY(add_json(parts, "messages", messages, e));
    TG_TRY(add_json(parts, "tools", o->tools, e));
    TG_TRY(add_json(parts, "documents", o->documents, e));
    TG_TRY(add_json(parts, variables, o->kwargs, e));
    tg_conversation q = {.messages = json_object_get(parts, "messages"),
                         .tools = json_object_get(parts, "tools"),
                         .documents = json_object_get(parts, "documents"),
                         .kwargs = json_object_get(parts, variables),
                         .template_name = o->template_name,
                         .add_generation_prompt = !o->no_generation_prompt};
    if (!o->safe_messages) {
        TG_TRY(tg_chat_render(out, t->chat, &q, NULL, e));
        return tg_buf_check(out, e);
    }
    tg_spellings controls;
    tg_str *texts;
    TG_TRY(list_controls(&controls, &texts, t->tokenizer, e));
    tg_status s = tg_chat_render_literal(out, literal, t->chat, &q, &controls, e);
    tg_mem_free(texts);
    return s;
}

static tg_status render_chat(tg_buf *out, tg_offsets *literal, const tg_text *t,
                             const char *messages, const tg_chat_options *o, tg_err *e)
{
    static const tg_chat_options defaults;
    json_t *parts = json_object();
    if (!parts) return tg_fail_nomem(e, sizeof *parts, "a conversation");
    tg_status s = render_parts(out, literal, t, parts, messages, o ? o : &defaults, e);
    json_decref(parts);
    return s;
}

tg_status tg_text_render_chat(char **text, size_t *n_bytes, const tg_text *t, const char *messages,
                              const tg_chat_options *o, tg_err *e)
{
    tg_buf b = {0};
    tg_offsets literal = {0};
    *text = NULL;
    *n_bytes = 0;
    tg_status s = render_chat(&b, &literal, t, messages, o, e);
    if (s == TG_OK) s = tg_give_text(text, tg_buf_str(&b), e);
    if (s == TG_OK) *n_bytes = b.len;
    tg_offsets_deinit(&literal);
    tg_buf_deinit(&b);
    return s;
}

/* A tokenizer may make a control token of plain text by itself: where a merge gives one, or where a
 * normalizer makes the spelling out of other characters. */
static tg_status check_controls(const tg_text *t, const tg_ids *ids, const tg_spans *spans,
                                tg_str text, const tg_offsets *literal, tg_err *e)
{
    int32_t k = 0;
    for (size_t i = 0; i < ids->len; i++) {
        uint32_t flags;
        tg_str token = tg_tokenizer_get_token(t->tokenizer, ids->ptr[i], &flags);
        tg_span at = spans->ptr[i];
        while (k < literal->n && literal->at[k] < at.begin)
            k++;
        if (!(flags & TG_TOKEN_SPECIAL) || at.begin == at.end ||
            ids->ptr[i] == tg_tokenizer_unk_id(t->tokenizer))
            continue;
        bool is_spelled = false; /* with the blanks that it swallows */
        for (int32_t from = at.begin; from < at.end && !is_spelled; from++)
            is_spelled =
                tg_str_has_prefix((tg_str){text.ptr + from, (size_t)(at.end - from)}, token);
        if (is_spelled && (k == literal->n || literal->at[k] >= at.end)) continue;
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "the tokenizer makes the control token '%.*s' of plain text at byte %" PRId32
                       " of the prompt, so that messages cannot be kept safe",
                       (int)TG_MIN(token.len, 60u), token.ptr, at.begin);
    }
    return TG_OK;
}

tg_status tg_text_tokenize_chat(tg_tokens *out, const tg_text *t, const char *messages,
                                const tg_chat_options *o, tg_err *e)
{
    tg_buf b = {0};
    tg_offsets literal = {0};
    tg_ids ids = {0};
    tg_spans spans = {0};
    bool is_safe = o && o->safe_messages;
    *out = (tg_tokens){0};
    TG_TRY(need_tokenizer(t, e));
    tg_status s = render_chat(&b, &literal, t, messages, o, e);
    tg_encode_options how = {.parse_special = true,
                             .spans = is_safe ? &spans : NULL,
                             .literal = literal.at,
                             .n_literal = literal.n};
    if (s == TG_OK) s = tg_tokenizer_encode(&ids, t->tokenizer, tg_buf_str(&b), &how, e);
    if (s == TG_OK && is_safe) s = check_controls(t, &ids, &spans, tg_buf_str(&b), &literal, e);
    if (s == TG_OK) s = take_lists(out, &ids, &spans, false, e);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    tg_offsets_deinit(&literal);
    tg_buf_deinit(&b);
    return s;
}
