/* SPDX-License-Identifier: Apache-2.0 */
#include "api/assets.h"

#include "base/log.h"
#include "chat/chat.h"
#include "format/tensor.h"
#include "run/token_counts.h"
#include "token/compile/tokcompile.h"

#include <string.h>

/* ---- tokenizers */

static tg_status get_optional_bool(const tg_gguf *g, const char *key, tg_optional_bool *out,
                                   tg_err *e)
{
    bool is_on = false, is_present;
    TG_TRY(tg_gguf_get_bool(g, key, &is_on, &is_present, e));
    *out = !is_present ? TG_OPTIONAL_ABSENT : is_on ? TG_OPTIONAL_TRUE : TG_OPTIONAL_FALSE;
    return TG_OK;
}

static tg_status get_id(const tg_gguf *g, const char *key, int64_t *out, tg_err *e)
{
    bool is_present;
    *out = TG_TOKEN_NONE;
    return tg_gguf_get_i64(g, key, out, &is_present, e);
}

static tg_status read_givens(tg_gguf_vocab *v, const tg_gguf *g, tg_err *e)
{
    const struct {
        const char *key;
        tg_optional_bool *at;
    } givens[] = {
        {"tokenizer.ggml.add_bos_token", &v->add_bos},
        {"tokenizer.ggml.add_eos_token", &v->add_eos},
        {"tokenizer.ggml.add_sep_token", &v->add_sep},
        {"tokenizer.ggml.add_space_prefix", &v->add_space_prefix},
        {"tokenizer.ggml.remove_extra_whitespaces", &v->remove_extra_whitespaces},
        {"tokenizer.ggml.normalizer.lowercase", &v->lowercase},
        {"tokenizer.ggml.normalizer.strip_accents", &v->strip_accents},
    };
    for (size_t i = 0; i < TG_COUNT(givens); i++)
        TG_TRY(get_optional_bool(g, givens[i].key, givens[i].at, e));
    return TG_OK;
}

/* An array of bytes, signed or not: borrowed from the file. */
static tg_status read_charsmap(tg_str *out, const tg_gguf *g, tg_err *e)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const tg_gguf_kv *kv = tg_gguf_find(g, key);
    if (!kv) return TG_OK;
    if (!kv->is_array || (kv->type != TG_GGUF_U8 && kv->type != TG_GGUF_I8))
        return tg_fail(e, TG_E_CORRUPT, "%s: key '%s' is not an array of bytes", g->file, key);
    *out = (tg_str){(const char *)kv->data, kv->n_bytes};
    return TG_OK;
}

static tg_status read_gguf_vocab(tg_gguf_vocab *v, const tg_gguf *g, tg_arena *a, tg_err *e)
{
    tg_str *tokens = NULL, *merges = NULL;
    float *scores = NULL;
    int32_t *types = NULL;
    int64_t n_tokens = 0, n_merges = 0, n_scores = 0, n_types = 0;
    bool is_present;
    *v = (tg_gguf_vocab){0};
    TG_TRY(tg_gguf_get_str(g, "tokenizer.ggml.model", &v->model, &is_present, e));
    if (!is_present) return TG_OK;
    TG_TRY(tg_gguf_get_str(g, "general.name", &v->model_name, &is_present, e));
    TG_TRY(tg_gguf_get_str(g, "tokenizer.ggml.pre", &v->pre, &is_present, e));
    TG_TRY(tg_gguf_get_strs(g, "tokenizer.ggml.tokens", a, &tokens, &n_tokens, &is_present, e));
    TG_TRY(tg_gguf_get_strs(g, "tokenizer.ggml.merges", a, &merges, &n_merges, &is_present, e));
    TG_TRY(tg_gguf_get_f32s(g, "tokenizer.ggml.scores", a, &scores, &n_scores, &is_present, e));
    TG_TRY(tg_gguf_get_i32s(g, "tokenizer.ggml.token_type", a, &types, &n_types, &is_present, e));
    if ((scores && n_scores != n_tokens) || (types && n_types != n_tokens))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: the vocabulary has %lld tokens but %lld scores and %lld types", g->file,
                       (long long)n_tokens, (long long)n_scores, (long long)n_types);
    v->tokens = tokens;
    v->merges = merges;
    v->scores = scores;
    v->types = types;
    v->n_tokens = (int32_t)n_tokens;
    v->n_merges = (int32_t)n_merges;
    TG_TRY(get_id(g, "tokenizer.ggml.bos_token_id", &v->bos_id, e));
    TG_TRY(get_id(g, "tokenizer.ggml.eos_token_id", &v->eos_id, e));
    TG_TRY(get_id(g, "tokenizer.ggml.unknown_token_id", &v->unk_id, e));
    TG_TRY(get_id(g, "tokenizer.ggml.padding_token_id", &v->pad_id, e));
    TG_TRY(get_id(g, "tokenizer.ggml.cls_token_id", &v->cls_id, e));
    TG_TRY(get_id(g, "tokenizer.ggml.seperator_token_id", &v->sep_id, e)); /* so spelled there */
    TG_TRY(read_charsmap(&v->charsmap, g, e));
    return read_givens(v, g, e);
}

