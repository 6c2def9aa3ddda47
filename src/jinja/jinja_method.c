/* SPDX-License-Identifier: Apache-2.0
 * jinja_method.c - methods of strings, and the search among those of every kind.
 *
 * The tables name every method Python 3.11 has: what is in none does not exist and gives
 * undefined, what has no function is refused by name, and what would change its object is hidden by
 * the sandbox. */
#define _GNU_SOURCE /* memmem */
#include "jinja/jinja.h"

#include <math.h>
#include <string.h>

static bool is_given(tg_jval v)
{
    return v.kind != TG_J_MISSING && v.kind != TG_J_NONE;
}

static bool is_str(tg_jrun *r, tg_jval v, const char *what)
{
    if (v.kind == TG_J_STR) return true;
    tg_jrun_raise(r, "%s must be str, not %s", what, tg_jkind_name(v));
    return false;
}

/* ---- case and white space */

static tg_jval str_upper(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_map_case(r, s, TG_JCASE_UPPER);
}

static tg_jval str_lower(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_map_case(r, s, TG_JCASE_LOWER);
}

static tg_jval str_title(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_map_case(r, s, TG_JCASE_TITLE);
}

static tg_jval str_capitalize(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_capitalize(r, s);
}

static tg_jval str_strip(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return tg_jstr_strip(r, s, a->v[0], true, true);
}

static tg_jval str_lstrip(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return tg_jstr_strip(r, s, a->v[0], true, false);
}

static tg_jval str_rstrip(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return tg_jstr_strip(r, s, a->v[0], false, true);
}

/* ---- looking inside */

/* Bytes [*from, *to) of the characters [start, end) given as in s.find(x, start, end). */
static bool byte_range(tg_jrun *r, tg_jval s, const tg_jval bounds[2], uint32_t *from, uint32_t *to)
{
    *from = 0;
    *to = s.len;
    if (!is_given(bounds[0]) && !is_given(bounds[1])) return true;
    tg_jval parts[3] = {bounds[0], bounds[1], {.kind = TG_J_MISSING}};
    tg_jval cut = tg_jval_slice(r, s, parts);
    if (tg_jrun_is_failed(r)) return false;
    int64_t n = tg_jstr_count(r, s);
    if (tg_jval_is_int(bounds[0]) && tg_jval_int(bounds[0]) > n) return false;
    *from = cut.len ? (uint32_t)(cut.u.s - s.u.s) : s.len;
    if (cut.len == 0 && tg_jval_is_int(bounds[0])) {
        int64_t i = tg_jval_int(bounds[0]);
        tg_jval head = tg_jstr_cut(r, s, 0, i < 0 ? TG_MAX(i + n, 0) : i);
        *from = head.len;
    } else if (cut.len == 0) {
        *from = 0;
    }
    *to = *from + cut.len;
    return true;
}

static bool has_affix(tg_jval s, uint32_t from, uint32_t to, tg_jval x, bool is_end)
{
    if (x.len > to - from) return false;
    return memcmp(s.u.s + (is_end ? to - x.len : from), x.u.s, x.len) == 0;
}

/* startswith and endswith: a string or a tuple of them. */
static tg_jval test_affix(tg_jrun *r, tg_jval s, const tg_jargs *a, bool is_end)
{
    uint32_t from, to;
    tg_jval x = a->v[0];
    const char *what = is_end ? "endswith" : "startswith";
    if (x.kind != TG_J_STR && x.kind != TG_J_TUPLE)
        return tg_jrun_raise(r, "%s first arg must be str or a tuple of str, not %s", what,
                             tg_jkind_name(x));
    if (!byte_range(r, s, a->v + 1, &from, &to)) return tg_jbool(false);
    if (x.kind == TG_J_STR) return tg_jbool(has_affix(s, from, to, x, is_end));
    for (int32_t i = 0; i < x.u.list->n && tg_jrun_pay(r, 1); i++) {
        if (x.u.list->items[i].kind != TG_J_STR)
            return tg_jrun_raise(r, "tuple for %s must only contain str, not %s", what,
                                 tg_jkind_name(x.u.list->items[i]));
        if (has_affix(s, from, to, x.u.list->items[i], is_end)) return tg_jbool(true);
    }
    return tg_jbool(false);
}

static tg_jval str_startswith(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return test_affix(r, s, a, false);
}

static tg_jval str_endswith(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return test_affix(r, s, a, true);
}

