/* SPDX-License-Identifier: Apache-2.0
 * tokdecode.c - decoders and post-processors of tokenizer.json.
 *
 * A chain of decoders is worked off at compile time as far as tokens go, which gives each token its
 * piece; what works on the whole text (bytes of one stream, the ends) becomes flags that detok.c
 * obeys. `stage` says how far tokens have been joined. */
#include "prompt/tokparts.h"

#include <string.h>

typedef enum stage { STAGE_TOKENS, STAGE_BYTES, STAGE_TEXT } stage;

/* The stage is kept in flags that the chain sets, since a decoder's function sees only the
 * builder. */
enum { DECODER_FUSED = 1 << 29, DECODER_BEGUN = 1 << 30 };

static stage stage_of(const tg_tok_build *b)
{
    if (b->h.flags & (DECODER_FUSED | TG_TOK_LOSSY_BYTES)) return STAGE_TEXT;
    return b->h.flags & TG_TOK_BYTE_RUNS ? STAGE_BYTES : STAGE_TOKENS;
}

/* A decoder that works on tokens can be worked off at compile time only while there are tokens. */
static tg_status need_tokens(const tg_tok_build *b, const tg_tok_place *at, tg_err *e)
{
    return stage_of(b) == STAGE_TOKENS
               ? TG_OK
               : tg_fail(e, TG_E_UNSUPPORTED,
                         "%s stands behind ByteFallback, ByteLevel or Fuse, where it is not built",
                         at->path);
}

/* What a decoder makes of one token's piece; NULL when memory is refused. */
typedef tg_str piece_fn(tg_tok_build *b, tg_str piece, const void *context);

static tg_status map_pieces(tg_tok_build *b, piece_fn *map, const void *context, tg_err *e)
{
    for (int32_t i = 0; i < b->n_entries; i++) {
        tg_tok_entry *x = &b->entries[i];
        if (!x->is_present) continue;
        x->piece = map(b, x->piece, context);
        if (!x->piece.ptr) return tg_fail_nomem(e, x->text.len, "compiling a tokenizer");
    }
    b->h.flags |= DECODER_BEGUN;
    return TG_OK;
}

/* A spelling with a character outside the alphabet prints as it is: so does the library, though a
 * special token spelled with, say, an accent then prints a broken byte. */
static tg_str map_byte_level(tg_tok_build *b, tg_str piece, const void *context)
{
    (void)context;
    tg_str bytes = tg_tok_build_bytes_of(b, piece);
    return bytes.ptr ? bytes : piece;
}

static tg_status add_byte_level(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                tg_err *e)
{
    (void)part;
    TG_TRY(need_tokens(b, at, e));
    TG_TRY(map_pieces(b, map_byte_level, NULL, e));
    b->h.flags |= TG_TOK_LOSSY_BYTES;
    return TG_OK;
}

/* Whatever is spelled <0x..> by now is a byte, declared as one or not. */
static tg_status add_byte_fallback(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                   tg_err *e)
{
    (void)part;
    TG_TRY(need_tokens(b, at, e));
    for (int32_t i = 0; i < b->n_entries; i++) {
        tg_tok_entry *x = &b->entries[i];
        int byte = x->is_present ? tg_tok_parse_byte(x->piece) : -1;
        if (byte < 0) {
            x->flags &= (uint16_t)~TG_TOKEN_BYTE;
            continue;
        }
        char c = (char)byte;
        x->piece = tg_tok_build_copy(b, (tg_str){&c, 1});
        if (!x->piece.ptr) return tg_fail_nomem(e, 1, "compiling a tokenizer");
        x->flags |= TG_TOKEN_BYTE;
    }
    b->h.flags |= TG_TOK_BYTE_RUNS | DECODER_BEGUN;
    return TG_OK;
}

static tg_status add_fuse(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    (void)part;
    (void)at;
    (void)e;
    b->h.flags |= DECODER_FUSED;
    return TG_OK;
}

typedef struct replacement {
    tg_str what, with;
} replacement;

static tg_str map_replace(tg_tok_build *b, tg_str piece, const void *context)
{
    const replacement *r = context;
    tg_buf out = {0};
    size_t n = 0;
    for (size_t i = 0; i < piece.len;) {
        if (tg_str_has_prefix((tg_str){piece.ptr + i, piece.len - i}, r->what)) {
            tg_buf_add_str(&out, r->with);
            i += r->what.len;
            n++;
        } else {
            tg_buf_add_byte(&out, piece.ptr[i++]);
        }
    }
    tg_str s = n ? tg_tok_build_copy(b, tg_buf_str(&out)) : piece;
    if (out.is_failed) s.ptr = NULL;
    tg_buf_deinit(&out);
    return s;
}