static tg_status compile_gguf(tg_buf *blob, const tg_gguf *g, tg_err *e)
{
    tg_arena a = {0};
    tg_gguf_vocab v;
    tg_status s = read_gguf_vocab(&v, g, &a, e);
    if (s == TG_OK && v.model.len > 0) {
        s = tg_tokenizer_compile_gguf(blob, &v, e);
        if (s != TG_OK) tg_err_context(e, "%s", g->file);
    }
    tg_arena_deinit(&a);
    return s;
}

/* The vocabulary of a folder: the checkpoint has chosen one of its files. A tokenizer.model is in
 * SentencePiece's format or in tiktoken's. */
static tg_status compile_folder(tg_buf *blob, const tg_checkpoint *c, tg_hf_part *part, tg_err *e)
{
    static const tg_hf_part vocabularies[] = {TG_HF_TOKENIZER, TG_HF_TOKENIZER_MODEL,
                                              TG_HF_TIKTOKEN, TG_HF_VOCAB};
    tg_tokenizer_texts texts = {
        .config = tg_checkpoint_get_text(c, TG_HF_TOKENIZER_CONFIG),
        .special_tokens_map = tg_checkpoint_get_text(c, TG_HF_SPECIAL_TOKENS_MAP),
        .added_tokens = tg_checkpoint_get_text(c, TG_HF_ADDED_TOKENS),
    };
    tg_str file = {0};
    for (size_t i = 0; i < TG_COUNT(vocabularies) && file.len == 0; i++) {
        *part = vocabularies[i];
        file = tg_checkpoint_get_text(c, *part);
    }
    if (file.len == 0) return TG_OK;
    if (*part == TG_HF_TOKENIZER) return tg_tokenizer_compile_json(blob, file, texts.config, e);
    tg_log_note("load", "the tokenizer is read from %s", tg_checkpoint_get_part_path(c, *part));
    if (*part == TG_HF_VOCAB) {
        tg_str merges = tg_checkpoint_get_text(c, TG_HF_MERGES);
        if (merges.ptr) return tg_tokenizer_compile_merges(blob, file, merges, &texts, e);
        return tg_fail(e, TG_E_CORRUPT,
                       "is of no use without merges.txt, which is missing: fetch it");
    }
    return tg_tokenizer_is_tiktoken(file)
               ? tg_tokenizer_compile_tiktoken(blob, file, &texts, e)
               : tg_tokenizer_compile_sentencepiece(blob, file, &texts, e);
}

static tg_status compile_tokenizer(tg_buf *blob, const tg_checkpoint *c, tg_err *e)
{
    const tg_gguf *g = tg_checkpoint_get_gguf(c);
    tg_hf_part part;
    if (g) return compile_gguf(blob, g, e);
    tg_status s = compile_folder(blob, c, &part, e);
    if (s != TG_OK) tg_err_context(e, "%s", tg_checkpoint_get_part_path(c, part));
    return s;
}

/* ---- chat templates */

