/* SPDX-License-Identifier: Apache-2.0
 * jinja_text.c - what Python does with the characters of a string: case, white space, lines,
 * replacing, numbers in text.
 *
 * Case mappings are Unicode's full ones. utf8proc has the simple mappings and full case folding;
 * where a letter's upper case has several letters (U+00DF, ligatures, Greek with iota) folding it
 * and raising each letter gives them. */
#define _GNU_SOURCE /* memmem */
#include "jinja/jinja.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

bool tg_jchar_is_printable(int32_t c)
{
    if (c == ' ') return true;
    switch ((int)utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

/* ---- case */

/* The letters of c folded, at most 4; 1 and c itself when folding does not change it. */
static int fold(int32_t c, int32_t out[4])
{
    int last_bound_class = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, out, 4, UTF8PROC_CASEFOLD, &last_bound_class);
    if (n >= 1 && n <= 4) return (int)n;
    out[0] = c;
    return 1;
}

/* utf8proc raises it to one letter, U+1E9E; Unicode's full mapping, and Python, to "SS". */
enum { SHARP_S = 0xdf };

static void add_upper(tg_buf *b, int32_t c)
{
    int32_t upper = utf8proc_toupper(c), letters[4];
    utf8proc_category_t kind = utf8proc_category(upper);
    if (c == SHARP_S || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT) {
        int n = fold(c, letters);
        for (int i = 0; i < n && n > 1; i++)
            tg_buf_add_utf8(b, utf8proc_toupper(letters[i]));
        if (n > 1) return;
    }
    tg_buf_add_utf8(b, upper);
}

static void add_folded(tg_buf *b, int32_t c)
{
    int32_t letters[4];
    int n = fold(c, letters);
    for (int i = 0; i < n; i++)
        tg_buf_add_utf8(b, letters[i]);
}

static void add_title(tg_buf *b, int32_t c)
{
    int32_t title = utf8proc_totitle(c), letters[4];
    bool is_alone = title == c && utf8proc_category(c) == UTF8PROC_CATEGORY_LL;
    int n = is_alone || c == SHARP_S ? fold(c, letters) : 1;
    if (n == 1) {
        tg_buf_add_utf8(b, title);
        return;
    }
    /* An iota becomes the one written below its letter; what follows an apostrophe is raised. */
    enum { APOSTROPHE = 0x2bc, IOTA = 0x3b9, IOTA_BELOW = 0x345 };
    tg_buf_add_utf8(b, utf8proc_totitle(letters[0]));
    for (int i = 1; i < n; i++)
        tg_buf_add_utf8(b, letters[i] == IOTA             ? IOTA_BELOW
                           : letters[i - 1] == APOSTROPHE ? utf8proc_totitle(letters[i])
                                                          : letters[i]);
}

/* Letters that final sigma's rule looks through: marks, formats, modifiers, quotes, dots. */
static bool is_case_ignorable(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xb7 || c == 0x2019;
}

/* Sigma at byte i ends a word: a cased letter before it and none after. */
static bool is_final_sigma(tg_str s, size_t i)
{
    int32_t c = 0;
    bool has_before = false;
    for (size_t k = i; k > 0;) {
        do
            k--;
        while (k > 0 && ((unsigned char)s.ptr[k] & 0xc0) == 0x80);
        if (!tg_utf8_decode(s.ptr + k, s.len - k, &c)) break;
        if (is_case_ignorable(c)) continue;
        has_before = tg_jchar_is_cased(c);
        break;
    }
    if (!has_before) return false;
    for (size_t k = i + 2; k < s.len;) {
        int n = tg_utf8_decode(s.ptr + k, s.len - k, &c);
        if (n == 0) break;
        if (!is_case_ignorable(c)) return !tg_jchar_is_cased(c);
        k += (size_t)n;
    }
    return true;
}

void tg_jcase_add(tg_buf *b, tg_str s, tg_jcase how)
{
    bool is_inside = false; /* the letter before was cased: title case lowers this one */
    for (size_t i = 0; i < s.len;) {
        int32_t c;
        char ascii = s.ptr[i];
        bool is_lower = how == TG_JCASE_LOWER || how == TG_JCASE_FOLD ||
                        (how == TG_JCASE_TITLE && is_inside) ||
                        (how == TG_JCASE_SWAP && ascii >= 'A' && ascii <= 'Z');
        if ((unsigned char)ascii < 0x80) {
            bool is_letter = (ascii | 32) >= 'a' && (ascii | 32) <= 'z';
            tg_buf_add_byte(b, (char)(!is_letter ? ascii : is_lower ? ascii | 32 : ascii & ~32));
            is_inside = is_letter;
            i++;
            continue;
        }
        int n = tg_utf8_decode(s.ptr + i, s.len - i, &c);
        if (n == 0) break; /* strings are valid UTF-8 */
        is_lower |= how == TG_JCASE_SWAP && tg_jchar_is_upper(c);
        if (how == TG_JCASE_FOLD)
            add_folded(b, c);
        else if (how == TG_JCASE_SWAP && !is_lower && !tg_jchar_is_lower(c))
            tg_buf_add_utf8(b, c);
        else if (is_lower && c == 0x3a3)
            tg_buf_add_utf8(b, is_final_sigma(s, i) ? 0x3c2 : 0x3c3);
        else if (is_lower && c == 0x130)
            tg_buf_add_cstr(b, "i\xcc\x87"); /* i and a dot above */
        else if (is_lower)
            tg_buf_add_utf8(b, utf8proc_tolower(c));
        else if (how == TG_JCASE_UPPER || how == TG_JCASE_SWAP)
            add_upper(b, c);
        else
            add_title(b, c);
        is_inside = tg_jchar_is_cased(c);
        i += (size_t)n;
    }
}

tg_jval tg_jstr_map_case(tg_jrun *r, tg_jval s, tg_jcase how)
{
    tg_buf b = {0};
    if (!tg_jrun_pay(r, s.is_ascii ? s.len / 8 : s.len)) return s;
    tg_jcase_add(&b, tg_jval_str(s), how);
    tg_jval v = tg_jstr_take(r, &b);
    v.is_markup = s.is_markup;
    return v;
}

/* The first letter in title case, the others lowered. */
tg_jval tg_jstr_capitalize(tg_jrun *r, tg_jval s)
{
    tg_buf b = {0};
    int32_t c;
    int n = tg_utf8_decode(s.u.s, s.len, &c);
    if (n == 0 || !tg_jrun_pay(r, s.is_ascii ? s.len / 8 : s.len)) return s;
    add_title(&b, c);
    /* Lowered as part of the whole: a final sigma sees the first letter. */
    tg_buf all = {0};
    tg_jcase_add(&all, tg_jval_str(s), TG_JCASE_LOWER);
    tg_buf first = {0};
    tg_jcase_add(&first, (tg_str){s.u.s, (size_t)n}, TG_JCASE_LOWER);
    if (all.len >= first.len) tg_buf_add(&b, all.ptr + first.len, all.len - first.len);
    tg_buf_deinit(&all);
    tg_buf_deinit(&first);
    tg_jval v = tg_jstr_take(r, &b);
    v.is_markup = s.is_markup;
    return v;
}

bool tg_jstr_is_cased_as(tg_jrun *r, tg_jval s, tg_jcase how)
{
    bool has_any = false;
    tg_jrun_pay(r, s.len / 4);
    for (uint32_t i = 0; i < s.len;) {
        int32_t c = 0;
        int n = tg_utf8_decode(s.u.s + i, s.len - i, &c);
        bool is_upper = tg_jchar_is_upper(c), is_lower = tg_jchar_is_lower(c);
        if (utf8proc_category(c) == UTF8PROC_CATEGORY_LT ||
            (how == TG_JCASE_LOWER ? is_upper : is_lower))
            return false;
        has_any |= is_upper || is_lower;
        i += (uint32_t)TG_MAX(n, 1);
    }
    return has_any;
}

bool tg_jchar_is_word(int32_t c)
{
    if (c == '_') return true;
    switch ((int)utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
    }
}

/* ---- ends of a string */

static bool is_stripped(int32_t c, tg_jval chars)
{
    if (chars.kind != TG_J_STR) return tg_jchar_is_space(c);
    for (uint32_t i = 0; i < chars.len;) {
        int32_t x;
        int n = tg_utf8_decode(chars.u.s + i, chars.len - i, &x);
        if (n == 0) break;
        if (x == c) return true;
        i += (uint32_t)n;
    }
    return false;
}

tg_jval tg_jstr_strip(tg_jrun *r, tg_jval s, tg_jval chars, bool left, bool right)
{
    if (chars.kind != TG_J_STR && chars.kind != TG_J_NONE && chars.kind != TG_J_MISSING)
        return tg_jrun_raise(r, "strip arg must be None or str");
    uint32_t from = 0, to = s.len;
    int32_t c;
    int64_t cost = chars.kind == TG_J_STR ? 1 + chars.len / 8 : 1;
    while (left && from < to && tg_jrun_pay(r, cost)) {
        int n = tg_utf8_decode(s.u.s + from, to - from, &c);
        if (n == 0 || !is_stripped(c, chars)) break;
        from += (uint32_t)n;
    }
    while (right && from < to && tg_jrun_pay(r, cost)) {
        uint32_t i = to - 1;
        while (i > from && ((unsigned char)s.u.s[i] & 0xc0) == 0x80)
            i--;
        if (!tg_utf8_decode(s.u.s + i, to - i, &c) || !is_stripped(c, chars)) break;
        to = i;
    }
    tg_jrun_pay(r, (to - from) / 64);
    tg_jval v = tg_jstr((tg_str){s.u.s + from, to - from});
    v.is_markup = s.is_markup;
    return v;
}

/* ---- replacing and lines */

tg_jval tg_jstr_replace(tg_jrun *r, tg_jval s, tg_jval from, tg_jval to, int64_t max)
{
    tg_buf b = {0};
    uint32_t i = 0;
    int64_t n = 0;
    if (max < 0) max = INT64_MAX;
    tg_jrun_pay(r, s.len / 32);
    while (n < max && !tg_jrun_is_failed(r)) {
        const char *at = s.u.s + i;
        if (from.len) at = memmem(s.u.s + i, s.len - i, from.u.s, from.len);
        if (!at) break;
        if (!tg_jrun_pay(r, 1 + to.len / 64)) break;
        if (b.len + to.len > r->max_output) {
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
            break;
        }
        tg_buf_add(&b, s.u.s + i, (size_t)(at - (s.u.s + i)));
        i = (uint32_t)(at - s.u.s) + from.len;
        tg_buf_add_str(&b, tg_jval_str(to));
        n++;
        if (from.len) continue;
        /* Between all characters, and at both ends. */
        if (i >= s.len) break;
        int32_t c;
        int step = tg_utf8_decode(s.u.s + i, s.len - i, &c);
        tg_buf_add(&b, s.u.s + i, (size_t)TG_MAX(step, 1));
        i += (uint32_t)TG_MAX(step, 1);
    }
    if (n == 0) {
        tg_buf_deinit(&b);
        return s;
    }
    if (i < s.len) tg_buf_add(&b, s.u.s + i, s.len - i);
    tg_jval v = tg_jstr_take(r, &b);
    v.is_markup = s.is_markup;
    return v;
}

static bool is_line_end(int32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

tg_jval tg_jstr_split_lines(tg_jrun *r, tg_jval s, bool keep_ends)
{
    tg_jval list = tg_jlist_new(r, TG_J_LIST, 0);
    uint32_t start = 0;
    tg_jrun_pay(r, s.len / 8);
    for (uint32_t i = 0; i < s.len && !tg_jrun_is_failed(r);) {
        int32_t c;
        uint32_t n = (uint32_t)TG_MAX(tg_utf8_decode(s.u.s + i, s.len - i, &c), 1);
        if (is_line_end(c)) {
            if (c == '\r' && i + 1 < s.len && s.u.s[i + 1] == '\n') n = 2;
            tg_jval line = tg_jstr((tg_str){s.u.s + start, (keep_ends ? i + n : i) - start});
            line.is_markup = s.is_markup;
            tg_jlist_add(r, list, line);
            start = i + n;
        }
        i += n;
    }
    if (start < s.len) {
        tg_jval line = tg_jstr((tg_str){s.u.s + start, s.len - start});
        line.is_markup = s.is_markup;
        tg_jlist_add(r, list, line);
    }
    return list;
}

/* ---- numbers in text */

static bool is_ascii(tg_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] >= 0x80) return false;
    return true;
}