static tg_status add_replace(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    replacement r;
    bool is_regex;
    TG_TRY(need_tokens(b, at, e));
    TG_TRY(tg_tok_part_pattern(part, at, &r.what, &is_regex, e));
    TG_TRY(tg_tok_part_str(part, "content", at, &r.with, e));
    if (is_regex || r.what.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s replaces a pattern or nothing, which is not built in a decoder",
                       at->path);
    return map_pieces(b, map_replace, &r, e);
}

typedef struct strip {
    tg_str text;
    int64_t start, stop;
} strip;

static tg_str map_strip(tg_tok_build *b, tg_str piece, const void *context)
{
    (void)b;
    const strip *p = context;
    for (int64_t i = 0; i < p->start && tg_str_has_prefix(piece, p->text); i++)
        piece = (tg_str){piece.ptr + p->text.len, piece.len - p->text.len};
    for (int64_t i = 0; i < p->stop && tg_str_has_suffix(piece, p->text); i++)
        piece.len -= p->text.len;
    return piece;
}

static tg_status add_strip(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    strip p = {0};
    int32_t cp;
    TG_TRY(tg_tok_part_char(part, "content", at, &p.text, &cp, e));
    TG_TRY(tg_json_get_i64(part, "start", &p.start, NULL, at->path, e));
    TG_TRY(tg_json_get_i64(part, "stop", &p.stop, NULL, at->path, e));
    enum { MOST = 1 << 16 };
    if (p.start < 0 || p.stop < 0 || p.start > MOST || p.stop > MOST)
        return tg_fail(e, TG_E_LIMIT, "%s strips fewer than 0 or more than %d characters", at->path,
                       MOST);
    if (stage_of(b) == STAGE_TOKENS) return map_pieces(b, map_strip, &p, e);
    if (stage_of(b) == STAGE_BYTES) return need_tokens(b, at, e);
    tg_tok_header *h = &b->h;
    if ((p.start && h->n_left) || (p.stop && h->n_right))
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s is the second Strip of the text, which is not built", at->path);
    if (p.start) h->n_left = (int32_t)p.start, h->left_cp = cp;
    if (p.stop) h->n_right = (int32_t)p.stop, h->right_cp = cp;
    return TG_OK;
}

/* Marks become blanks, but in the first token they vanish, unless texts get no mark in front. */
static tg_status add_metaspace(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                               tg_err *e)
{
    replacement r = {.with = TG_STR(" ")};
    tg_str scheme = TG_STR("always");
    bool adds = true;
    int32_t cp;
    TG_TRY(tg_tok_part_char(part, "replacement", at, &r.what, &cp, e));
    TG_TRY(tg_json_get_str(part, "prepend_scheme", &scheme, NULL, at->path, e));
    TG_TRY(tg_json_get_bool(part, "add_prefix_space", &adds, NULL, at->path, e));
    /* The first token is made anew from its key while decoding. */
    if ((b->h.flags & (DECODER_BEGUN | DECODER_FUSED)) || (b->h.flags & TG_TOK_BYTE_LEVEL))
        return tg_fail(e, TG_E_UNSUPPORTED, "%s is not the first decoder, where alone it is built",
                       at->path);
    TG_TRY(map_pieces(b, map_replace, &r, e));
    if (adds && !tg_str_is(scheme, "never")) {
        b->h.flags |= TG_TOK_DROP_FIRST;
        b->h.drop_cp = cp;
    }
    return TG_OK;
}

static tg_status add_decoders(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                              tg_err *e);

static const tg_tok_part_row decoders[] = {
    {"Sequence", add_decoders, {"decoders"}},
    {"ByteLevel", add_byte_level, {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"ByteFallback", add_byte_fallback, {0}},
    {"Fuse", add_fuse, {0}},
    {"Replace", add_replace, {"pattern", "content"}},
    {"Strip", add_strip, {"content", "start", "stop"}},
    {"Metaspace",
     add_metaspace,
     {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}},
};

static tg_status add_decoders(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                              tg_err *e)
{
    return tg_tok_part_add_all(b, part, "decoders", at, decoders, TG_COUNT(decoders), e);
}

tg_status tg_tok_add_decoder(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    if (!part || json_is_null(part)) b->h.flags |= TG_TOK_JOIN_SPACES;
    tg_status s = tg_tok_part_add(b, part, at, decoders, TG_COUNT(decoders), e);
    b->h.flags &= ~(uint32_t)(DECODER_FUSED | DECODER_BEGUN);
    return s;
}

/* ---- post-processors: what they do to ids is to put some around the text */

/* Behind one that adds ids the library hands the next a pair of texts, which no file means. */
static tg_status put_around(tg_tok_build *b, const tg_ids *prefix, const tg_ids *suffix,
                            const tg_tok_place *at, tg_err *e)
{
    if (b->has_affix)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s is the second post-processor that adds tokens, which is not built",
                       at->path);
    b->has_affix = true;
    for (size_t i = 0; i < prefix->len; i++)
        tg_ids_push(&b->prefix, prefix->ptr[i]);
    for (size_t i = 0; i < suffix->len; i++)
        tg_ids_push(&b->suffix, suffix->ptr[i]);
    TG_TRY(tg_ids_check(&b->prefix, e));
    return tg_ids_check(&b->suffix, e);
}

