/* SPDX-License-Identifier: Apache-2.0
 * tokparts.c - normalizers and pre-tokenizers of tokenizer.json, written as steps. */
#include "token/compile/tokparts.h"

#include "token/run/tokmap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what all tables share */

tg_tok_place tg_tok_place_under(const tg_tok_place *p, const char *key, int64_t index)
{
    tg_tok_place q;
    const char *dot = p->path[0] && key[0] ? "." : "";
    char number[16] = "";
    /* Cut short where it is too long: it is only for messages. */
    if (index >= 0 && snprintf(number, sizeof number, "[%d]", (int)index) < 0) number[0] = 0;
    if (snprintf(q.path, sizeof q.path, "%.120s%s%.40s%s", p->path, dot, key, number) < 0)
        q.path[0] = 0;
    return q;
}

/* A key that is not in the row may change what the component does: refused, with the nearest. */
static tg_status check_keys(const json_t *part, const tg_tok_place *at, const tg_tok_part_row *row,
                            tg_err *e)
{
    const char *known[TG_COUNT(row->keys) + 1] = {"type"};
    size_t n = 1;
    while (n <= TG_COUNT(row->keys) && row->keys[n - 1]) {
        known[n] = row->keys[n - 1];
        n++;
    }
    return tg_json_check_keys(part, at->path, known, n, e);
}

tg_status tg_tok_part_add(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                          const tg_tok_part_row *rows, size_t n_rows, tg_err *e)
{
    if (!part || json_is_null(part)) return TG_OK;
    if (!json_is_object(part)) return tg_fail(e, TG_E_CORRUPT, "%s is not an object", at->path);
    tg_str type;
    TG_TRY(tg_tok_part_str(part, "type", at, &type, e));
    return tg_tok_part_add_as(b, part, type, at, rows, n_rows, e);
}

tg_status tg_tok_part_add_as(tg_tok_build *b, const json_t *part, tg_str type,
                             const tg_tok_place *at, const tg_tok_part_row *rows, size_t n_rows,
                             tg_err *e)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (!tg_str_is(type, rows[i].type)) continue;
        TG_TRY(check_keys(part, at, &rows[i], e));
        return rows[i].add(b, part, at, e);
    }
    return tg_fail(e, TG_E_UNSUPPORTED, "%s has type '%.*s', which is not built", at->path,
                   (int)TG_MIN(type.len, (size_t)80), type.ptr);
}

tg_status tg_tok_part_add_all(tg_tok_build *b, const json_t *part, const char *key,
                              const tg_tok_place *at, const tg_tok_part_row *rows, size_t n_rows,
                              tg_err *e)
{
    const json_t *list = json_object_get(part, key), *item;
    if (!json_is_array(list)) return tg_fail(e, TG_E_CORRUPT, "%s has no list '%s'", at->path, key);
    size_t i;
    json_array_foreach(list, i, item)
    {
        tg_tok_place p = tg_tok_place_under(at, key, (int64_t)i);
        /* Sequences in sequences are a hostile file's only way to recurse. */
        if (strlen(p.path) > 110)
            return tg_fail(e, TG_E_LIMIT, "%s is nested too deeply", at->path);
        TG_TRY(tg_tok_part_add(b, item, &p, rows, n_rows, e));
    }
    return TG_OK;
}

tg_status tg_tok_part_str(const json_t *part, const char *key, const tg_tok_place *at, tg_str *out,
                          tg_err *e)
{
    bool is_present = false;
    TG_TRY(tg_json_get_str(part, key, out, &is_present, at->path, e));
    return is_present ? TG_OK : tg_fail(e, TG_E_CORRUPT, "%s has no '%s'", at->path, key);
}

tg_status tg_tok_part_char(const json_t *part, const char *key, const tg_tok_place *at, tg_str *out,
                           int32_t *cp, tg_err *e)
{
    TG_TRY(tg_tok_part_str(part, key, at, out, e));
    int n = tg_utf8_decode(out->ptr, out->len, cp);
    if (n == 0 || (size_t)n != out->len)
        return tg_fail(e, TG_E_CORRUPT, "%s.%s is not one character", at->path, key);
    return TG_OK;
}