/* Adds one by its name; the default one goes to a file of its own. */
static tg_status add_template(tg_assets *p, json_t *named, tg_str name, tg_str text, tg_err *e)
{
    char key[128];
    if (name.len == 0 || name.len >= sizeof key || !tg_name_is_printable(name))
        return tg_fail(e, TG_E_CORRUPT,
                       "a chat template has a name of %zu bytes; 1 to %zu printable "
                       "ones are allowed",
                       name.len, sizeof key - 1);
    if (text.len > TG_TEMPLATE_MAX_BYTES)
        return tg_fail(e, TG_E_LIMIT,
                       "the chat template '%.*s' of %zu bytes is longer than the limit of %d",
                       (int)name.len, name.ptr, text.len, TG_TEMPLATE_MAX_BYTES);
    if (tg_utf8_find_invalid(text) < text.len)
        return tg_fail(e, TG_E_CORRUPT, "the chat template '%.*s' is not UTF-8 at byte %zu",
                       (int)name.len, name.ptr, tg_utf8_find_invalid(text));
    if (tg_str_is(name, "default")) {
        tg_buf_clear(&p->chat);
        tg_buf_add_str(&p->chat, text);
        return tg_buf_check(&p->chat, e);
    }
    memcpy(key, name.ptr, name.len);
    key[name.len] = 0;
    if (json_object_set_new(named, key, json_stringn(text.ptr, text.len)) == 0) return TG_OK;
    return tg_fail_nomem(e, text.len, "a chat template");
}

/* "chat_template" of a JSON file: a string, or a list of {"name", "template"}. With `is_default`
 * nothing but the default counts. */
static tg_status add_config_templates(tg_assets *p, json_t *named, const json_t *config,
                                      bool is_default, tg_err *e)
{
    const json_t *t = json_object_get(config, "chat_template"), *item;
    size_t i;
    if (json_is_string(t))
        return add_template(p, named, TG_STR("default"),
                            (tg_str){json_string_value(t), json_string_length(t)}, e);
    if (t && !json_is_null(t) && !json_is_array(t))
        return tg_fail(e, TG_E_CORRUPT, "key 'chat_template' is neither a text nor a list");
    json_array_foreach(t, i, item)
    {
        const json_t *name = json_object_get(item, "name"),
                     *text = json_object_get(item, "template");
        if (!json_is_string(name) || !json_is_string(text))
            return tg_fail(e, TG_E_CORRUPT,
                           "chat_template[%zu] is no object with a \"name\" and a \"template\"", i);
        tg_str key = tg_str_from_cstr(json_string_value(name));
        if (is_default && !tg_str_is(key, "default")) continue;
        TG_TRY(add_template(p, named, key,
                            (tg_str){json_string_value(text), json_string_length(text)}, e));
    }
    return TG_OK;
}

/* Files win over what tokenizer_config.json says, as in transformers: chat_template.jinja over all
 * of it, the folder of further templates over its other names. chat_template.json, which processors
 * wrote before there was a .jinja, counts only where nothing else does. */
static tg_status read_hf_templates(tg_assets *p, json_t *named, const tg_checkpoint *c, tg_err *e)
{
    tg_str text = tg_checkpoint_get_text(c, TG_HF_CHAT_TEMPLATE);
    int32_t n = tg_checkpoint_n_templates(c);
    tg_hf_part part = text.ptr ? TG_HF_CHAT_TEMPLATE : TG_HF_TOKENIZER_CONFIG;
    tg_status s = TG_OK;
    if (text.ptr)
        s = add_template(p, named, TG_STR("default"), text, e);
    else
        s = add_config_templates(p, named, tg_checkpoint_get_json(c, part), n > 0, e);
    if (s == TG_OK && !text.ptr && n == 0 && p->chat.len == 0 && json_object_size(named) == 0) {
        part = TG_HF_CHAT_CONFIG;
        s = add_config_templates(p, named, tg_checkpoint_get_json(c, part), false, e);
    }
    if (s != TG_OK) tg_err_context(e, "%s", tg_checkpoint_get_part_path(c, part));
    for (int32_t i = 0; i < n && s == TG_OK; i++) {
        const tg_named_text *t = tg_checkpoint_get_template(c, i);
        s = add_template(p, named, tg_str_from_cstr(t->name), t->text, e);
        if (s != TG_OK) tg_err_context(e, "%s", tg_checkpoint_get_path(c));
    }
    return s;
}

