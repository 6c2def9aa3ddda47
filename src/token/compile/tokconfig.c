/* SPDX-License-Identifier: Apache-2.0 */
#include "token/compile/tokconfig.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char config_name[] = "tokenizer_config.json";
static const char map_name[] = "special_tokens_map.json";
static const char added_name[] = "added_tokens.json";

/* ---- the texts */

static tg_status parse(json_t **out, tg_str text, const char *name, tg_err *e)
{
    if (text.len == 0) return TG_OK;
    TG_TRY(tg_json_parse(out, text, name, e));
    return json_is_object(*out) ? TG_OK : tg_fail(e, TG_E_CORRUPT, "%s is not an object", name);
}

tg_status tg_tok_config_init(tg_tok_config *c, const tg_tokenizer_texts *texts, tg_err *e)
{
    *c = (tg_tok_config){0};
    TG_TRY(parse(&c->config, texts->config, config_name, e));
    TG_TRY(parse(&c->special_map, texts->special_tokens_map, map_name, e));
    return parse(&c->added, texts->added_tokens, added_name, e);
}

void tg_tok_config_deinit(tg_tok_config *c)
{
    json_decref(c->config);
    json_decref(c->special_map);
    json_decref(c->added);
    *c = (tg_tok_config){0};
}

tg_status tg_tok_config_get(const tg_tok_config *c, const char *key, tg_optional_bool *out,
                            tg_err *e)
{
    bool is_on = false, is_present = false;
    TG_TRY(tg_json_get_bool(c->config, key, &is_on, &is_present, config_name, e));
    *out = !is_present ? TG_OPTIONAL_ABSENT : is_on ? TG_OPTIONAL_TRUE : TG_OPTIONAL_FALSE;
    return TG_OK;
}

/* ---- added tokens */

static tg_tok_build_added *find_added(const tg_tok_build *b, int32_t id)
{
    for (int32_t i = 0; i < b->n_added; i++)
        if (b->added[i].id == id) return &b->added[i];
    return NULL;
}

/* The id that a token of this content has by now, or -1. */
static int32_t find_content(const tg_tok_build *b, tg_str content)
{
    for (int32_t i = 0; i < b->n_added; i++)
        if (tg_str_is_equal(b->added[i].content, content)) return b->added[i].id;
    return tg_tok_build_find(b, content);
}

static void mark_added(tg_tok_entry *x, uint32_t flags)
{
    bool is_special = flags & TG_TOK_ADDED_SPECIAL;
    x->flags = (uint16_t)((x->flags & ~TG_TOKEN_SPECIAL) | TG_TOKEN_ADDED |
                          (is_special ? TG_TOKEN_SPECIAL : 0));
}

/* An id that the vocabulary has may be given another content: fine-tuned models rename spare
 * tokens so. The model still knows the old spelling. */
static tg_status add_with_id(tg_tok_build *b, int32_t id, tg_str content, uint32_t flags, tg_err *e)
{
    if (content.len == 0)
        return tg_fail(e, TG_E_CORRUPT, "%s: the added token %" PRId32 " is empty", config_name,
                       id);
    int32_t other = find_content(b, content);
    if (other >= 0 && other != id)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: the added token '%.*s' has id %" PRId32
                       ", and the vocabulary has it as "
                       "%" PRId32,
                       config_name, (int)TG_MIN(content.len, (size_t)100), content.ptr, id, other);
    bool is_new = id >= b->n_entries || !b->entries[id].is_present;
    if (is_new) TG_TRY(tg_tok_build_add_token(b, id, content, 0, e));
    tg_tok_entry *x = &b->entries[id];
    mark_added(x, flags);
    tg_tok_build_added *old = find_added(b, id);
    if (!old) TG_TRY(tg_tok_build_add_added(b, content, id, flags, e));
    tg_tok_build_added *a = old ? old : &b->added[b->n_added - 1];
    if (old && !tg_str_is_equal(old->content, content)) {
        a->content = a->match = tg_tok_build_copy(b, content);
        if (!a->content.ptr) return tg_fail_nomem(e, content.len, "compiling a tokenizer");
    }
    a->flags = flags;
    x->piece = a->content;
    return TG_OK;
}