tg_status tg_tok_part_pattern(const json_t *part, const tg_tok_place *at, tg_str *pattern,
                              bool *is_regex, tg_err *e)
{
    static const char *const known[] = {"String", "Regex"};
    tg_tok_place p = tg_tok_place_under(at, "pattern", -1);
    const json_t *v = json_object_get(part, "pattern");
    if (!json_is_object(v) || json_object_size(v) != 1)
        return tg_fail(e, TG_E_CORRUPT, "%s is not {\"String\": ..} or {\"Regex\": ..}", p.path);
    TG_TRY(tg_json_check_keys(v, p.path, known, TG_COUNT(known), e));
    *is_regex = json_object_get(v, "Regex") != NULL;
    return tg_tok_part_str(v, *is_regex ? "Regex" : "String", &p, pattern, e);
}

static tg_status get_flag(const json_t *part, const char *key, const tg_tok_place *at, bool absent,
                          bool *out, tg_err *e)
{
    *out = absent;
    return tg_json_get_bool(part, key, out, NULL, at->path, e);
}

/* ---- normalizers */

static tg_status add_plain(tg_tok_build *b, tg_tok_op op, tg_err *e)
{
    return tg_tok_build_add_step(b, false, (tg_tok_step){.op = op}, TG_STR(""), TG_STR(""), e);
}

#define PLAIN(name, op)                                                                            \
    static tg_status name(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)  \
    {                                                                                              \
        (void)part;                                                                                \
        (void)at;                                                                                  \
        return add_plain(b, op, e);                                                                \
    }
PLAIN(add_nfc, TG_TOK_NFC)
PLAIN(add_nfd, TG_TOK_NFD)
PLAIN(add_nfkc, TG_TOK_NFKC)
PLAIN(add_nfkd, TG_TOK_NFKD)
PLAIN(add_lowercase, TG_TOK_LOWERCASE)
PLAIN(add_strip_accents, TG_TOK_STRIP_ACCENTS)
PLAIN(add_nmt, TG_TOK_NMT)
PLAIN(add_byte_chars, TG_TOK_BYTE_CHARS)

/* Accents go where lower case is asked for, unless the file says otherwise. */
static tg_status add_bert_normalizer(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                     tg_err *e)
{
    bool cleans, spaces, lowers, strips;
    TG_TRY(get_flag(part, "clean_text", at, true, &cleans, e));
    TG_TRY(get_flag(part, "handle_chinese_chars", at, true, &spaces, e));
    TG_TRY(get_flag(part, "lowercase", at, true, &lowers, e));
    TG_TRY(get_flag(part, "strip_accents", at, lowers, &strips, e));
    if (cleans) TG_TRY(add_plain(b, TG_TOK_CLEAN, e));
    if (spaces) TG_TRY(add_plain(b, TG_TOK_SPACE_CJK, e));
    if (strips) TG_TRY(add_plain(b, TG_TOK_NFD, e));
    if (strips) TG_TRY(add_plain(b, TG_TOK_STRIP_NONSPACING, e));
    return lowers ? add_plain(b, TG_TOK_LOWERCASE, e) : TG_OK;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* False for anything but whole groups of four with their padding. */
static bool decode_base64(tg_buf *out, tg_str text)
{
    size_t n = text.len;
    if (n % 4) return false;
    while (n && text.len - n < 2 && text.ptr[n - 1] == '=')
        n--;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = base64_digit(text.ptr[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4) tg_buf_add_byte(out, (char)(uint8_t)(bits >> (6 - 2 * (i % 4))));
    }
    return true;
}

static tg_status add_precompiled(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                 tg_err *e)
{
    tg_str text;
    tg_charsmap map;
    tg_buf bytes = {0};
    TG_TRY(tg_tok_part_str(part, "precompiled_charsmap", at, &text, e));
    tg_status s = TG_OK;
    if (!decode_base64(&bytes, text))
        s = tg_fail(e, TG_E_CORRUPT, "%s.precompiled_charsmap is not base64", at->path);
    if (s == TG_OK) s = tg_buf_check(&bytes, e);
    if (s == TG_OK) s = tg_charsmap_parse(&map, tg_buf_str(&bytes), at->path, e);
    if (s == TG_OK)
        s = tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_CHARSMAP}, map.units,
                                  map.replacements, e);
    tg_buf_deinit(&bytes);
    return s;
}

static tg_status add_strip(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    bool left, right;
    TG_TRY(get_flag(part, "strip_left", at, true, &left, e));
    TG_TRY(get_flag(part, "strip_right", at, true, &right, e));
    return tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_TRIM, .x = left, .y = right},
                                 TG_STR(""), TG_STR(""), e);
}

static tg_status add_prepend(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    tg_str text;
    TG_TRY(tg_tok_part_str(part, "prepend", at, &text, e));
    return tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_PREPEND}, text, TG_STR(""),
                                 e);
}

