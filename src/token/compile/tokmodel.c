/* SPDX-License-Identifier: Apache-2.0
 * tokmodel.c - the model of a tokenizer.json: its vocabulary, its merges and its settings. Each
 * kind is a row of the table at the end. */
#include "base/number.h"
#include "token/compile/tokparts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char file_name[] = "tokenizer.json", model_name[] = "tokenizer.json: model";

static tg_status fail_model(tg_err *e, const char *what, tg_str text)
{
    return tg_fail(e, TG_E_CORRUPT, "%s: model: %s '%.*s'", file_name, what,
                   (int)TG_MIN(text.len, (size_t)100), text.ptr);
}

/* ---- vocabulary */

static tg_status add_vocabulary(tg_tok_build *b, const json_t *model, tg_err *e)
{
    json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab))
        return tg_fail(e, TG_E_CORRUPT, "%s: model has no 'vocab'", file_name);
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value)
    {
        tg_str text = tg_str_from_cstr(key);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id > TG_TOK_MAX_ID)
            return tg_fail(e, TG_E_CORRUPT, "%s: model.vocab: the id of '%.*s' is not 0 to %d",
                           file_name, (int)TG_MIN(text.len, (size_t)100), key, TG_TOK_MAX_ID);
        TG_TRY(tg_tok_build_add_token(b, (int32_t)id, text, TG_TOK_IS_MODEL, e));
    }
    /* Holes are legal, a table of nothing but holes is an attack on memory. */
    if ((size_t)b->n_entries > 4 * json_object_size(vocab) + 65536)
        return tg_fail(e, TG_E_CORRUPT, "%s: model.vocab has %zu tokens and ids up to %" PRId32,
                       file_name, json_object_size(vocab), b->n_entries - 1);
    return tg_tok_build_index(b, e);
}

/* ---- merges */

/* Older files write a merge as one string, and their tokens hold no blanks. */
static tg_status split_merge(const json_t *v, size_t i, tg_str *left, tg_str *right, tg_err *e)
{
    if (json_is_array(v) && json_array_size(v) == 2 && json_is_string(json_array_get(v, 0)) &&
        json_is_string(json_array_get(v, 1))) {
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
        *left = (tg_str){json_string_value(a), json_string_length(a)};
        *right = (tg_str){json_string_value(b), json_string_length(b)};
        return TG_OK;
    }
    const char *s = json_string_value(v), *space = s ? strchr(s, ' ') : NULL;
    size_t n = json_string_length(v);
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - s)))
        return tg_fail(e, TG_E_CORRUPT, "%s: model.merges[%zu] is not two tokens", file_name, i);
    *left = (tg_str){s, (size_t)(space - s)};
    *right = (tg_str){space + 1, n - left->len - 1};
    return TG_OK;
}

static tg_status add_merge(tg_tok_build *b, tg_str left, tg_str right, tg_str word_prefix,
                           size_t rank, tg_err *e)
{
    tg_str missing;
    /* The mark of a word's inner tokens stands before the right part and not inside the whole. */
    if (right.len < word_prefix.len)
        return fail_model(e, "merges have a right part without continuing_subword_prefix,", right);
    TG_TRY(
        tg_tok_build_add_listed_merge(b, left, right, word_prefix.len, (int32_t)rank, &missing, e));
    if (!missing.ptr) return TG_OK;
    if (missing.ptr == left.ptr || missing.ptr == right.ptr)
        return fail_model(e, "merges name a token that the vocabulary lacks,", missing);
    return fail_model(e, "merges make a token that the vocabulary lacks,", missing);
}

static tg_status add_merges(tg_tok_build *b, const json_t *model, tg_str word_prefix, tg_err *e)
{
    const json_t *merges = json_object_get(model, "merges"), *item;
    if (!json_is_array(merges))
        return tg_fail(e, TG_E_CORRUPT, "%s: model has no 'merges'", file_name);
    TG_TRY(tg_tok_build_begin_merges(b, json_array_size(merges), e));
    tg_status s = TG_OK;
    size_t i;
    json_array_foreach(merges, i, item)
    {
        tg_str left = {0}, right = {0};
        /* The first line of merges.txt; the library passes by all such strings. */
        if (json_is_string(item) && strncmp(json_string_value(item), "#version", 8) == 0) continue;
        s = split_merge(item, i, &left, &right, e);
        if (s == TG_OK) s = add_merge(b, left, right, word_prefix, i, e);
        if (s != TG_OK) break;
    }
    return s;
}