static tg_status add_gguf_template(tg_assets *p, json_t *named, const tg_gguf *g, tg_str name,
                                   tg_str text, tg_err *e)
{
    tg_status s = add_template(p, named, name, text, e);
    if (s != TG_OK) tg_err_context(e, "%s", g->file);
    return s;
}

/* tokenizer.chat_template, and .chat_template.NAME for each further one. */
static tg_status read_gguf_templates(tg_assets *p, json_t *named, const tg_gguf *g, tg_err *e)
{
    static const char prefix[] = "tokenizer.chat_template.";
    tg_str text = {0};
    bool is_present;
    TG_TRY(tg_gguf_get_str(g, "tokenizer.chat_template", &text, &is_present, e));
    if (is_present) TG_TRY(add_gguf_template(p, named, g, TG_STR("default"), text, e));
    for (int32_t i = 0; i < g->n_kvs; i++) {
        tg_str key = g->kvs[i].key;
        if (!tg_str_has_prefix(key, TG_STR("tokenizer.chat_template."))) continue;
        if (!tg_gguf_read_str(&g->kvs[i], &text))
            return tg_fail(e, TG_E_CORRUPT, "%s: key '%.*s' is no text", g->file,
                           (int)TG_MIN(key.len, 100u), key.ptr);
        tg_str name = {key.ptr + sizeof prefix - 1, key.len - (sizeof prefix - 1)};
        TG_TRY(add_gguf_template(p, named, g, name, text, e));
    }
    return TG_OK;
}

/* A template that cannot be used is no reason to refuse the model, but to say so. */
static tg_status check_templates(const tg_assets *p, const tg_checkpoint *c, tg_err *e)
{
    tg_chat *chat = NULL;
    tg_err why = {0};
    TG_TRY(tg_chat_new(&chat, tg_buf_str(&p->chat), tg_buf_str(&p->named),
                       tg_checkpoint_get_path(c), e));
    if (tg_chat_check(chat, &why) != TG_OK)
        tg_log_warn("%s; the model continues text, and chat refuses", why.msg);
    tg_chat_free(chat);
    return TG_OK;
}

static tg_status read_templates(tg_assets *p, const tg_checkpoint *c, tg_err *e)
{
    const tg_gguf *g = tg_checkpoint_get_gguf(c);
    json_t *named = json_object();
    if (!named) return tg_fail_nomem(e, sizeof *named, "chat templates");
    tg_status s = g ? read_gguf_templates(p, named, g, e) : read_hf_templates(p, named, c, e);
    if (s == TG_OK && json_object_size(named) > 0) s = tg_json_print(&p->named, named, 1, e);
    json_decref(named);
    return s;
}

/* ---- stop ids and sampling */

/* `source` is the key that names it, for a message about an id that the model lacks. */
static void add_stop_id(tg_assets *p, int64_t id, const char *source)
{
    json_t *ids = json_object_get(p->defaults, "stop_ids");
    size_t i;
    const json_t *x;
    if (id < 0) return;
    json_array_foreach(ids, i, x) if (json_integer_value(x) == id) return;
    json_array_append_new(ids, json_integer(id));
    json_array_append_new(p->stop_sources, json_string(source));
}

/* transformers' -1 says: none. */
static bool is_stop_id(const json_t *x)
{
    return json_is_integer(x) && json_integer_value(x) >= -1;
}

/* "eos_token_id": one id or a list. */
static tg_status add_eos_of(tg_assets *p, const tg_checkpoint *c, tg_hf_part part, tg_err *e)
{
    const char *source = part == TG_HF_CONFIG ? "eos_token_id of config.json"
                                              : "eos_token_id of generation_config.json";
    const json_t *eos = json_object_get(tg_checkpoint_get_json(c, part), "eos_token_id"), *x;
    size_t i;
    if (!eos || json_is_null(eos)) return TG_OK;
    if (is_stop_id(eos)) {
        add_stop_id(p, json_integer_value(eos), source);
        return TG_OK;
    }
    json_array_foreach(eos, i, x)
    {
        if (!is_stop_id(x)) break;
        add_stop_id(p, json_integer_value(x), source);
    }
    if (!json_is_array(eos) || i < json_array_size(eos))
        return tg_fail(e, TG_E_CORRUPT, "%s: key 'eos_token_id' is neither an id nor a list of ids",
                       tg_checkpoint_get_part_path(c, part));
    return TG_OK;
}