tg_status tg_tok_config_read_flags(const json_t *item, const char *name, uint32_t *out, tg_err *e)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } flags[] = {
        {"lstrip", TG_TOK_ADDED_LSTRIP},           {"rstrip", TG_TOK_ADDED_RSTRIP},
        {"single_word", TG_TOK_ADDED_SINGLE_WORD}, {"special", TG_TOK_ADDED_SPECIAL},
        {"normalized", TG_TOK_ADDED_NORMALIZED},
    };
    bool is_present = false; /* of the last one, in the end */
    for (size_t i = 0; i < TG_COUNT(flags); i++) {
        bool is_set = false;
        TG_TRY(tg_json_get_bool(item, flags[i].key, &is_set, &is_present, name, e));
        if (is_set) *out |= flags[i].flag;
    }
    if (!is_present && !(*out & TG_TOK_ADDED_SPECIAL)) *out |= TG_TOK_ADDED_NORMALIZED;
    return TG_OK;
}

/* Holes between ids are legal; a table of nothing but holes is an attack on memory. */
static tg_status check_id(const tg_tok_build *b, int64_t id, const char *name, const char *what,
                          tg_err *e)
{
    int64_t limit = TG_MIN((int64_t)TG_TOK_MAX_ID, 4 * (int64_t)b->n_entries + 65536);
    if (id >= 0 && id <= limit) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "%s: the id %.40s is not 0 to %" PRId64, name, what, limit);
}

/* {"0": {"content": ...}}: ids are keys. */
static tg_status add_decoder(tg_tok_build *b, const json_t *decoder, tg_err *e)
{
    static const char name[] = "tokenizer_config.json: added_tokens_decoder";
    const char *key;
    json_t *item, *table;
    memcpy(&table, &decoder, sizeof table); /* jansson's loop takes no const */
    json_object_foreach(table, key, item)
    {
        int64_t id = -1;
        tg_str content = {0};
        bool has_content = false;
        uint32_t flags = 0;
        if (!tg_parse_i64(key, &id)) id = -1;
        TG_TRY(check_id(b, id, name, key, e));
        if (json_is_object(item))
            TG_TRY(tg_json_get_str(item, "content", &content, &has_content, name, e));
        if (!has_content)
            return tg_fail(e, TG_E_CORRUPT, "%s: the token %.40s has no 'content'", name, key);
        TG_TRY(tg_tok_config_read_flags(item, name, &flags, e));
        TG_TRY(add_with_id(b, (int32_t)id, content, flags & ~(uint32_t)TG_TOK_ADDED_NORMALIZED, e));
    }
    return TG_OK;
}

/* {"<x>": 32000}: contents are keys. */
static tg_status add_listed(tg_tok_build *b, json_t *added, tg_err *e)
{
    const char *key;
    json_t *item;
    json_object_foreach(added, key, item)
    {
        int64_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        TG_TRY(check_id(b, id, added_name, key, e));
        TG_TRY(add_with_id(b, (int32_t)id, tg_str_from_cstr(key), 0, e));
    }
    return TG_OK;
}

/* A name of a special token, a string or an object with "content": the token becomes an added one,
 * and special. */
static tg_status add_special(tg_tok_build *b, const json_t *v, const char *key, const char *name,
                             tg_err *e)
{
    uint32_t flags = 0;
    const json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;
    if (!v || json_is_null(v)) return TG_OK;
    if (!json_is_string(text)) return tg_fail(e, TG_E_CORRUPT, "%s: %s is not a token", name, key);
    tg_str content = {json_string_value(text), json_string_length(text)};
    int32_t id = find_content(b, content);
    if (id < 0)
        return tg_fail(e, TG_E_CORRUPT, "%s: %s '%.*s' is not in the vocabulary", name, key,
                       (int)TG_MIN(content.len, (size_t)100), content.ptr);
    const tg_tok_build_added *old = find_added(b, id);
    if (json_is_object(v)) TG_TRY(tg_tok_config_read_flags(v, name, &flags, e));
    if (old) flags |= old->flags;
    flags = (flags & ~(uint32_t)TG_TOK_ADDED_NORMALIZED) | TG_TOK_ADDED_SPECIAL;
    return add_with_id(b, id, content, flags, e);
}

static const char *const named_keys[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                         "sep_token", "cls_token", "mask_token"};

static tg_status add_specials(tg_tok_build *b, const json_t *object, const char *name, tg_err *e)
{
    const json_t *more = json_object_get(object, "additional_special_tokens"), *item;
    size_t i;
    for (i = 0; i < TG_COUNT(named_keys); i++)
        TG_TRY(add_special(b, json_object_get(object, named_keys[i]), named_keys[i], name, e));
    json_array_foreach(more, i, item)
        TG_TRY(add_special(b, item, "additional_special_tokens", name, e));
    return TG_OK;
}