/* ---- the model's own settings */

/* A mark of words in the strings; with a byte alphabet, in bytes. */
static tg_status add_word_mark(tg_tok_build *b, tg_str mark, uint32_t *at, uint32_t *n_bytes,
                               tg_err *e)
{
    if (b->h.flags & TG_TOK_BYTE_LEVEL) mark = tg_tok_build_bytes_of(b, mark);
    if (!mark.ptr || mark.len > TG_TOK_MAX_WORD_AFFIX)
        return tg_fail(
            e, TG_E_UNSUPPORTED,
            "%s: model: continuing_subword_prefix or end_of_word_suffix has %zu bytes or "
            "signs outside the byte alphabet; at most %d are built",
            file_name, mark.len, TG_TOK_MAX_WORD_AFFIX);
    *at = tg_tok_build_add_string(b, mark);
    *n_bytes = (uint32_t)mark.len;
    return TG_OK;
}

/* The bytes that a character without a token falls back to. */
static tg_status add_byte_tokens(tg_tok_build *b, tg_err *e)
{
    if (b->h.flags & TG_TOK_BYTE_LEVEL) {
        for (int i = 0; i < 256; i++)
            if (b->byte_ids[i] < 0)
                return tg_fail(
                    e, TG_E_UNSUPPORTED,
                    "%s: model: byte_fallback with a byte alphabet that lacks byte 0x%02x "
                    "is not built",
                    file_name, (unsigned)i);
        return TG_OK; /* no byte is ever without its symbol */
    }
    b->h.flags |= TG_TOK_BYTE_FALLBACK;
    b->may_cut = true;
    for (int i = 0; i < 256; i++) {
        static const char hex[] = "0123456789ABCDEF";
        char name[6] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>'};
        int32_t id = tg_tok_build_find(b, (tg_str){name, 6});
        b->byte_ids[i] = id;
        if (id >= 0)
            b->entries[id].flags |= TG_TOKEN_BYTE;
        else
            b->may_cut = false;
    }
    return TG_OK;
}

/* The name by which a key of the model calls its unknown token. Of WordPiece and WordLevel the
 * library misses it only when a text needs it; so do we. */
static tg_status find_unknown(tg_tok_build *b, const json_t *model, bool must_be_there, tg_err *e)
{
    tg_str unk = {0};
    bool has_unk = false;
    TG_TRY(tg_json_get_str(model, "unk_token", &unk, &has_unk, model_name, e));
    if (!has_unk) return TG_OK;
    b->h.unk_id = b->h.unk_name_id = tg_tok_build_find(b, unk);
    if (b->h.unk_id < 0 && must_be_there)
        return fail_model(e, "the vocabulary lacks unk_token", unk);
    return TG_OK;
}

/* ---- the kinds */

