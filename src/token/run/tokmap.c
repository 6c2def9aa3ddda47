/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/tokmap.h"

#include "token/run/tokblob.h"
#include "token/run/tokunicode.h"

#include <inttypes.h>
#include <string.h>
#include <utf8proc.h>

/* ---- one character at a time */

static int put_space(char out[TG_TOK_MAP_BYTES])
{
    out[0] = ' ';
    return 1;
}

/* Lower cases that the reference library knows and utf8proc does not yet: characters of Unicode 16
 * and 17. Each range has its lower cases in order, `step` apart as its capitals are. */
static const struct {
    int32_t first, last, step, lower;
} new_lower_cases[] = {
    {0x1c89, 0x1c89, 1, 0x1c8a},    {0xa7cb, 0xa7cb, 1, 0x264},     {0xa7cc, 0xa7ce, 2, 0xa7cd},
    {0xa7d2, 0xa7d4, 2, 0xa7d3},    {0xa7da, 0xa7da, 1, 0xa7db},    {0xa7dc, 0xa7dc, 1, 0x19b},
    {0x10d50, 0x10d65, 1, 0x10d70}, {0x16ea0, 0x16eb8, 1, 0x16ebb},
};

int tg_tok_map_lowercase(int32_t cp, char out[TG_TOK_MAP_BYTES])
{
    if (cp == 0x130) { /* the one lower case of two characters: i and a dot above */
        memcpy(out, "i\xcc\x87", 3);
        return 3;
    }
    int32_t lower = utf8proc_tolower(cp);
    for (size_t i = 0; cp >= 0x1c89 && i < TG_COUNT(new_lower_cases); i++)
        if (cp >= new_lower_cases[i].first && cp <= new_lower_cases[i].last &&
            (cp - new_lower_cases[i].first) % new_lower_cases[i].step == 0)
            lower = new_lower_cases[i].lower + (cp - new_lower_cases[i].first);
    return lower == cp ? TG_TOK_MAP_KEEP : tg_utf8_encode(lower, out);
}

int tg_tok_map_clean(int32_t cp, char out[TG_TOK_MAP_BYTES])
{
    if (tg_unicode_is(TG_UNICODE_CONTROL, cp)) return 0;
    return tg_unicode_is_space(cp) ? put_space(out) : TG_TOK_MAP_KEEP;
}

/* BERT's idea of a Chinese character: blocks, with a gap that the reference library has too. */
static bool is_cjk(int32_t cp)
{
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b81f) ||
           (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) ||
           (cp >= 0x2f800 && cp <= 0x2fa1f);
}

int tg_tok_map_space_cjk(int32_t cp, char out[TG_TOK_MAP_BYTES])
{
    if (!is_cjk(cp)) return TG_TOK_MAP_KEEP;
    int n = put_space(out);
    n += tg_utf8_encode(cp, out + n);
    return n + put_space(out + n);
}

int tg_tok_map_strip_accents(int32_t cp, char out[TG_TOK_MAP_BYTES])
{
    (void)out;
    return tg_unicode_is(TG_UNICODE_MARK, cp) ? 0 : TG_TOK_MAP_KEEP;
}

int tg_tok_map_strip_nonspacing(int32_t cp, char out[TG_TOK_MAP_BYTES])
{
    (void)out;
    return tg_unicode_is(TG_UNICODE_NONSPACING, cp) ? 0 : TG_TOK_MAP_KEEP;
}