static tg_str strip_space(tg_str s)
{
    while (s.len) {
        int32_t c;
        int n = tg_utf8_decode(s.ptr, s.len, &c);
        if (n == 0 || !tg_jchar_is_space(c)) break;
        s.ptr += n;
        s.len -= (size_t)n;
    }
    while (s.len) {
        size_t i = s.len - 1;
        while (i > 0 && ((unsigned char)s.ptr[i] & 0xc0) == 0x80)
            i--;
        int32_t c;
        int n = tg_utf8_decode(s.ptr + i, s.len - i, &c);
        if (n == 0 || !tg_jchar_is_space(c)) break;
        s.len = i;
    }
    return s;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

enum { NUMBER_BYTES = 512 };

/* Decimal digits of other scripts are written as ours, in `room`; text that would not fit is
 * returned as it is, and is no number. */
static tg_str to_own_digits(tg_str s, char room[NUMBER_BYTES])
{
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        int32_t c;
        int k = tg_utf8_decode(s.ptr + i, s.len - i, &c), digit = tg_jchar_digit(c);
        if (k <= 0 || n + 4 > NUMBER_BYTES) return s;
        if (digit >= 0)
            room[n++] = (char)('0' + digit);
        else
            n += (size_t)tg_utf8_encode(c, room + n);
        i += (size_t)k;
    }
    return (tg_str){room, n};
}