static tg_status add_bpe(tg_tok_build *b, const json_t *model, const tg_tok_place *at, tg_err *e)
{
    (void)at;
    tg_str prefix = {0}, suffix = {0};
    bool fuses = false, falls_back = false, ignores = false, has_dropout = false;
    double dropout = 0;
    TG_TRY(tg_json_get_f64(model, "dropout", &dropout, &has_dropout, model_name, e));
    TG_TRY(tg_json_get_str(model, "continuing_subword_prefix", &prefix, NULL, model_name, e));
    TG_TRY(tg_json_get_str(model, "end_of_word_suffix", &suffix, NULL, model_name, e));
    TG_TRY(tg_json_get_bool(model, "fuse_unk", &fuses, NULL, model_name, e));
    TG_TRY(tg_json_get_bool(model, "byte_fallback", &falls_back, NULL, model_name, e));
    TG_TRY(tg_json_get_bool(model, "ignore_merges", &ignores, NULL, model_name, e));
    TG_TRY(add_vocabulary(b, model, e));
    TG_TRY(add_merges(b, model, prefix, e));
    if (has_dropout && dropout != 0) b->h.warnings |= 1u << TG_TOK_WARN_DROPOUT;
    if (fuses) b->h.flags |= TG_TOK_FUSE_UNK;
    if (ignores) b->h.flags |= TG_TOK_IGNORE_MERGES;
    TG_TRY(find_unknown(b, model, true, e));
    if (b->h.flags & TG_TOK_BYTE_LEVEL) TG_TRY(tg_tok_build_map_bytes(b, e));
    if (prefix.len)
        TG_TRY(add_word_mark(b, prefix, &b->h.word_prefix_at, &b->h.word_prefix_bytes, e));
    if (suffix.len)
        TG_TRY(add_word_mark(b, suffix, &b->h.word_suffix_at, &b->h.word_suffix_bytes, e));
    return falls_back ? add_byte_tokens(b, e) : TG_OK;
}

/* The library's JSON parser takes up to 19 digits as an integer and divides by the power of ten:
 * two roundings, so that one score in twenty of a trained vocabulary comes out a neighbour of what
 * is written. Ties of sums fall by such last bits. The digits are those of the shortest decimal
 * that is `x`: what every writer of these files writes. */
static double read_as_library(double x)
{
    char text[TG_SHORTEST_BYTES];
    int n_digits = isfinite(x) ? tg_f64_print_shortest(text, x) : 0;
    if (n_digits == 0) return x;
    char *mark = strchr(text, 'e');
    TG_ASSERT(mark);
    int64_t exponent = strtoll(mark + 1, NULL, 10);
    uint64_t digits = 0;
    for (const char *c = text; c < mark; c++)
        if (*c != '.') digits = digits * 10 + (uint64_t)(*c - '0');
    for (exponent -= n_digits - 1; digits && digits % 10 == 0; exponent++)
        digits /= 10;
    if (digits == 0 || exponent < -300 || exponent > 300) return x; /* no score */
    char power[16];
    if (tg_print(power, sizeof power, "1e%d", (int)(exponent < 0 ? -exponent : exponent)) < 0)
        return x;
    double scale = tg_f64_parse(power, NULL);
    double y = exponent < 0 ? (double)digits / scale : (double)digits * scale;
    return x < 0 ? -y : y;
}

/* A list of [token, score], the id being the place; of a token given twice the last counts. */
static tg_status add_scored_vocabulary(tg_tok_build *b, const json_t *model, tg_err *e)
{
    /* What the library takes off the least score for a character that no token is. */
    enum { UNKNOWN_PENALTY = 10 };
    const json_t *vocab = json_object_get(model, "vocab"), *item;
    double least = HUGE_VAL;
    size_t i;
    if (!json_is_array(vocab))
        return tg_fail(e, TG_E_CORRUPT, "%s has no list 'vocab'", model_name);
    if (json_array_size(vocab) > TG_TOK_MAX_ID)
        return tg_fail(e, TG_E_LIMIT, "%s.vocab has %zu tokens; the limit is %d", model_name,
                       json_array_size(vocab), TG_TOK_MAX_ID);
    json_array_foreach(vocab, i, item)
    {
        const json_t *text = json_array_get(item, 0), *score = json_array_get(item, 1);
        if (json_array_size(item) != 2 || !json_is_string(text) || !json_is_number(score))
            return tg_fail(e, TG_E_CORRUPT, "%s.vocab[%zu] is not a token and its score",
                           model_name, i);
        tg_str s = {json_string_value(text), json_string_length(text)};
        TG_TRY(tg_tok_build_add_token(b, (int32_t)i, s, TG_TOK_IS_MODEL, e));
        b->entries[i].score = read_as_library(json_number_value(score));
        least = TG_MIN(least, b->entries[i].score);
    }
    b->h.unk_score = least - UNKNOWN_PENALTY;
    return tg_tok_build_index(b, e);
}