static tg_status add_gguf_stops(tg_assets *p, const tg_gguf *g, tg_err *e)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < TG_COUNT(keys); i++) {
        int64_t id = -1;
        bool is_present;
        TG_TRY(tg_gguf_get_i64(g, keys[i], &id, &is_present, e));
        if (is_present) add_stop_id(p, id, keys[i]);
    }
    return TG_OK;
}

/* Ends of turns that files forget to name, by their spellings. */
static void add_known_stops(tg_assets *p, const tg_tokenizer *t)
{
    static const char *const spellings[] = {"<|im_end|>",    "<|eot_id|>", "<|eom_id|>",
                                            "<end_of_turn>", "<|end|>",    "<|endoftext|>"};
    for (size_t i = 0; i < TG_COUNT(spellings); i++) {
        uint32_t flags = 0;
        int32_t id = tg_tokenizer_find_token(t, tg_str_from_cstr(spellings[i]));
        if (id != TG_TOKEN_NONE) tg_tokenizer_get_token(t, id, &flags);
        if (flags & TG_TOKEN_SPECIAL) add_stop_id(p, id, spellings[i]);
    }
}

/* The largest id that plain text can become, and one. */
static int32_t find_n_plain(const tg_tokenizer *t)
{
    for (int32_t id = tg_tokenizer_n_vocab(t) - 1; id >= 0; id--) {
        uint32_t flags = 0;
        tg_tokenizer_get_token(t, id, &flags);
        if (!(flags & (TG_TOKEN_SPECIAL | TG_TOKEN_ADDED | TG_TOKEN_HOLE))) return id + 1;
    }
    return 0;
}

static tg_status find_unused(tg_assets *p, const tg_tokenizer *t, tg_err *e)
{
    for (int32_t id = 0; id < p->n_sampled; id++) {
        uint32_t flags;
        tg_tokenizer_get_token(t, id, &flags);
        if (flags & TG_TOKEN_UNUSED) tg_ids_push(&p->unused, id);
    }
    return tg_ids_check(&p->unused, e);
}

static tg_status ask_tokenizer(tg_assets *p, tg_err *e)
{
    tg_tokenizer *t;
    if (p->tokenizer.len == 0) return TG_OK;
    TG_TRY(tg_tokenizer_open(&t, p->tokenizer.ptr, p->tokenizer.len, e));
    p->n_vocab = tg_tokenizer_n_vocab(t);
    p->n_sampled = p->n_vocab;
    while (p->n_sampled > 1) { /* rows of padding at the end */
        uint32_t flags;
        tg_tokenizer_get_token(t, p->n_sampled - 1, &flags);
        if (!(flags & (TG_TOKEN_HOLE | TG_TOKEN_UNUSED))) break;
        p->n_sampled--;
    }
    tg_status s = find_unused(p, t, e);
    p->n_plain = find_n_plain(t);
    add_stop_id(p, tg_tokenizer_eos_id(t), "the tokenizer's end of text");
    add_known_stops(p, t);
    for (int32_t i = 0; tg_tokenizer_find_warning(t, i); i++)
        tg_log_warn("tokenizer: %s", tg_tokenizer_find_warning(t, i));
    tg_tokenizer_close(t);
    return s;
}

/* The recommendation of generation_config.json, with transformers' own defaults where it is silent:
 * a missing temperature is 1 and a missing top_k 50. */