/* The last place of x in s[from, to), or NULL. Text and sought text may be alike for long at every
 * place, so that each costs what may be compared. */
static const char *find_last(tg_jrun *r, const char *s, size_t n, tg_jval x)
{
    for (size_t i = n + 1; i-- > 0 && tg_jrun_pay(r, 1 + x.len / 64);)
        if (x.len <= n - i && memcmp(s + i, x.u.s, x.len) == 0) return s + i;
    return NULL;
}

/* The character index of a->v[0] in s, or -1. */
static int64_t find_index(tg_jrun *r, tg_jval s, const tg_jargs *a, bool is_last)
{
    uint32_t from, to;
    if (!is_str(r, a->v[0], "the text to find") || !byte_range(r, s, a->v + 1, &from, &to))
        return -1;
    tg_jval x = a->v[0];
    tg_jrun_pay(r, (to - from) / 32);
    const char *at = is_last ? find_last(r, s.u.s + from, to - from, x)
                     : x.len ? memmem(s.u.s + from, to - from, x.u.s, x.len)
                             : s.u.s + from;
    if (!at) return -1;
    return tg_jstr_count(r, tg_jstr((tg_str){s.u.s, (size_t)(at - s.u.s)}));
}

static tg_jval str_find(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return tg_jint(find_index(r, s, a, false));
}

static tg_jval str_rfind(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return tg_jint(find_index(r, s, a, true));
}

static tg_jval str_index(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    int64_t i = find_index(r, s, a, false);
    return i < 0 ? tg_jrun_raise(r, "substring not found") : tg_jint(i);
}

static tg_jval str_rindex(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    int64_t i = find_index(r, s, a, true);
    return i < 0 ? tg_jrun_raise(r, "substring not found") : tg_jint(i);
}

static tg_jval str_count(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    uint32_t from, to;
    int64_t n = 0;
    tg_jval x = a->v[0];
    if (!is_str(r, x, "the text to count")) return tg_jnone();
    if (!byte_range(r, s, a->v + 1, &from, &to)) return tg_jint(0);
    if (x.len == 0)
        return tg_jint(1 + tg_jstr_count(r, tg_jstr((tg_str){s.u.s + from, to - from})));
    tg_jrun_pay(r, (to - from) / 32);
    for (const char *at = s.u.s + from, *end = s.u.s + to;
         (at = memmem(at, (size_t)(end - at), x.u.s, x.len)) && tg_jrun_pay(r, 1); at += x.len)
        n++;
    return tg_jint(n);
}

/* ---- cutting and joining */

static tg_jval str_replace(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    if (!is_str(r, a->v[0], "replace() argument 1") || !is_str(r, a->v[1], "replace() argument 2"))
        return tg_jnone();
    if (a->v[2].kind != TG_J_MISSING && !tg_jval_is_int(a->v[2]))
        return tg_jrun_raise(r, "'%s' object cannot be interpreted as an integer",
                             tg_jkind_name(a->v[2]));
    tg_jval to = s.is_markup ? tg_jstr_escape(r, a->v[1]) : a->v[1];
    return tg_jstr_replace(r, s, a->v[0], to,
                           a->v[2].kind == TG_J_MISSING ? -1 : tg_jval_int(a->v[2]));
}

static void add_piece(tg_jrun *r, tg_jval list, tg_jval s, size_t from, size_t to)
{
    tg_jval piece = tg_jstr((tg_str){s.u.s + from, to - from});
    piece.is_markup = s.is_markup;
    tg_jlist_add(r, list, piece);
}

/* Bytes of the white space before byte `end`, or 0. */
static size_t space_before(tg_jval s, size_t end)
{
    size_t i = end - 1;
    int32_t c;
    while (i > 0 && ((unsigned char)s.u.s[i] & 0xc0) == 0x80)
        i--;
    return tg_utf8_decode(s.u.s + i, end - i, &c) && tg_jchar_is_space(c) ? end - i : 0;
}

static size_t space_at(tg_jval s, size_t i)
{
    int32_t c;
    int n = tg_utf8_decode(s.u.s + i, s.len - i, &c);
    return n && tg_jchar_is_space(c) ? (size_t)n : 0;
}