static tg_status add_unigram(tg_tok_build *b, const json_t *model, const tg_tok_place *at,
                             tg_err *e)
{
    (void)at;
    int64_t unk = -1;
    bool falls_back = false, has_unk = false;
    TG_TRY(tg_json_get_i64(model, "unk_id", &unk, &has_unk, model_name, e));
    TG_TRY(tg_json_get_bool(model, "byte_fallback", &falls_back, NULL, model_name, e));
    TG_TRY(add_scored_vocabulary(b, model, e));
    if (has_unk && (unk < 0 || unk >= b->n_entries))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s.unk_id is %" PRId64 "; the vocabulary has ids 0 to "
                       "%" PRId32,
                       model_name, unk, b->n_entries - 1);
    b->h.model = TG_TOK_UNIGRAM;
    b->h.unk_id = b->h.unk_name_id = (int32_t)unk;
    if (b->h.flags & TG_TOK_BYTE_LEVEL) TG_TRY(tg_tok_build_map_bytes(b, e));
    TG_TRY(falls_back ? add_byte_tokens(b, e) : TG_OK);
    b->may_cut = false;
    return TG_OK;
}

static tg_status add_wordpiece(tg_tok_build *b, const json_t *model, const tg_tok_place *at,
                               tg_err *e)
{
    (void)at;
    tg_str prefix = TG_STR("##");
    int64_t most = 100;
    TG_TRY(tg_json_get_str(model, "continuing_subword_prefix", &prefix, NULL, model_name, e));
    TG_TRY(tg_json_get_i64(model, "max_input_chars_per_word", &most, NULL, model_name, e));
    if (most < 0)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s.max_input_chars_per_word is %" PRId64 "; it is 0 at "
                       "least",
                       model_name, most);
    b->h.model = TG_TOK_WORDPIECE;
    b->h.max_word_chars = (int32_t)TG_MIN(most, INT32_MAX);
    TG_TRY(add_vocabulary(b, model, e));
    TG_TRY(find_unknown(b, model, false, e));
    if (b->h.flags & TG_TOK_BYTE_LEVEL) TG_TRY(tg_tok_build_map_bytes(b, e));
    return add_word_mark(b, prefix, &b->h.word_prefix_at, &b->h.word_prefix_bytes, e);
}

static tg_status add_wordlevel(tg_tok_build *b, const json_t *model, const tg_tok_place *at,
                               tg_err *e)
{
    (void)at;
    b->h.model = TG_TOK_WORDLEVEL;
    TG_TRY(add_vocabulary(b, model, e));
    TG_TRY(find_unknown(b, model, false, e));
    return b->h.flags & TG_TOK_BYTE_LEVEL ? tg_tok_build_map_bytes(b, e) : TG_OK;
}

static const tg_tok_part_row models[] = {
    {"BPE",
     add_bpe,
     {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
      "byte_fallback", "ignore_merges", "vocab", "merges"}},
    {"Unigram", add_unigram, {"unk_id", "vocab", "byte_fallback"}},
    {"WordPiece",
     add_wordpiece,
     {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}},
    {"WordLevel", add_wordlevel, {"unk_token", "vocab"}},
};

/* Files older than the key "type" show their kind by what they have; the library looks in the same
 * order. */
static const char *guess_type(const json_t *model)
{
    if (json_object_get(model, "merges")) return "BPE";
    if (json_object_get(model, "continuing_subword_prefix")) return "WordPiece";
    return json_is_array(json_object_get(model, "vocab")) ? "Unigram" : "WordLevel";
}

tg_status tg_tok_add_model(tg_tok_build *b, const json_t *model, const tg_tok_place *at, tg_err *e)
{
    if (!json_is_object(model)) return tg_fail(e, TG_E_CORRUPT, "%s has no 'model'", file_name);
    tg_str type = tg_str_from_cstr(guess_type(model));
    TG_TRY(tg_json_get_str(model, "type", &type, NULL, model_name, e));
    return tg_tok_part_add_as(b, model, type, at, models, TG_COUNT(models), e);
}