static tg_status add_replace(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    tg_str pattern = {0}, content = {0};
    bool is_regex = false;
    TG_TRY(tg_tok_part_pattern(part, at, &pattern, &is_regex, e));
    TG_TRY(tg_tok_part_str(part, "content", at, &content, e));
    if (!is_regex && pattern.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED, "%s replaces the empty string", at->path);
    tg_tok_op op = is_regex ? TG_TOK_REPLACE_REGEX : TG_TOK_REPLACE;
    return tg_tok_build_add_step(b, false, (tg_tok_step){.op = op}, pattern, content, e);
}

static tg_status add_normalizers(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                 tg_err *e);

static const tg_tok_part_row normalizers[] = {
    {"Sequence", add_normalizers, {"normalizers"}},
    {"NFC", add_nfc, {0}},
    {"NFD", add_nfd, {0}},
    {"NFKC", add_nfkc, {0}},
    {"NFKD", add_nfkd, {0}},
    {"Lowercase", add_lowercase, {0}},
    {"StripAccents", add_strip_accents, {0}},
    {"Strip", add_strip, {"strip_left", "strip_right"}},
    {"Prepend", add_prepend, {"prepend"}},
    {"Replace", add_replace, {"pattern", "content"}},
    {"BertNormalizer",
     add_bert_normalizer,
     {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}},
    {"Precompiled", add_precompiled, {"precompiled_charsmap"}},
    {"Nmt", add_nmt, {0}},
    {"ByteLevel", add_byte_chars, {0}},
};

static tg_status add_normalizers(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                 tg_err *e)
{
    return tg_tok_part_add_all(b, part, "normalizers", at, normalizers, TG_COUNT(normalizers), e);
}

tg_status tg_tok_add_normalizer(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                tg_err *e)
{
    return tg_tok_part_add(b, part, at, normalizers, TG_COUNT(normalizers), e);
}

/* ---- pre-tokenizers */

static const struct {
    const char *name;
    tg_tok_behavior behavior;
} behaviors[] = {
    {"Isolated", TG_TOK_ISOLATED},
    {"Removed", TG_TOK_REMOVED},
    {"MergedWithPrevious", TG_TOK_MERGED_PREVIOUS},
    {"MergedWithNext", TG_TOK_MERGED_NEXT},
    {"Contiguous", TG_TOK_CONTIGUOUS},
};

static tg_status get_behavior(const json_t *part, const tg_tok_place *at, tg_tok_behavior *out,
                              tg_err *e)
{
    tg_str name = TG_STR("Isolated");
    TG_TRY(tg_json_get_str(part, "behavior", &name, NULL, at->path, e));
    for (size_t i = 0; i < TG_COUNT(behaviors); i++) {
        if (!tg_str_is(name, behaviors[i].name)) continue;
        *out = behaviors[i].behavior;
        return TG_OK;
    }
    return tg_fail(e, TG_E_UNSUPPORTED, "%s.behavior is '%.*s', which is not built", at->path,
                   (int)TG_MIN(name.len, (size_t)80), name.ptr);
}

tg_status tg_tok_add_split(tg_tok_build *b, tg_str regex, tg_tok_behavior behavior,
                           bool is_inverted, tg_err *e)
{
    tg_tok_step step = {.op = TG_TOK_SPLIT_REGEX, .x = (int32_t)behavior, .y = is_inverted};
    return tg_tok_build_add_step(b, true, step, regex, TG_STR(""), e);
}

static tg_status add_split(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    tg_str pattern = {0};
    bool is_regex = false, is_inverted = false;
    tg_tok_behavior behavior;
    TG_TRY(tg_tok_part_pattern(part, at, &pattern, &is_regex, e));
    TG_TRY(get_behavior(part, at, &behavior, e));
    TG_TRY(get_flag(part, "invert", at, false, &is_inverted, e));
    tg_tok_op op = is_regex ? TG_TOK_SPLIT_REGEX : TG_TOK_SPLIT;
    tg_tok_step step = {.op = op, .x = (int32_t)behavior, .y = is_inverted};
    if (!is_regex && pattern.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED, "%s splits at the empty string", at->path);
    return tg_tok_build_add_step(b, true, step, pattern, TG_STR(""), e);
}