static tg_status push_id(const tg_tok_build *b, const json_t *v, const tg_tok_place *at,
                         tg_ids *out, tg_err *e)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || id >= b->n_entries || !b->entries[id].is_present)
        return tg_fail(e, TG_E_CORRUPT, "%s puts an id around the text that is no token", at->path);
    tg_ids_push(out, (int32_t)id);
    return TG_OK;
}

/* All ids of special_tokens[name]. */
static tg_status push_named(const tg_tok_build *b, const json_t *part, tg_str name,
                            const tg_tok_place *at, tg_ids *out, tg_err *e)
{
    const json_t *all = json_object_get(part, "special_tokens");
    const json_t *ids = json_object_get(json_object_getn(all, name.ptr, name.len), "ids"), *id;
    if (!json_is_array(ids))
        return tg_fail(e, TG_E_CORRUPT, "%s.special_tokens has no ids for '%.*s'", at->path,
                       (int)TG_MIN(name.len, (size_t)80), name.ptr);
    size_t i;
    json_array_foreach(ids, i, id) TG_TRY(push_id(b, id, at, out, e));
    return TG_OK;
}

/* Of a template only "single" matters: this engine never encodes pairs of texts. */
static tg_status read_template(const tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                               tg_ids *prefix, tg_ids *suffix, tg_err *e)
{
    const json_t *single = json_object_get(part, "single"), *item;
    int n_texts = 0;
    size_t i;
    if (!json_is_array(single))
        return tg_fail(e, TG_E_CORRUPT, "%s has no list 'single'", at->path);
    json_array_foreach(single, i, item)
    {
        tg_tok_place p = tg_tok_place_under(at, "single", (int64_t)i);
        const json_t *special = json_object_get(item, "SpecialToken");
        const json_t *text = json_object_get(item, "Sequence");
        tg_str id;
        if (!special && !text)
            return tg_fail(e, TG_E_UNSUPPORTED, "%s is neither SpecialToken nor Sequence", p.path);
        TG_TRY(tg_tok_part_str(special ? special : text, "id", &p, &id, e));
        if (special)
            TG_TRY(push_named(b, part, id, at, n_texts ? suffix : prefix, e));
        else if (!tg_str_is(id, "A") || n_texts++)
            return tg_fail(e, TG_E_UNSUPPORTED, "%s.single does not name the text A just once",
                           at->path);
    }
    return n_texts ? TG_OK
                   : tg_fail(e, TG_E_UNSUPPORTED, "%s.single leaves the text out", at->path);
}

static tg_status add_template(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                              tg_err *e)
{
    tg_ids prefix = {0}, suffix = {0};
    tg_status s = read_template(b, part, at, &prefix, &suffix, e);
    if (s == TG_OK) s = put_around(b, &prefix, &suffix, at, e);
    tg_ids_deinit(&prefix);
    tg_ids_deinit(&suffix);
    return s;
}

/* "cls" and "sep": ["</s>", 2]. */
static tg_status add_cls_sep(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    tg_ids prefix = {0}, suffix = {0};
    tg_status s = push_id(b, json_array_get(json_object_get(part, "cls"), 1), at, &prefix, e);
    if (s == TG_OK) s = push_id(b, json_array_get(json_object_get(part, "sep"), 1), at, &suffix, e);
    if (s == TG_OK) s = put_around(b, &prefix, &suffix, at, e);
    tg_ids_deinit(&prefix);
    tg_ids_deinit(&suffix);
    return s;
}

static tg_status add_nothing(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    (void)b;
    (void)part;
    (void)at;
    (void)e;
    return TG_OK; /* moves offsets only */
}

static tg_status add_processors(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                tg_err *e);

static const tg_tok_part_row post_processors[] = {
    {"Sequence", add_processors, {"processors"}},
    {"TemplateProcessing", add_template, {"single", "pair", "special_tokens"}},
    {"ByteLevel", add_nothing, {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"RobertaProcessing", add_cls_sep, {"sep", "cls", "trim_offsets", "add_prefix_space"}},
    {"BertProcessing", add_cls_sep, {"sep", "cls"}},
};

static tg_status add_processors(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                tg_err *e)
{
    return tg_tok_part_add_all(b, part, "processors", at, post_processors,
                               TG_COUNT(post_processors), e);
}

tg_status tg_tok_add_post_processor(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                    tg_err *e)
{
    return tg_tok_part_add(b, part, at, post_processors, TG_COUNT(post_processors), e);
}