tg_status tg_tok_config_add_listed(tg_tok_build *b, const tg_tok_config *c, tg_err *e)
{
    const json_t *decoder = json_object_get(c->config, "added_tokens_decoder");
    return json_is_object(decoder) ? add_decoder(b, decoder, e) : add_listed(b, c->added, e);
}

tg_status tg_tok_config_add_named(tg_tok_build *b, const tg_tok_config *c, tg_err *e)
{
    TG_TRY(add_specials(b, c->special_map, map_name, e));
    return add_specials(b, c->config, config_name, e);
}

/* ---- beside a tokenizer.json */

/* A token of the config: a string, or an object with "content". */
static tg_str get_content(const json_t *v)
{
    if (json_is_object(v)) v = json_object_get(v, "content");
    return json_is_string(v) ? (tg_str){json_string_value(v), json_string_length(v)}
                             : (tg_str){"", 0};
}

static bool is_named(const tg_tok_config *c, tg_str content)
{
    for (size_t i = 0; i < TG_COUNT(named_keys); i++)
        if (tg_str_is_equal(get_content(json_object_get(c->config, named_keys[i])), content))
            return true;
    return false;
}

/* The added token of this content. The lists of both files mostly have one order, so the search
 * goes on at *next. */
static tg_tok_build_added *find_listed(const tg_tok_build *b, tg_str content, int32_t *next)
{
    for (int32_t i = 0; i < b->n_added; i++) {
        int32_t k = (*next + i) % b->n_added;
        if (!tg_str_is_equal(b->added[k].content, content)) continue;
        *next = k + 1;
        return &b->added[k];
    }
    return NULL;
}

/* As the library does: the id is the content's, or the next free one. */
static tg_status add_by_content(tg_tok_build *b, tg_str content, uint32_t flags, int32_t *next,
                                tg_err *e)
{
    if (content.len == 0) return TG_OK;
    tg_tok_build_added *old = find_listed(b, content, next);
    if (!old) return tg_tok_build_add_added_token(b, content, TG_TOKEN_NONE, flags, e);
    old->flags = flags;
    mark_added(&b->entries[old->id], flags);
    return TG_OK;
}

typedef struct listed {
    int64_t id;
    const json_t *item;
} listed;

static int compare_ids(const void *a, const void *b)
{
    int64_t x = ((const listed *)a)->id, y = ((const listed *)b)->id;
    return (x > y) - (x < y);
}

static tg_status merge_decoder(tg_tok_build *b, const tg_tok_config *c, int32_t *next, tg_err *e)
{
    static const char name[] = "tokenizer_config.json: added_tokens_decoder";
    json_t *decoder = json_object_get(c->config, "added_tokens_decoder"), *item;
    size_t n = json_object_size(decoder), i = 0;
    const char *key;
    listed *list = TG_ARENA_ARRAY(&b->arena, listed, n + 1);
    if (!list) return tg_fail_nomem(e, n * sizeof *list, "compiling a tokenizer");
    json_object_foreach(decoder, key, item)
    {
        if (!tg_parse_i64(key, &list[i].id))
            return tg_fail(e, TG_E_CORRUPT, "%s: '%.40s' is not an id", name, key);
        if (!json_is_string(json_object_get(item, "content")))
            return tg_fail(e, TG_E_CORRUPT, "%s: the token %.40s has no 'content'", name, key);
        list[i++].item = item;
    }
    qsort(list, n, sizeof *list, compare_ids);
    for (i = 0; i < n; i++) {
        tg_str content = get_content(list[i].item);
        uint32_t flags = 0;
        TG_TRY(tg_tok_config_read_flags(list[i].item, name, &flags, e));
        if (is_named(c, content)) flags |= TG_TOK_ADDED_SPECIAL;
        TG_TRY(add_by_content(b, content, flags, next, e));
    }
    return TG_OK;
}

/* A name changes nothing of a token that the files list. */
static tg_status merge_named(tg_tok_build *b, const json_t *v, int32_t *next, tg_err *e)
{
    uint32_t flags = 0;
    tg_str content = get_content(v);
    if (content.len == 0 || find_listed(b, content, next)) return TG_OK;
    if (json_is_object(v)) TG_TRY(tg_tok_config_read_flags(v, config_name, &flags, e));
    return add_by_content(b, content, flags | TG_TOK_ADDED_SPECIAL, next, e);
}