/* trim_offsets moves offsets only. */
static tg_status add_byte_level(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                tg_err *e)
{
    bool has_lead, uses_regex;
    TG_TRY(get_flag(part, "add_prefix_space", at, true, &has_lead, e));
    TG_TRY(get_flag(part, "use_regex", at, true, &uses_regex, e));
    if (has_lead)
        TG_TRY(tg_tok_build_add_step(b, true,
                                     (tg_tok_step){.op = TG_TOK_LEAD, .x = TG_TOK_LEAD_ALWAYS},
                                     TG_STR(" "), TG_STR(""), e));
    if (uses_regex)
        TG_TRY(
            tg_tok_add_split(b, tg_str_from_cstr(tg_tok_gpt2_pattern), TG_TOK_ISOLATED, false, e));
    b->h.flags |= TG_TOK_BYTE_LEVEL;
    return TG_OK;
}

static tg_status add_class_split(tg_tok_build *b, tg_tok_class k, tg_tok_behavior behavior,
                                 tg_err *e)
{
    tg_tok_step step = {.op = TG_TOK_SPLIT_CLASS, .x = (int32_t)behavior, .y = (int32_t)k};
    return tg_tok_build_add_step(b, true, step, TG_STR(""), TG_STR(""), e);
}

/* "Numeric" in the library's language: digits, and number signs such as those of Roman numerals. */
static tg_status add_digits(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    bool is_single;
    TG_TRY(get_flag(part, "individual_digits", at, false, &is_single, e));
    return add_class_split(b, TG_TOK_CLASS_NUMERIC, is_single ? TG_TOK_ISOLATED : TG_TOK_CONTIGUOUS,
                           e);
}

static tg_status add_whitespace_split(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                      tg_err *e)
{
    (void)part;
    (void)at;
    return add_class_split(b, TG_TOK_CLASS_SPACE, TG_TOK_REMOVED, e);
}

/* Runs of \w and runs of what is neither that nor white space. */
static tg_status add_whitespace(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                tg_err *e)
{
    TG_TRY(add_whitespace_split(b, part, at, e));
    return add_class_split(b, TG_TOK_CLASS_WORD, TG_TOK_CONTIGUOUS, e);
}

static tg_status add_punctuation(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                 tg_err *e)
{
    tg_tok_behavior behavior;
    TG_TRY(get_behavior(part, at, &behavior, e));
    return add_class_split(b, TG_TOK_CLASS_PUNCTUATION, behavior, e);
}

static tg_status add_bert(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    TG_TRY(add_whitespace_split(b, part, at, e));
    return add_class_split(b, TG_TOK_CLASS_PUNCTUATION, TG_TOK_ISOLATED, e);
}

static tg_status add_scripts(tg_tok_build *b, const json_t *part, const tg_tok_place *at, tg_err *e)
{
    (void)part;
    (void)at;
    tg_tok_step step = {.op = TG_TOK_SPLIT_SCRIPTS, .x = TG_TOK_REMOVED};
    return tg_tok_build_add_step(b, true, step, TG_STR(""), TG_STR(""), e);
}

static tg_status add_fixed_length(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                  tg_err *e)
{
    int64_t n = 5;
    TG_TRY(tg_json_get_i64(part, "length", &n, NULL, at->path, e));
    if (n < 1 || n > TG_ENCODE_MAX_BYTES)
        return tg_fail(e, TG_E_CORRUPT, "%s.length is %" PRId64 "; words have 1 to %d characters",
                       at->path, n, TG_ENCODE_MAX_BYTES);
    tg_tok_step step = {.op = TG_TOK_SPLIT_EVERY, .x = TG_TOK_ISOLATED, .y = (int32_t)n};
    return tg_tok_build_add_step(b, true, step, TG_STR(""), TG_STR(""), e);
}

static tg_status add_delimiter(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                               tg_err *e)
{
    tg_str text;
    int32_t cp;
    TG_TRY(tg_tok_part_char(part, "delimiter", at, &text, &cp, e));
    tg_tok_step step = {.op = TG_TOK_SPLIT, .x = TG_TOK_REMOVED};
    return tg_tok_build_add_step(b, true, step, text, TG_STR(""), e);
}