/* The rules of SentencePiece's nmt normalizations, as far as the reference library has them. */
int tg_tok_map_nmt(int32_t cp, char out[TG_TOK_MAP_BYTES])
{
    if ((cp >= 1 && cp <= 8) || cp == 0xb || (cp >= 0xe && cp <= 0x1f) || cp == 0x7f ||
        cp == 0x8f || cp == 0x9f)
        return 0;
    bool is_blank = cp == 9 || cp == 0xa || cp == 0xc || cp == 0xd || cp == 0x1680 ||
                    (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 ||
                    cp == 0x2581 || cp == 0xfeff || cp == 0xfffd;
    return is_blank ? put_space(out) : TG_TOK_MAP_KEEP;
}

int tg_tok_map_byte_chars(int32_t cp, char out[TG_TOK_MAP_BYTES])
{
    char bytes[4];
    int n = 0, n_bytes = tg_utf8_encode(cp, bytes);
    for (int i = 0; i < n_bytes; i++)
        n += tg_utf8_encode(tg_tok_byte_char((uint8_t)bytes[i]), out + n);
    return n;
}

/* ---- SentencePiece's table */

tg_status tg_charsmap_parse(tg_charsmap *out, tg_str bytes, const char *name, tg_err *e)
{
    uint32_t n = 0;
    if (bytes.len >= 4) memcpy(&n, bytes.ptr, 4);
    if (bytes.len < 4 || n % 4 || n < 4 || n > bytes.len - 4)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s has %zu bytes, and %" PRIu32 " of them are said to be its double array",
                       name, bytes.len, n);
    out->units = (tg_str){bytes.ptr + 4, n};
    out->replacements = (tg_str){bytes.ptr + 4 + n, bytes.len - 4 - n};
    size_t bad = tg_utf8_find_invalid(out->replacements);
    if (bad < out->replacements.len)
        return tg_fail(e, TG_E_CORRUPT, "%s has replacements that are not UTF-8 at byte %zu", name,
                       bad);
    return TG_OK;
}

static bool get_unit(const tg_charsmap *m, uint32_t at, uint32_t *unit)
{
    if (at >= m->units.len / 4) return false;
    memcpy(unit, m->units.ptr + (size_t)at * 4, 4);
    return true;
}

/* A unit's children lie where its place, changed by this, and their byte say. */
static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* False for a place that no intact table has: the reference library would panic. */
static bool get_replacement(const tg_charsmap *m, size_t at, tg_str *out)
{
    if (at >= m->replacements.len || (m->replacements.ptr[at] & 0xc0) == 0x80) return false;
    const char *s = m->replacements.ptr + at;
    const char *end = memchr(s, 0, m->replacements.len - at);
    *out = (tg_str){s, end ? (size_t)(end - s) : m->replacements.len - at};
    return true;
}

size_t tg_charsmap_find(const tg_charsmap *m, tg_str text, bool is_longest, tg_str *replacement)
{
    uint32_t unit, at = 0;
    size_t n_bytes = 0;
    if (!get_unit(m, 0, &unit)) return 0;
    at ^= offset_of(unit);
    for (size_t i = 0; i < text.len && text.ptr[i]; i++) {
        uint8_t byte = (uint8_t)text.ptr[i];
        at ^= byte;
        if (!get_unit(m, at, &unit) || (unit & (1u << 31 | 0xff)) != byte) break;
        bool is_key = unit >> 8 & 1;
        at ^= offset_of(unit);
        if (!is_key) continue;
        if (!get_unit(m, at, &unit) || !get_replacement(m, unit & INT32_MAX, replacement)) break;
        n_bytes = i + 1;
        if (!is_longest) break;
    }
    /* A key that ends inside a character is damage. */
    bool is_inside = n_bytes < text.len && ((unsigned char)text.ptr[n_bytes] & 0xc0) == 0x80;
    return is_inside ? 0 : n_bytes;
}

size_t tg_charsmap_cluster_bytes(tg_str text, size_t at)
{
    int32_t cp, next;
    size_t end = at + (size_t)TG_MAX(tg_utf8_decode(text.ptr + at, text.len - at, &cp), 1);
    utf8proc_int32_t state = 0;
    while (end < text.len) {
        /* Between two characters of ASCII only a line's end holds together. */
        if (cp < 0x80 && (signed char)text.ptr[end] >= 0 && cp != '\r') break;
        size_t n = (size_t)TG_MAX(tg_utf8_decode(text.ptr + end, text.len - end, &next), 1);
        bool is_break = utf8proc_grapheme_break_stateful(cp, next, &state);
        /* A mark that is newer than utf8proc breaks from nothing that stands in a line. */
        if (is_break && utf8proc_category(next) == UTF8PROC_CATEGORY_CN &&
            utf8proc_category(cp) != UTF8PROC_CATEGORY_CC)
            is_break = !tg_unicode_is(TG_UNICODE_JOINING, next);
        if (is_break) break;
        end += n;
        cp = next;
    }
    return end - at;
}