static tg_jval split_space(tg_jrun *r, tg_jval s, int64_t max)
{
    tg_jval list = tg_jlist_new(r, TG_J_LIST, 0);
    size_t i = 0, n;
    tg_jrun_pay(r, s.len / 8);
    while (!tg_jrun_is_failed(r)) {
        while (i < s.len && (n = space_at(s, i)))
            i += n;
        if (i >= s.len) break;
        size_t start = i;
        if (max >= 0 && list.u.list->n >= max) {
            add_piece(r, list, s, start, s.len);
            break;
        }
        while (i < s.len && !space_at(s, i))
            i++;
        add_piece(r, list, s, start, i);
    }
    return list;
}

static void reverse_list(tg_jval list)
{
    tg_jlist *l = list.u.list;
    for (int32_t i = 0, k = l->n - 1; i < k; i++, k--) {
        tg_jval x = l->items[i];
        l->items[i] = l->items[k];
        l->items[k] = x;
    }
}

static tg_jval rsplit_space(tg_jrun *r, tg_jval s, int64_t max)
{
    tg_jval list = tg_jlist_new(r, TG_J_LIST, 0);
    size_t end = s.len, n;
    tg_jrun_pay(r, s.len / 8);
    while (!tg_jrun_is_failed(r)) {
        while (end > 0 && (n = space_before(s, end)))
            end -= n;
        if (end == 0) break;
        if (max >= 0 && list.u.list->n >= max) {
            add_piece(r, list, s, 0, end);
            break;
        }
        size_t start = end;
        while (start > 0 && !space_before(s, start))
            start--;
        add_piece(r, list, s, start, end);
        end = start;
    }
    if (!tg_jrun_is_failed(r)) reverse_list(list);
    return list;
}

static tg_jval split_by(tg_jrun *r, tg_jval s, tg_jval sep, int64_t max)
{
    tg_jval list = tg_jlist_new(r, TG_J_LIST, 0);
    size_t i = 0;
    tg_jrun_pay(r, s.len / 32);
    while (!tg_jrun_is_failed(r)) {
        bool is_full = max >= 0 && list.u.list->n >= max;
        const char *at = is_full ? NULL : memmem(s.u.s + i, s.len - i, sep.u.s, sep.len);
        size_t end = at ? (size_t)(at - s.u.s) : s.len;
        add_piece(r, list, s, i, end);
        if (!at) break;
        i = end + sep.len;
    }
    return list;
}

static tg_jval rsplit_by(tg_jrun *r, tg_jval s, tg_jval sep, int64_t max)
{
    tg_jval list = tg_jlist_new(r, TG_J_LIST, 0);
    size_t end = s.len;
    while (!tg_jrun_is_failed(r)) {
        bool is_full = max >= 0 && list.u.list->n >= max;
        const char *at = is_full ? NULL : find_last(r, s.u.s, end, sep);
        size_t start = at ? (size_t)(at - s.u.s) + sep.len : 0;
        add_piece(r, list, s, start, end);
        if (!at) break;
        end = start - sep.len;
    }
    if (!tg_jrun_is_failed(r)) reverse_list(list);
    return list;
}

/* "sep maxsplit" */
static tg_jval split(tg_jrun *r, tg_jval s, const tg_jargs *a, bool is_right)
{
    int64_t max = -1;
    if (a->v[1].kind != TG_J_MISSING) {
        if (!tg_jval_is_int(a->v[1]))
            return tg_jrun_raise(r, "'%s' object cannot be interpreted as an integer",
                                 tg_jkind_name(a->v[1]));
        max = tg_jval_int(a->v[1]);
    }
    if (!is_given(a->v[0])) return is_right ? rsplit_space(r, s, max) : split_space(r, s, max);
    if (!is_str(r, a->v[0], "the separator")) return tg_jnone();
    if (a->v[0].len == 0) return tg_jrun_raise(r, "empty separator");
    return is_right ? rsplit_by(r, s, a->v[0], max) : split_by(r, s, a->v[0], max);
}

static tg_jval str_split(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return split(r, s, a, false);
}

static tg_jval str_rsplit(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return split(r, s, a, true);
}

static tg_jval str_splitlines(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    if (a->v[0].kind != TG_J_MISSING && !tg_jval_is_int(a->v[0]))
        return tg_jrun_raise(r, "'%s' object cannot be interpreted as an integer",
                             tg_jkind_name(a->v[0]));
    return tg_jstr_split_lines(r, s, tg_jval_is_true(a->v[0]));
}

