/* SPDX-License-Identifier: Apache-2.0
 * tokdecode.c - decoders and post-processors of tokenizer.json.
 *
 * A chain of decoders is worked off at compile time as far as tokens go, which gives each token its
 * piece; what works on the whole text (bytes of one stream, the ends) becomes flags that detok.c
 * obeys. `stage` says how far tokens have been joined. */
#include "token/compile/tokparts.h"

#include <string.h>

typedef enum stage { STAGE_TOKENS, STAGE_BYTES, STAGE_TEXT } stage;

/* The stage is kept in flags that the chain sets, since a decoder's function sees only the
 * builder. */
enum { DECODER_FILTERED = 1 << 28, DECODER_FUSED = 1 << 29, DECODER_BEGUN = 1 << 30 };

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

/* What a decoder makes of one token's piece at an end of the text (TG_TOK_AT_*); NULL when memory
 * is refused. */
typedef tg_str piece_fn(tg_tok_build *b, tg_str piece, const void *context, int end);

/* A token that is the same everywhere, before and after, is made once. */
static tg_status map_entry(tg_tok_build *b, tg_tok_entry *x, piece_fn *map, const void *context,
                           bool is_placed)
{
    tg_str old = x->piece;
    x->piece = map(b, old, context, 0);
    bool is_done = x->piece.ptr != NULL;
    for (int k = 0; k < 3 && is_done; k++) {
        if (!is_placed && !tg_tok_entry_has_end(x, k)) continue;
        tg_str end = map(b, tg_tok_entry_has_end(x, k) ? x->ends[k] : old, context, k + 1);
        is_done = end.ptr != NULL;
        if (is_done && tg_str_is_equal(end, x->piece)) end.ptr = NULL;
        if (!end.ptr && !tg_tok_entry_has_end(x, k)) continue;
        if (!x->ends) x->ends = TG_ARENA_ARRAY(&b->arena, tg_str, 3);
        if (!x->ends) return TG_E_NOMEM;
        x->ends[k] = end;
    }
    return is_done ? TG_OK : TG_E_NOMEM;
}

/* `is_placed`: the decoder looks at where a token stands. */
static tg_status map_pieces(tg_tok_build *b, piece_fn *map, const void *context, bool is_placed,
                            tg_err *e)
{
    for (int32_t i = 0; i < b->n_entries; i++) {
        tg_tok_entry *x = &b->entries[i];
        if (x->is_present && map_entry(b, x, map, context, is_placed) != TG_OK)
            return tg_fail_nomem(e, x->text.len, "compiling a tokenizer");
    }
    b->h.flags |= DECODER_BEGUN;
    return TG_OK;
}

/* A spelling with a character outside the alphabet prints as it is: so does the library, though a
 * special token spelled with, say, an accent then prints a broken byte. */
static tg_str map_byte_level(tg_tok_build *b, tg_str piece, const void *context, int end)
{
    (void)context;
    (void)end;
    tg_str bytes = tg_tok_build_bytes_of(b, piece);
    return bytes.ptr ? bytes : piece;
}

static tg_status add_byte_level(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                tg_err *e)
{
    (void)part;
    TG_TRY(need_tokens(b, at, e));
    TG_TRY(map_pieces(b, map_byte_level, NULL, false, e));
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
        for (int k = 0; k < 3; k++)
            if (tg_tok_entry_has_end(x, k) && (byte >= 0 || tg_tok_parse_byte(x->ends[k]) >= 0))
                return tg_fail(e, TG_E_UNSUPPORTED,
                               "%s makes a byte of token '%.*s' at an end of the text only, which "
                               "is not built",
                               at->path, (int)TG_MIN(x->text.len, (size_t)80), x->text.ptr);
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

static tg_str replace_all(tg_tok_build *b, tg_str text, tg_str what, tg_str with)
{
    tg_buf out = {0};
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        if (tg_str_has_prefix((tg_str){text.ptr + i, text.len - i}, what)) {
            tg_buf_add_str(&out, with);
            i += what.len;
            n++;
        } else {
            tg_buf_add_byte(&out, text.ptr[i++]);
        }
    }
    tg_str s = n ? tg_tok_build_copy(b, tg_buf_str(&out)) : text;
    if (out.is_failed) s.ptr = NULL;
    tg_buf_deinit(&out);
    return s;
}

static tg_str map_replace(tg_tok_build *b, tg_str piece, const void *context, int end)
{
    (void)end;
    const replacement *r = context;
    return replace_all(b, piece, r->what, r->with);
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
    return map_pieces(b, map_replace, &r, false, e);
}

typedef struct strip {
    tg_str text;
    int64_t start, stop;
} strip;

static tg_str map_strip(tg_tok_build *b, tg_str piece, const void *context, int end)
{
    (void)b;
    (void)end;
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
    if (stage_of(b) == STAGE_TOKENS) return map_pieces(b, map_strip, &p, false, e);
    if (stage_of(b) == STAGE_BYTES) return need_tokens(b, at, e);
    tg_tok_header *h = &b->h;
    if ((p.start && h->n_left) || (p.stop && h->n_right))
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s is the second Strip of the text, which is not built", at->path);
    if (p.start) h->n_left = (int32_t)p.start, h->left_cp = cp;
    if (p.stop) h->n_right = (int32_t)p.stop, h->right_cp = cp;
    return TG_OK;
}

/* ---- decoders that look at a token's place */

/* CTC leaves out tokens, after which nobody here knows which one is the first. */
static tg_status need_places(const tg_tok_build *b, const tg_tok_place *at, tg_err *e)
{
    TG_TRY(need_tokens(b, at, e));
    return b->h.flags & DECODER_FILTERED
               ? tg_fail(e, TG_E_UNSUPPORTED, "%s stands behind CTC, where it is not built",
                         at->path)
               : TG_OK;
}