/* How a Metaspace marks the beginning: -1 for not at all. */
static tg_status get_lead(const json_t *part, const tg_tok_place *at, int *lead, tg_err *e)
{
    bool adds, has_scheme = false;
    tg_str scheme = TG_STR("always");
    TG_TRY(tg_json_get_str(part, "prepend_scheme", &scheme, &has_scheme, at->path, e));
    TG_TRY(get_flag(part, "add_prefix_space", at, true, &adds, e));
    if (tg_str_is(scheme, "always"))
        *lead = TG_TOK_LEAD_ALWAYS;
    else if (tg_str_is(scheme, "first"))
        *lead = TG_TOK_LEAD_FIRST;
    else if (tg_str_is(scheme, "never"))
        *lead = -1;
    else
        return tg_fail(e, TG_E_UNSUPPORTED, "%s.prepend_scheme is '%.*s', which is not built",
                       at->path, (int)TG_MIN(scheme.len, (size_t)40), scheme.ptr);
    /* add_prefix_space is the older key; the library refuses files that contradict themselves. */
    if (!adds && has_scheme && *lead >= 0)
        return tg_fail(e, TG_E_CORRUPT, "%s says add_prefix_space false and prepend_scheme '%.*s'",
                       at->path, (int)scheme.len, scheme.ptr);
    if (!adds) *lead = -1;
    return TG_OK;
}

/* Blanks become marks, each word may get a mark in front, words end before marks. */
static tg_status add_metaspace(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                               tg_err *e)
{
    tg_str mark;
    int32_t cp;
    int lead = -1;
    bool splits;
    TG_TRY(tg_tok_part_char(part, "replacement", at, &mark, &cp, e));
    TG_TRY(get_lead(part, at, &lead, e));
    TG_TRY(get_flag(part, "split", at, true, &splits, e));
    TG_TRY(
        tg_tok_build_add_step(b, true, (tg_tok_step){.op = TG_TOK_REPLACE}, TG_STR(" "), mark, e));
    if (lead >= 0)
        TG_TRY(tg_tok_build_add_step(b, true, (tg_tok_step){.op = TG_TOK_LEAD, .x = lead}, mark,
                                     TG_STR(""), e));
    if (!splits) return TG_OK;
    tg_tok_step split = {.op = TG_TOK_SPLIT, .x = TG_TOK_MERGED_NEXT};
    return tg_tok_build_add_step(b, true, split, mark, TG_STR(""), e);
}

static tg_status add_pre_tokenizers(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                    tg_err *e);

static const tg_tok_part_row pre_tokenizers[] = {
    {"Sequence", add_pre_tokenizers, {"pretokenizers"}},
    {"ByteLevel", add_byte_level, {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"Split", add_split, {"pattern", "behavior", "invert"}},
    {"Digits", add_digits, {"individual_digits"}},
    {"Whitespace", add_whitespace, {0}},
    {"WhitespaceSplit", add_whitespace_split, {0}},
    {"Punctuation", add_punctuation, {"behavior"}},
    {"BertPreTokenizer", add_bert, {0}},
    {"CharDelimiterSplit", add_delimiter, {"delimiter"}},
    {"UnicodeScripts", add_scripts, {0}},
    {"FixedLength", add_fixed_length, {"length"}},
    {"Metaspace",
     add_metaspace,
     {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}},
};

/* The byte alphabet is a way of writing words, and the last ByteLevel is no step but a flag: the
 * model then matches bytes. What follows one sees words spelled in that alphabet, so that one is a
 * step. */
static tg_status spell_bytes(tg_tok_build *b, tg_err *e)
{
    if (!(b->h.flags & TG_TOK_BYTE_LEVEL)) return TG_OK;
    b->h.flags &= ~(uint32_t)TG_TOK_BYTE_LEVEL;
    return tg_tok_build_add_step(b, true, (tg_tok_step){.op = TG_TOK_BYTE_CHARS}, TG_STR(""),
                                 TG_STR(""), e);
}

static tg_status add_pre_tokenizers(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                    tg_err *e)
{
    const json_t *list = json_object_get(part, "pretokenizers"), *item;
    size_t i;
    if (!json_is_array(list))
        return tg_fail(e, TG_E_CORRUPT, "%s has no list 'pretokenizers'", at->path);
    json_array_foreach(list, i, item)
    {
        tg_tok_place p = tg_tok_place_under(at, "pretokenizers", (int64_t)i);
        if (strlen(p.path) > 110)
            return tg_fail(e, TG_E_LIMIT, "%s is nested too deeply", at->path);
        TG_TRY(spell_bytes(b, e));
        TG_TRY(tg_tok_part_add(b, item, &p, pre_tokenizers, TG_COUNT(pre_tokenizers), e));
    }
    return TG_OK;
}

tg_status tg_tok_add_pre_tokenizer(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                   tg_err *e)
{
    return tg_tok_part_add(b, part, at, pre_tokenizers, TG_COUNT(pre_tokenizers), e);
}