static tg_jval partition(tg_jrun *r, tg_jval s, tg_jval sep, bool is_right)
{
    if (!is_str(r, sep, "the separator")) return tg_jnone();
    if (sep.len == 0) return tg_jrun_raise(r, "empty separator");
    tg_jrun_pay(r, s.len / 32);
    const char *at =
        is_right ? find_last(r, s.u.s, s.len, sep) : memmem(s.u.s, s.len, sep.u.s, sep.len);
    tg_jval t = tg_jlist_new(r, TG_J_TUPLE, 3);
    if (tg_jrun_is_failed(r)) return t;
    size_t from = at ? (size_t)(at - s.u.s) : is_right ? 0 : s.len;
    size_t to = at ? from + sep.len : from;
    add_piece(r, t, s, 0, from);
    add_piece(r, t, s, from, to);
    add_piece(r, t, s, to, s.len);
    return t;
}

static tg_jval str_partition(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return partition(r, s, a->v[0], false);
}

static tg_jval str_rpartition(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    return partition(r, s, a->v[0], true);
}

static tg_jval str_join(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval item;
    tg_buf b = {0};
    if (a->v[0].kind != TG_J_UNDEFINED && !tg_jval_is_iterable(a->v[0]))
        return tg_jrun_raise(r, "can only join an iterable");
    if (!tg_jwalk_begin(r, &w, a->v[0])) return tg_jnone();
    for (int32_t i = 0; tg_jwalk_next(r, &w, &item); i++) {
        if (item.kind != TG_J_STR) {
            tg_jrun_raise(r, "sequence item %d: expected str instance, %s found", i,
                          tg_jkind_name(item));
            break;
        }
        if (i) tg_jval_print(r, &b, s);
        tg_jval_print(r, &b, s.is_markup ? tg_jstr_escape(r, item) : item);
        if (b.len > r->max_output)
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
    }
    tg_jval v = tg_jstr_take(r, &b);
    v.is_markup = s.is_markup;
    return v;
}

static tg_jval str_removeprefix(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    if (!is_str(r, a->v[0], "removeprefix() argument")) return tg_jnone();
    tg_jval v = s;
    if (has_affix(s, 0, s.len, a->v[0], false))
        v = tg_jstr((tg_str){s.u.s + a->v[0].len, s.len - a->v[0].len});
    v.is_markup = s.is_markup;
    return v;
}

static tg_jval str_removesuffix(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    if (!is_str(r, a->v[0], "removesuffix() argument")) return tg_jnone();
    tg_jval v = s;
    if (has_affix(s, 0, s.len, a->v[0], true)) v = tg_jstr((tg_str){s.u.s, s.len - a->v[0].len});
    v.is_markup = s.is_markup;
    return v;
}

/* n times the character of `fill` (a space when not given) on each side of s. */
static tg_jval pad(tg_jrun *r, tg_jval s, int64_t left, int64_t right, tg_jval fill)
{
    if (fill.kind == TG_J_MISSING) fill = tg_jstr(TG_STR(" "));
    if (!is_str(r, fill, "the fill character")) return tg_jnone();
    if (tg_jstr_count(r, fill) != 1)
        return tg_jrun_raise(r, "The fill character must be exactly one character long");
    tg_jval a = tg_jval_binary(r, TG_JOP_MUL, fill, tg_jint(left));
    tg_jval b = tg_jval_binary(r, TG_JOP_MUL, fill, tg_jint(right));
    if (tg_jrun_is_failed(r)) return tg_jnone();
    return tg_jstr_concat(r, tg_jstr_concat(r, a, s), b);
}

static bool missing_width(tg_jrun *r, tg_jval s, const tg_jargs *a, int64_t *out)
{
    if (!tg_jval_is_int(a->v[0])) {
        tg_jrun_raise(r, "'%s' object cannot be interpreted as an integer", tg_jkind_name(a->v[0]));
        return false;
    }
    *out = TG_MAX(TG_MIN(tg_jval_int(a->v[0]), INT64_C(1) << 40) - tg_jstr_count(r, s), 0);
    return true;
}

static tg_jval str_ljust(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    int64_t n;
    return missing_width(r, s, a, &n) ? pad(r, s, 0, n, a->v[1]) : tg_jnone();
}

static tg_jval str_rjust(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    int64_t n;
    return missing_width(r, s, a, &n) ? pad(r, s, n, 0, a->v[1]) : tg_jnone();
}