static tg_status read_sampling(json_t *defaults, const tg_checkpoint *c, tg_err *e)
{
    const json_t *config = tg_checkpoint_get_json(c, TG_HF_GENERATION_CONFIG);
    const char *path = tg_checkpoint_get_part_path(c, TG_HF_GENERATION_CONFIG);
    bool is_sampling = false, is_present;
    double temperature = 1, top_p = 1, min_p = 0, penalty = 1;
    int64_t top_k = 50;
    TG_TRY(tg_json_get_bool(config, "do_sample", &is_sampling, &is_present, path, e));
    TG_TRY(tg_json_get_f64(config, "temperature", &temperature, &is_present, path, e));
    TG_TRY(tg_json_get_f64(config, "top_p", &top_p, &is_present, path, e));
    TG_TRY(tg_json_get_f64(config, "min_p", &min_p, &is_present, path, e));
    TG_TRY(tg_json_get_f64(config, "repetition_penalty", &penalty, &is_present, path, e));
    TG_TRY(tg_json_get_i64(config, "top_k", &top_k, &is_present, path, e));
    if (!is_sampling) return TG_OK;
    tg_sample_params params = {.temperature = (float)temperature,
                               .top_p = (float)top_p,
                               .min_p = (float)min_p,
                               .repeat_penalty = (float)penalty,
                               .top_k = (int32_t)TG_MAX(TG_MIN(top_k, INT32_MAX), -1)};
    tg_status in_range = tg_sample_check(&params, e);
    if (in_range != TG_OK) {
        tg_err_context(e, "%s", path);
        return in_range;
    }
    json_t *s =
        json_pack("{s:f, s:f, s:f, s:f, s:I}", "temperature", temperature, "top_p", top_p, "min_p",
                  min_p, "repeat_penalty", penalty, "top_k", (json_int_t)params.top_k);
    return json_object_set_new(defaults, "sampling", s) == 0
               ? TG_OK
               : tg_fail_nomem(e, sizeof s, "sampling defaults");
}

static tg_status read_defaults(tg_assets *p, const tg_checkpoint *c, tg_err *e)
{
    const tg_gguf *g = tg_checkpoint_get_gguf(c);
    p->defaults = json_object();
    p->stop_sources = json_array();
    json_t *ids = json_array();
    if (!p->defaults || !p->stop_sources || json_object_set_new(p->defaults, "stop_ids", ids) != 0)
        return tg_fail_nomem(e, sizeof ids, "defaults");
    if (g) {
        TG_TRY(add_gguf_stops(p, g, e));
    } else {
        TG_TRY(add_eos_of(p, c, TG_HF_GENERATION_CONFIG, e));
        TG_TRY(add_eos_of(p, c, TG_HF_CONFIG, e));
        TG_TRY(read_sampling(p->defaults, c, e));
    }
    return ask_tokenizer(p, e);
}

tg_status tg_assets_check_ids(const tg_assets *p, const tg_checkpoint *c, int32_t n_vocab,
                              tg_err *e)
{
    const json_t *ids = json_object_get(p->defaults, "stop_ids"), *x;
    const char *path = tg_checkpoint_get_path(c);
    size_t i;
    json_array_foreach(ids, i, x)
    {
        json_int_t id = json_integer_value(x);
        if (id >= n_vocab)
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: token %lld ends a completion (%s), but the model's ids end at %d; "
                           "correct the key",
                           path, (long long)id,
                           json_string_value(json_array_get(p->stop_sources, i)), n_vocab - 1);
    }
    if (p->n_plain <= n_vocab) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT,
                   "%s: the tokenizer makes ids up to %d of plain text, but the model's end at %d: "
                   "correct vocab_size, or take the tokenizer of this model",
                   path, p->n_plain - 1, n_vocab - 1);
}

tg_status tg_assets_read_texts(tg_assets *out, const tg_checkpoint *c, tg_err *e)
{
    *out = (tg_assets){0};
    tg_status s = compile_tokenizer(&out->tokenizer, c, e);
    if (s == TG_OK) s = read_templates(out, c, e);
    if (s != TG_OK) tg_assets_deinit(out);
    return s;
}

tg_status tg_assets_read(tg_assets *out, const tg_checkpoint *c, tg_err *e)
{
    TG_TRY(tg_assets_read_texts(out, c, e));
    tg_status s = check_templates(out, c, e);
    if (s == TG_OK) s = read_defaults(out, c, e);
    if (s == TG_OK && out->tokenizer.len == 0)
        tg_log_warn("%s: has no tokenizer; the model will take and give token ids only",
                    tg_checkpoint_get_path(c));
    if (s != TG_OK) tg_assets_deinit(out);
    return s;
}

void tg_assets_deinit(tg_assets *p)
{
    tg_buf_deinit(&p->tokenizer);
    tg_ids_deinit(&p->unused);
    tg_buf_deinit(&p->chat);
    tg_buf_deinit(&p->named);
    json_decref(p->defaults);
    json_decref(p->stop_sources);
    *p = (tg_assets){0};
}