int tg_jparse_int(tg_str s, int64_t base, int64_t *out)
{
    char room[NUMBER_BYTES];
    s = strip_space(s);
    if (!is_ascii(s)) s = to_own_digits(s, room);
    bool is_negative = s.len && s.ptr[0] == '-', is_big = false, may_underscore = false;
    size_t i = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+') ? 1 : 0;
    if (i + 1 < s.len && s.ptr[i] == '0') {
        char c = (char)(s.ptr[i + 1] | 32);
        int b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (b && (base == 0 || base == b)) {
            base = b;
            i += 2;
            may_underscore = true;
        }
    }
    bool is_zero_only = base == 0;
    if (base == 0) base = 10;
    if (base < 2 || base > 36) return 1;
    int64_t v = 0;
    size_t n_digits = 0;
    bool is_leading_zero = false;
    for (; i < s.len; i++) {
        if (s.ptr[i] == '_' && may_underscore) {
            may_underscore = false;
            continue;
        }
        int d = digit_value(s.ptr[i]);
        if (d >= base) return 1;
        if (n_digits == 0 && d == 0) is_leading_zero = true;
        if (n_digits > 0 && is_leading_zero && is_zero_only && d != 0) return 1;
        if (__builtin_mul_overflow(v, base, &v) || __builtin_sub_overflow(v, (int64_t)d, &v))
            is_big = true;
        n_digits++;
        may_underscore = true;
    }
    if (n_digits == 0 || s.ptr[s.len - 1] == '_') return 1;
    if (!is_negative && __builtin_sub_overflow(INT64_C(0), v, &v)) is_big = true;
    *out = v; /* collected as a negative number, which has one more */
    return is_big ? 2 : 0;
}