static tg_jval str_center(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    int64_t n;
    if (!missing_width(r, s, a, &n)) return tg_jnone();
    int64_t left = n / 2 + (n & tg_jval_int(a->v[0]) & 1);
    return pad(r, s, left, n - left, a->v[1]);
}

static tg_jval str_zfill(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    int64_t n;
    if (!missing_width(r, s, a, &n)) return tg_jnone();
    bool has_sign = s.len && (s.u.s[0] == '-' || s.u.s[0] == '+');
    tg_jval sign = tg_jstr_cut(r, s, 0, has_sign), rest = s;
    if (has_sign) rest = tg_jstr((tg_str){s.u.s + 1, s.len - 1});
    tg_jval v = pad(r, rest, n, 0, tg_jstr(TG_STR("0")));
    return tg_jrun_is_failed(r) ? v : tg_jstr_concat(r, sign, v);
}

enum {
    STR = TG_J_BIT(TG_J_STR),
    DICT = TG_J_BIT(TG_J_DICT),
    LIST = TG_J_BIT(TG_J_LIST),
};

static const tg_jfunc methods[] = {
    {"capitalize", str_capitalize, "", 0, STR},
    {"center", str_center, "/width fillchar", 1, STR},
    {"count", str_count, "/sub start end", 1, STR},
    {"encode", NULL, "*", 0, STR},
    {"endswith", str_endswith, "/suffix start end", 1, STR},
    {"find", str_find, "/sub start end", 1, STR},
    {"format", tg_jstr_format, "*", 0, STR},
    {"format_map", NULL, "mapping", 1, STR},
    {"index", str_index, "/sub start end", 1, STR},
    {"join", str_join, "/iterable", 1, STR},
    {"ljust", str_ljust, "/width fillchar", 1, STR},
    {"lower", str_lower, "", 0, STR},
    {"lstrip", str_lstrip, "/chars", 0, STR},
    {"maketrans", NULL, "*", 0, STR},
    {"partition", str_partition, "/sep", 1, STR},
    {"removeprefix", str_removeprefix, "/prefix", 1, STR},
    {"removesuffix", str_removesuffix, "/suffix", 1, STR},
    {"replace", str_replace, "/old new count", 2, STR},
    {"rfind", str_rfind, "/sub start end", 1, STR},
    {"rindex", str_rindex, "/sub start end", 1, STR},
    {"rjust", str_rjust, "/width fillchar", 1, STR},
    {"rpartition", str_rpartition, "/sep", 1, STR},
    {"rsplit", str_rsplit, "sep maxsplit", 0, STR},
    {"rstrip", str_rstrip, "/chars", 0, STR},
    {"split", str_split, "sep maxsplit", 0, STR},
    {"splitlines", str_splitlines, "keepends", 0, STR},
    {"startswith", str_startswith, "/prefix start end", 1, STR},
    {"strip", str_strip, "/chars", 0, STR},
    {"title", str_title, "", 0, STR},
    {"upper", str_upper, "", 0, STR},
    {"zfill", str_zfill, "/width", 1, STR},
    {0},
};

static const struct {
    const char *name;
    uint32_t kinds;
} unsafe[] = {
    {"append", LIST},     {"clear", LIST | DICT}, {"extend", LIST}, {"insert", LIST},
    {"pop", LIST | DICT}, {"popitem", DICT},      {"remove", LIST}, {"reverse", LIST},
    {"setdefault", DICT}, {"sort", LIST},         {"update", DICT},
};

const tg_jfunc *tg_jmethod_find(uint8_t kind, tg_str name)
{
    const tg_jfunc *const tables[] = {methods, tg_jchar_methods, tg_jcontainer_methods,
                                      tg_jloop_methods};
    for (size_t t = 0; t < TG_COUNT(tables); t++)
        for (const tg_jfunc *f = tables[t]; f->name; f++)
            if ((f->kinds & TG_J_BIT(kind)) && tg_str_is(name, f->name)) return f;
    return NULL;
}

bool tg_jmethod_is_unsafe(uint8_t kind, tg_str name)
{
    if (tg_str_has_prefix(name, TG_STR("__")) && tg_str_has_suffix(name, TG_STR("__")) &&
        name.len > 4)
        return true; /* Python's own attributes: every object has some */
    for (size_t i = 0; i < TG_COUNT(unsafe); i++)
        if ((unsafe[i].kinds & TG_J_BIT(kind)) && tg_str_is(name, unsafe[i].name)) return true;
    return false;
}