typedef struct metaspace {
    tg_str mark;
    bool drops_first;
} metaspace;

/* Marks become blanks, but in the first token they vanish, unless texts get no mark in front. */
static tg_str map_metaspace(tg_tok_build *b, tg_str piece, const void *context, int end)
{
    const metaspace *m = context;
    bool drops = m->drops_first && (end & TG_TOK_AT_FIRST);
    return replace_all(b, piece, m->mark, drops ? TG_STR("") : TG_STR(" "));
}

static tg_status add_metaspace(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                               tg_err *e)
{
    metaspace m;
    tg_str scheme = TG_STR("always");
    bool adds = true;
    int32_t cp;
    TG_TRY(tg_tok_part_char(part, "replacement", at, &m.mark, &cp, e));
    TG_TRY(tg_json_get_str(part, "prepend_scheme", &scheme, NULL, at->path, e));
    TG_TRY(tg_json_get_bool(part, "add_prefix_space", &adds, NULL, at->path, e));
    TG_TRY(need_places(b, at, e));
    m.drops_first = adds && !tg_str_is(scheme, "never");
    return map_pieces(b, map_metaspace, &m, m.drops_first, e);
}

/* What a tokenizer leaves of English: one after the other, over each token for itself. */
static tg_str clean_up(tg_tok_build *b, tg_str s)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < TG_COUNT(pairs) && s.ptr; i++)
        s = replace_all(b, s, tg_str_from_cstr(pairs[i][0]), tg_str_from_cstr(pairs[i][1]));
    return s;
}

typedef struct wordpiece {
    tg_str prefix;
    bool cleans;
} wordpiece;

static tg_str map_wordpiece(tg_tok_build *b, tg_str piece, const void *context, int end)
{
    const wordpiece *w = context;
    if (end & TG_TOK_AT_FIRST) return w->cleans ? clean_up(b, piece) : piece;
    if (tg_str_has_prefix(piece, w->prefix)) {
        piece = (tg_str){piece.ptr + w->prefix.len, piece.len - w->prefix.len};
    } else {
        char *s = tg_arena_alloc(&b->arena, piece.len + 1);
        if (!s) return (tg_str){NULL, 0};
        s[0] = ' ';
        if (piece.len) memcpy(s + 1, piece.ptr, piece.len);
        piece = (tg_str){s, piece.len + 1};
    }
    return w->cleans ? clean_up(b, piece) : piece;
}

static tg_status add_wordpiece(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                               tg_err *e)
{
    wordpiece w = {TG_STR("##"), true};
    TG_TRY(tg_json_get_str(part, "prefix", &w.prefix, NULL, at->path, e));
    TG_TRY(tg_json_get_bool(part, "cleanup", &w.cleans, NULL, at->path, e));
    TG_TRY(need_places(b, at, e));
    return map_pieces(b, map_wordpiece, &w, true, e);
}

/* The mark of a word's end becomes a blank, and nothing behind the last word. */
static tg_str map_bpe(tg_tok_build *b, tg_str piece, const void *context, int end)
{
    const tg_str *suffix = context;
    return replace_all(b, piece, *suffix, end & TG_TOK_AT_LAST ? TG_STR("") : TG_STR(" "));
}

static tg_status add_bpe(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    tg_str suffix = TG_STR("</w>");
    TG_TRY(tg_json_get_str(part, "suffix", &suffix, NULL, at->path, e));
    TG_TRY(need_places(b, at, e));
    if (suffix.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED, "%s.suffix is empty, which is not built", at->path);
    return map_pieces(b, map_bpe, &suffix, true, e);
}

typedef struct ctc {
    tg_str pad, delimiter;
    bool cleans;
} ctc;

static tg_str map_ctc(tg_tok_build *b, tg_str piece, const void *context, int end)
{
    (void)end;
    const ctc *c = context;
    piece = replace_all(b, piece, c->pad, TG_STR(""));
    if (!c->cleans || !piece.ptr) return piece;
    piece = clean_up(b, piece);
    return piece.ptr ? replace_all(b, piece, c->delimiter, TG_STR(" ")) : piece;
}

/* Repeated tokens are one. It sees spellings, so it must be the first decoder. */
static tg_status add_ctc(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    ctc c = {TG_STR("<pad>"), TG_STR("|"), true};
    TG_TRY(tg_json_get_str(part, "pad_token", &c.pad, NULL, at->path, e));
    TG_TRY(tg_json_get_str(part, "word_delimiter_token", &c.delimiter, NULL, at->path, e));
    TG_TRY(tg_json_get_bool(part, "cleanup", &c.cleans, NULL, at->path, e));
    if (b->h.flags & (DECODER_BEGUN | DECODER_FUSED))
        return tg_fail(e, TG_E_UNSUPPORTED, "%s is not the first decoder, where alone it is built",
                       at->path);
    if (c.pad.len == 0 || c.delimiter.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s has an empty pad_token or word_delimiter_token, which is not built",
                       at->path);
    b->h.flags |= DECODER_FILTERED | TG_TOK_DROP_REPEATS;
    return map_pieces(b, map_ctc, &c, false, e);
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
    {"WordPiece", add_wordpiece, {"prefix", "cleanup"}},
    {"BPEDecoder", add_bpe, {"suffix"}},
    {"CTC", add_ctc, {"pad_token", "word_delimiter_token", "cleanup"}},
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
    b->h.flags &= ~(uint32_t)(DECODER_FILTERED | DECODER_FUSED | DECODER_BEGUN);
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