/* Letters of `word`, in any case, make up all of s. */
static bool is_word(tg_str s, const char *word)
{
    if (s.len != strlen(word)) return false;
    for (size_t i = 0; i < s.len; i++)
        if ((s.ptr[i] | 32) != word[i]) return false;
    return true;
}

bool tg_jparse_float(tg_str s, double *out)
{
    char digits[NUMBER_BYTES], room[NUMBER_BYTES];
    size_t n = 0;
    s = strip_space(s);
    if (!is_ascii(s)) s = to_own_digits(s, room);
    if (s.len == 0 || s.len >= sizeof digits) return false;
    tg_str word = s;
    bool is_negative = s.ptr[0] == '-';
    if (s.ptr[0] == '-' || s.ptr[0] == '+') word = (tg_str){s.ptr + 1, s.len - 1};
    if (is_word(word, "inf") || is_word(word, "infinity")) {
        *out = is_negative ? -INFINITY : INFINITY;
        return true;
    }
    if (is_word(word, "nan")) {
        *out = NAN;
        return true;
    }
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool is_digit = c >= '0' && c <= '9';
        if (c == '_') {
            bool is_between = i > 0 && i + 1 < s.len && s.ptr[i - 1] >= '0' &&
                              s.ptr[i - 1] <= '9' && s.ptr[i + 1] >= '0' && s.ptr[i + 1] <= '9';
            if (!is_between) return false;
            continue;
        }
        if (!is_digit && !(c && strchr("+-.eE", c))) return false; /* no hex floats, no "nan(1)" */
        digits[n++] = c;
    }
    digits[n] = 0;
    char *end;
    *out = tg_f64_parse(digits, &end);
    return n > 0 && *end == 0;
}