tg_status tg_tok_config_merge(tg_tok_build *b, const tg_tok_config *c, tg_err *e)
{
    static const char *const more[] = {"additional_special_tokens", "extra_special_tokens"};
    int32_t next = 0;
    TG_TRY(merge_decoder(b, c, &next, e));
    for (size_t i = 0; i < TG_COUNT(named_keys); i++)
        TG_TRY(merge_named(b, json_object_get(c->config, named_keys[i]), &next, e));
    for (size_t k = 0; k < TG_COUNT(more); k++) {
        const json_t *list = json_object_get(c->config, more[k]), *item;
        size_t i;
        json_array_foreach(list, i, item) TG_TRY(merge_named(b, item, &next, e));
    }
    return TG_OK;
}

/* ---- names and affixes */

/* bos_token and its like: a string, an object with "content", or null. */
static tg_status find_named(const tg_tok_build *b, const json_t *object, const char *name,
                            const char *key, int32_t *out, tg_err *e)
{
    const json_t *v = json_object_get(object, key);
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (!v || json_is_null(v)) return TG_OK;
    if (!json_is_string(v)) return tg_fail(e, TG_E_CORRUPT, "%s: %s is not a token", name, key);
    tg_str content = {json_string_value(v), json_string_length(v)};
    int32_t id = find_content(b, content);
    if (id < 0)
        return tg_fail(e, TG_E_CORRUPT, "%s: %s '%.*s' is not in the vocabulary", name, key,
                       (int)TG_MIN(content.len, (size_t)100), content.ptr);
    *out = id;
    return TG_OK;
}

static tg_status find_all_named(tg_tok_build *b, const json_t *object, const char *name, tg_err *e)
{
    TG_TRY(find_named(b, object, name, "bos_token", &b->h.bos_id, e));
    TG_TRY(find_named(b, object, name, "eos_token", &b->h.eos_id, e));
    TG_TRY(find_named(b, object, name, "pad_token", &b->h.pad_id, e));
    return b->h.unk_name_id < 0 ? find_named(b, object, name, "unk_token", &b->h.unk_name_id, e)
                                : TG_OK;
}

/* Adds or takes away one id at the front or the end, unless it is as wanted already. */
static tg_status put_affix(tg_tok_build *b, bool is_front, int32_t id, bool wanted, tg_err *e)
{
    tg_ids *list = is_front ? &b->prefix : &b->suffix;
    size_t at = is_front ? 0 : list->len - 1;
    bool has = list->len && list->ptr[at] == id;
    if (id < 0 || has == wanted) return TG_OK;
    if (wanted) {
        tg_ids_push(list, id);
        for (size_t i = list->len - 1; is_front && i > 0 && !list->is_failed; i--) {
            list->ptr[i] = list->ptr[i - 1];
            list->ptr[i - 1] = id;
        }
    } else {
        memmove(list->ptr + at, list->ptr + at + 1, (list->len - at - 1) * sizeof *list->ptr);
        list->len--;
    }
    return tg_ids_check(list, e);
}

/* transformers' own way of cleaning up a text, which it keeps from BPE: there it would take blanks
 * that the text had. */
static tg_status apply_clean_up(tg_tok_build *b, const tg_tok_config *c, tg_err *e)
{
    tg_optional_bool cleans, for_bpe;
    TG_TRY(tg_tok_config_get(c, "clean_up_tokenization_spaces", &cleans, e));
    TG_TRY(tg_tok_config_get(
        c, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", &for_bpe, e));
    if (cleans == TG_OPTIONAL_TRUE && (b->h.model != TG_TOK_BPE || for_bpe == TG_OPTIONAL_TRUE))
        b->h.flags |= TG_TOK_CLEAN_UP;
    return TG_OK;
}

/* These keys stand above the post-processor, as in transformers' fast Llama tokenizer. A BOS that a
 * template writes and one from here are two; keeping one is the business of the caller, who knows
 * where a text comes from. */
tg_status tg_tok_config_apply(tg_tok_build *b, const tg_tok_config *c, tg_err *e)
{
    tg_optional_bool adds;
    TG_TRY(find_all_named(b, c->special_map, map_name, e));
    TG_TRY(find_all_named(b, c->config, config_name, e));
    TG_TRY(tg_tok_config_get(c, "add_bos_token", &adds, e));
    if (adds) TG_TRY(put_affix(b, true, b->h.bos_id, adds == TG_OPTIONAL_TRUE, e));
    TG_TRY(tg_tok_config_get(c, "add_eos_token", &adds, e));
    if (adds) TG_TRY(put_affix(b, false, b->h.eos_id, adds == TG_OPTIONAL_TRUE, e));
    return apply_clean_up(b, c, e);
}
