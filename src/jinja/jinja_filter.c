/* SPDX-License-Identifier: Apache-2.0
 * jinja_filter.c - filters of single values, tests, and the tables of all filters and tests.
 *
 * A row without a function is a filter the reference has and this engine refuses by name. */
#include "jinja/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_given(tg_jval v)
{
    return v.kind != TG_J_MISSING;
}

static int64_t int_or(tg_jval v, int64_t otherwise)
{
    return tg_jval_is_int(v) ? tg_jval_int(v) : otherwise;
}

/* ---- text */

static tg_jval do_upper(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_map_case(r, tg_jval_to_str(r, v), TG_JCASE_UPPER);
}

static tg_jval do_lower(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_map_case(r, tg_jval_to_str(r, v), TG_JCASE_LOWER);
}

static tg_jval do_capitalize(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_capitalize(r, tg_jval_to_str(r, v));
}

/* Words begin behind - ( { [ < and white space here, unlike in str.title. */
static tg_jval do_title(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    tg_jval s = tg_jval_to_str(r, v);
    tg_buf b = {0};
    tg_jrun_pay(r, s.len / 2);
    uint32_t i = 0;
    while (i < s.len) {
        uint32_t start = i;
        int32_t c = 0;
        while (i < s.len) {
            int n = tg_utf8_decode(s.u.s + i, s.len - i, &c);
            if (tg_jchar_is_space(c) || (c > 0 && c < 0x80 && strchr("-({[<", (char)c))) break;
            i += (uint32_t)TG_MAX(n, 1);
        }
        if (i > start) {
            int n = TG_MAX(tg_utf8_decode(s.u.s + start, i - start, &c), 1);
            tg_jcase_add(&b, (tg_str){s.u.s + start, (size_t)n}, TG_JCASE_UPPER);
            tg_jcase_add(&b, (tg_str){s.u.s + start + n, i - start - (size_t)n}, TG_JCASE_LOWER);
        } else {
            int n = TG_MAX(tg_utf8_decode(s.u.s + i, s.len - i, &c), 1);
            tg_buf_add(&b, s.u.s + i, (size_t)n);
            i += (uint32_t)n;
        }
    }
    return tg_jstr_take(r, &b);
}

static tg_jval do_trim(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return tg_jstr_strip(r, tg_jval_to_str(r, v), a->v[0], true, true);
}

static tg_jval do_string(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jval_to_str(r, v);
}

static tg_jval do_escape(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_escape(r, v);
}

static tg_jval do_forceescape(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    v = tg_jval_to_str(r, v);
    v.is_markup = false;
    return tg_jstr_escape(r, v);
}

static tg_jval do_safe(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    v = tg_jval_to_str(r, v);
    v.is_markup = true;
    return v;
}

static tg_jval do_replace(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval s = tg_jval_to_str(r, v);
    s.is_markup = false;
    int64_t max = -1;
    if (is_given(a->v[2]) && a->v[2].kind != TG_J_NONE) {
        if (!tg_jval_is_int(a->v[2])) return tg_jrun_raise(r, "the count must be an integer");
        max = tg_jval_int(a->v[2]);
    }
    return tg_jstr_replace(r, s, tg_jval_to_str(r, a->v[0]), tg_jval_to_str(r, a->v[1]), max);
}

/* "width first blank" */
static tg_jval do_indent(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    if (v.kind != TG_J_STR)
        return tg_jrun_raise(r, "indent needs a string, not '%s'", tg_jkind_name(v));
    tg_jval indent = a->v[0];
    if (!is_given(indent)) indent = tg_jint(4);
    if (tg_jval_is_int(indent))
        indent = tg_jval_binary(r, TG_JOP_MUL, tg_jstr(TG_STR(" ")), indent);
    if (indent.kind != TG_J_STR)
        return tg_jrun_raise(r, "the width must be an integer or a string");
    bool is_first = tg_jval_is_true(a->v[1]), is_blank = tg_jval_is_true(a->v[2]);
    tg_jval lines = tg_jstr_split_lines(r, tg_jstr_concat(r, v, tg_jstr(TG_STR("\n"))), false);
    tg_buf b = {0};
    if (tg_jrun_is_failed(r)) return tg_jnone();
    if (is_first) tg_buf_add_str(&b, tg_jval_str(indent));
    for (int32_t i = 0; i < lines.u.list->n && tg_jrun_pay(r, 1 + indent.len / 64); i++) {
        tg_jval line = lines.u.list->items[i];
        if (b.len + indent.len > r->max_output) {
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
            break;
        }
        if (i) tg_buf_add_byte(&b, '\n');
        if (i && (is_blank || line.len)) tg_buf_add_str(&b, tg_jval_str(indent));
        tg_buf_add_str(&b, tg_jval_str(line));
    }
    tg_jval out = tg_jstr_take(r, &b);
    out.is_markup = v.is_markup;
    return out;
}

static tg_jval do_center(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval s = tg_jval_to_str(r, v), space = tg_jstr(TG_STR(" "));
    int64_t width = int_or(a->v[0], 80), n = tg_jstr_count(r, s), pad = width - n;
    if (is_given(a->v[0]) && !tg_jval_is_int(a->v[0]))
        return tg_jrun_raise(r, "the width must be an integer");
    if (pad <= 0) return s;
    int64_t left = pad / 2 + (pad & width & 1);
    tg_jval out = tg_jval_binary(r, TG_JOP_MUL, space, tg_jint(left));
    if (tg_jrun_is_failed(r)) return out;
    out = tg_jstr_concat(r, out, s);
    tg_jval right = tg_jval_binary(r, TG_JOP_MUL, space, tg_jint(pad - left));
    return tg_jrun_is_failed(r) ? out : tg_jstr_concat(r, out, right);
}

/* "length killwords end leeway" */
static tg_jval do_truncate(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval end = is_given(a->v[2]) ? a->v[2] : tg_jstr(TG_STR("..."));
    int64_t length = int_or(a->v[0], 255), leeway = int_or(a->v[3], 5);
    if (v.kind != TG_J_STR && tg_jval_has_len(v) && tg_jval_len(r, v) <= length + leeway) return v;
    if (v.kind != TG_J_STR || end.kind != TG_J_STR)
        return tg_jrun_raise(r, "truncate needs strings, not '%s'", tg_jkind_name(v));
    int64_t n_end = tg_jstr_count(r, end), n = tg_jstr_count(r, v);
    if (length < n_end || leeway < 0)
        return tg_jrun_raise(r, "expected length >= %lld, got %lld", (long long)n_end,
                             (long long)length);
    if (n <= length + leeway) return v;
    tg_jval cut = tg_jstr_cut(r, v, 0, length - n_end);
    if (!tg_jval_is_true(a->v[1]))
        for (uint32_t i = cut.len; i > 0; i--)
            if (cut.u.s[i - 1] == ' ') {
                cut = tg_jstr((tg_str){cut.u.s, i - 1});
                break;
            }
    return tg_jstr_concat(r, cut, end);
}

static tg_jval do_wordcount(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    tg_jval s = tg_jval_to_str(r, v);
    int64_t n = 0;
    bool is_inside = false;
    tg_jrun_pay(r, s.len / 4);
    for (uint32_t i = 0; i < s.len;) {
        int32_t c = 0;
        int k = tg_utf8_decode(s.u.s + i, s.len - i, &c);
        bool is_word = tg_jchar_is_word(c);
        n += is_word && !is_inside;
        is_inside = is_word;
        i += (uint32_t)TG_MAX(k, 1);
    }
    return tg_jint(n);
}

static tg_jval do_format(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval s = tg_jval_to_str(r, v), value;
    if (a->n_rest && a->n_kw)
        return tg_jrun_raise(r, "can't handle positional and keyword arguments at the same time");
    if (a->n_kw) {
        value = tg_jdict_new(r, a->n_kw);
        for (int32_t i = 0; i < a->n_kw && !tg_jrun_is_failed(r); i++)
            tg_jdict_put(r, value.u.dict, a->names[i], a->kw[i]);
    } else {
        value = tg_jlist_new(r, TG_J_TUPLE, a->n_rest);
        for (int32_t i = 0; i < a->n_rest && !tg_jrun_is_failed(r); i++)
            tg_jlist_add(r, value, a->rest[i]);
    }
    return tg_jrun_is_failed(r) ? tg_jnone() : tg_jstr_percent(r, s, value);
}

static tg_jval do_urlencode(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    if (v.kind != TG_J_STR && tg_jval_is_iterable(v))
        return tg_jrun_fail(r, TG_E_UNSUPPORTED, "urlencode of anything but text is not built");
    tg_jval s = tg_jval_to_str(r, v);
    tg_buf b = {0};
    tg_jrun_pay(r, s.len / 8);
    for (uint32_t i = 0; i < s.len; i++) {
        char c = s.u.s[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (is_plain || (c && strchr("_.-~/", c)))
            tg_buf_add_byte(&b, c);
        else
            tg_buf_printf(&b, "%%%02X", (unsigned char)c);
    }
    return tg_jstr_take(r, &b);
}

/* ---- numbers */

static tg_jval float_to_int(tg_jrun *r, double f)
{
    if (!(f > -9.3e18 && f < 9.3e18) || f >= 9223372036854775808.0 || f < -9223372036854775808.0)
        return tg_jrun_fail(r, TG_E_LIMIT, "an integer does not fit 64 bits");
    return tg_jint((int64_t)f);
}

/* "default base" */
static tg_jval do_int(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval otherwise = is_given(a->v[0]) ? a->v[0] : tg_jint(0);
    int64_t i;
    double f = 0;
    if (tg_jval_is_int(v)) return tg_jint(tg_jval_int(v));
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    if (v.kind == TG_J_STR) {
        int64_t base = int_or(a->v[1], 10);
        int how = tg_jparse_int(tg_jval_str(v), base, &i);
        if (how == 0) return tg_jint(i);
        if (how == 2) return tg_jrun_fail(r, TG_E_LIMIT, "an integer does not fit 64 bits");
        if (!tg_jparse_float(tg_jval_str(v), &f)) return otherwise;
    } else if (v.kind == TG_J_FLOAT) {
        f = v.u.f;
        if (isinf(f)) return tg_jrun_raise(r, "cannot convert float infinity to integer");
    } else {
        return otherwise;
    }
    return isnan(f) || isinf(f) ? otherwise : float_to_int(r, f);
}

static tg_jval do_float(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    double f;
    if (tg_jval_is_number(v)) return tg_jfloat(tg_jval_float(v));
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    if (v.kind == TG_J_STR && tg_jparse_float(tg_jval_str(v), &f)) return tg_jfloat(f);
    return is_given(a->v[0]) ? a->v[0] : tg_jfloat(0);
}

static tg_jval do_abs(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    if (v.kind == TG_J_FLOAT) return tg_jfloat(fabs(v.u.f));
    if (tg_jval_is_int(v))
        return tg_jval_int(v) < 0 ? tg_jval_negate(r, v) : tg_jint(tg_jval_int(v));
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    return tg_jrun_raise(r, "bad operand type for abs(): '%s'", tg_jkind_name(v));
}

/* Half to even on the exact value, which is what printing with that many digits does. */
static double round_float(double f, int64_t n_digits)
{
    char text[400];
    if (!isfinite(f) || n_digits > 300) return f;
    if (n_digits < -300) return copysign(0.0, f);
    if (n_digits >= 0) {
        tg_print(text, sizeof text, "%.*f", (int)TG_MIN(n_digits, 60), f);
        return n_digits > 60 ? f : tg_f64_parse(text, NULL);
    }
    double scale = pow(10, (double)-n_digits);
    return nearbyint(f / scale) * scale;
}

static tg_jval round_int(tg_jrun *r, int64_t v, int64_t n_digits)
{
    int64_t scale = 1;
    for (int64_t i = 0; i < -n_digits; i++)
        if (!tg_mul_i64(scale, 10, &scale)) return tg_jint(0);
    if (n_digits >= 0) return tg_jint(v);
    int64_t rest = v % scale, down = v - rest;
    if (rest < 0) {
        rest += scale;
        if (__builtin_sub_overflow(down, scale, &down))
            return tg_jrun_fail(r, TG_E_LIMIT, "an integer does not fit 64 bits");
    }
    bool is_up = rest > scale / 2 || (rest == scale / 2 && (down / scale) % 2 != 0);
    if (is_up && __builtin_add_overflow(down, scale, &down))
        return tg_jrun_fail(r, TG_E_LIMIT, "an integer does not fit 64 bits");
    return tg_jint(down);
}

/* "precision method" */
static tg_jval do_round(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_str method = a->v[1].kind == TG_J_STR ? tg_jval_str(a->v[1]) : TG_STR("common");
    bool is_whole = a->v[0].kind == TG_J_NONE && tg_str_is(method, "common"); /* to an integer */
    if (is_given(a->v[0]) && !tg_jval_is_int(a->v[0]) && !is_whole)
        return tg_jrun_raise(r, "the precision must be an integer");
    int64_t n = int_or(a->v[0], 0);
    bool is_ceil = tg_str_is(method, "ceil"), is_floor = tg_str_is(method, "floor");
    if (!is_ceil && !is_floor && !tg_str_is(method, "common"))
        return tg_jrun_raise(r, "method must be common, ceil or floor");
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    if (!tg_jval_is_number(v))
        return tg_jrun_raise(r, "type %s doesn't define __round__ method", tg_jkind_name(v));
    if (is_whole && v.kind == TG_J_FLOAT)
        return isfinite(v.u.f) ? float_to_int(r, nearbyint(v.u.f))
                               : tg_jrun_raise(r, "cannot convert this float to integer");
    if (!is_ceil && !is_floor)
        return tg_jval_is_int(v) ? round_int(r, tg_jval_int(v), n)
                                 : tg_jfloat(round_float(v.u.f, n));
    double scale = pow(10, (double)n), f = tg_jval_float(v) * scale;
    if (!isfinite(f)) return tg_jrun_raise(r, "cannot convert float infinity to integer");
    /* The reference divides an integer, which has no negative zero. */
    return tg_jfloat((is_ceil ? ceil(f) : floor(f)) / scale + 0.0);
}

/* ---- any value */

/* "default_value boolean" */
static tg_jval do_default(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)r;
    bool is_used = v.kind == TG_J_UNDEFINED || (tg_jval_is_true(a->v[1]) && !tg_jval_is_true(v));
    if (!is_used) return v;
    return is_given(a->v[0]) ? a->v[0] : tg_jstr(TG_STR(""));
}

static tg_jval do_length(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jint(tg_jval_len(r, v));
}

/* Only what Python's object has; never an item of that name. */
static tg_jval do_attr(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    if (a->v[0].kind != TG_J_STR) return tg_jrun_raise(r, "attr needs a string");
    if (v.kind == TG_J_DICT && !tg_jmethod_find(v.kind, tg_jval_str(a->v[0])))
        return tg_jundefined(r, tg_jkind_name(v), a->v[0]);
    return tg_jval_get_attribute(r, v, tg_jval_str(a->v[0]));
}

static const tg_jfunc filters[] = {
    {"abs", do_abs, "", 0, 0},
    {"attr", do_attr, "name", 1, 0},
    {"capitalize", do_capitalize, "", 0, 0},
    {"center", do_center, "width", 0, 0},
    {"count", do_length, "", 0, 0},
    {"d", do_default, "default_value boolean", 0, 0},
    {"default", do_default, "default_value boolean", 0, 0},
    {"e", do_escape, "", 0, 0},
    {"escape", do_escape, "", 0, 0},
    {"filesizeformat", NULL, "binary", 0, 0},
    {"float", do_float, "default", 0, 0},
    {"forceescape", do_forceescape, "", 0, 0},
    {"format", do_format, "*", 0, 0},
    {"indent", do_indent, "width first blank", 0, 0},
    {"int", do_int, "default base", 0, 0},
    {"length", do_length, "", 0, 0},
    {"lower", do_lower, "", 0, 0},
    {"pprint", NULL, "", 0, 0},
    {"random", NULL, "", 0, 0},
    {"replace", do_replace, "old new count", 2, 0},
    {"round", do_round, "precision method", 0, 0},
    {"safe", do_safe, "", 0, 0},
    {"string", do_string, "", 0, 0},
    {"striptags", NULL, "", 0, 0},
    {"title", do_title, "", 0, 0},
    {"tojson", tg_jval_to_json, "ensure_ascii indent separators sort_keys", 0, 0},
    {"trim", do_trim, "chars", 0, 0},
    {"truncate", do_truncate, "length killwords end leeway", 0, 0},
    {"upper", do_upper, "", 0, 0},
    {"urlencode", do_urlencode, "", 0, 0},
    {"urlize", NULL, "*", 0, 0},
    {"wordcount", do_wordcount, "", 0, 0},
    {"wordwrap", NULL, "*", 0, 0},
    {"xmlattr", NULL, "autospace", 0, 0},
};

/* ---- tests */

/* Tests of what a value is need only its kind: one function, a row each. */
static tg_jval test_kind(tg_jval v, uint32_t kinds)
{
    return tg_jbool((TG_J_BIT(v.kind) & kinds) != 0);
}

#define TG_TEST_KIND(name, kinds)                                                                  \
    static tg_jval name(tg_jrun *r, tg_jval v, const tg_jargs *a)                                  \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)a;                                                                                   \
        return test_kind(v, (kinds));                                                              \
    }

TG_TEST_KIND(test_defined, ~TG_J_BIT(TG_J_UNDEFINED))
TG_TEST_KIND(test_undefined, TG_J_BIT(TG_J_UNDEFINED))
TG_TEST_KIND(test_none, TG_J_BIT(TG_J_NONE))
TG_TEST_KIND(test_boolean, TG_J_BIT(TG_J_BOOL))
TG_TEST_KIND(test_integer, TG_J_BIT(TG_J_INT))
TG_TEST_KIND(test_float, TG_J_BIT(TG_J_FLOAT))
TG_TEST_KIND(test_string, TG_J_BIT(TG_J_STR))
TG_TEST_KIND(test_mapping, TG_J_BIT(TG_J_DICT))
TG_TEST_KIND(test_number, TG_J_BIT(TG_J_INT) | TG_J_BIT(TG_J_FLOAT) | TG_J_BIT(TG_J_BOOL))
TG_TEST_KIND(test_sequence, TG_J_BIT(TG_J_STR) | TG_J_BIT(TG_J_LIST) | TG_J_BIT(TG_J_TUPLE) |
                                TG_J_BIT(TG_J_DICT) | TG_J_BIT(TG_J_RANGE) |
                                TG_J_BIT(TG_J_UNDEFINED))
TG_TEST_KIND(test_callable, TG_J_BIT(TG_J_FUNC) | TG_J_BIT(TG_J_METHOD) | TG_J_BIT(TG_J_MACRO) |
                                TG_J_BIT(TG_J_LOOP) | TG_J_BIT(TG_J_UNDEFINED))

static tg_jval test_iterable(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return tg_jbool(tg_jval_is_iterable(v));
}

static tg_jval test_true(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return tg_jbool(v.kind == TG_J_BOOL && v.u.b);
}

static tg_jval test_false(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return tg_jbool(v.kind == TG_J_BOOL && !v.u.b);
}

static tg_jval test_escaped(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return tg_jbool(v.kind == TG_J_STR && v.is_markup);
}

/* v % n == rest, with Python's idea of what % takes. */
static tg_jval is_rest(tg_jrun *r, tg_jval v, tg_jval n, int64_t rest)
{
    tg_jval m = tg_jval_binary(r, TG_JOP_MOD, v, n);
    return tg_jbool(!tg_jrun_is_failed(r) && tg_jval_is_equal(r, m, tg_jint(rest)));
}

static tg_jval test_odd(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return is_rest(r, v, tg_jint(2), 1);
}

static tg_jval test_even(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return is_rest(r, v, tg_jint(2), 0);
}

static tg_jval test_divisibleby(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return is_rest(r, v, a->v[0], 0);
}

static tg_jval test_lower(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jbool(tg_jstr_is_cased_as(r, tg_jval_to_str(r, v), TG_JCASE_LOWER));
}

static tg_jval test_upper(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jbool(tg_jstr_is_cased_as(r, tg_jval_to_str(r, v), TG_JCASE_UPPER));
}

/* The same object. Python's small numbers and short strings are single objects too; equal ones are
 * taken to be. */
static tg_jval test_sameas(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval x = a->v[0];
    if (v.kind != x.kind) return tg_jbool(false);
    bool is_plain = v.kind <= TG_J_STR;
    return tg_jbool(is_plain ? tg_jval_is_equal(r, v, x) : v.u.ptr == x.u.ptr);
}

#define TG_TEST_COMPARE(name, op)                                                                  \
    static tg_jval name(tg_jrun *r, tg_jval v, const tg_jargs *a)                                  \
    {                                                                                              \
        return tg_jbool(tg_jval_compare(r, (op), v, a->v[0]));                                     \
    }

TG_TEST_COMPARE(test_eq, TG_JOP_EQ)
TG_TEST_COMPARE(test_ne, TG_JOP_NE)
TG_TEST_COMPARE(test_lt, TG_JOP_LT)
TG_TEST_COMPARE(test_le, TG_JOP_LE)
TG_TEST_COMPARE(test_gt, TG_JOP_GT)
TG_TEST_COMPARE(test_ge, TG_JOP_GE)
TG_TEST_COMPARE(test_in, TG_JOP_IN)

/* Is there a filter, or a test, of this name? Asked of a table, so that lists are an error. */
static bool is_key(tg_jrun *r, tg_jval v)
{
    if (tg_jval_is_hashable(r, v)) return v.kind == TG_J_STR;
    tg_jrun_raise(r, "unhashable type: '%s'", tg_jkind_name(v));
    return false;
}

static tg_jval test_filter(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jbool(is_key(r, v) && tg_jfilter_find(tg_jval_str(v)));
}

static tg_jval test_test(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return tg_jbool(is_key(r, v) && tg_jtest_find(tg_jval_str(v)));
}

static const tg_jfunc tests[] = {
    {"boolean", test_boolean, "", 0, 0},
    {"callable", test_callable, "", 0, 0},
    {"defined", test_defined, "", 0, 0},
    {"divisibleby", test_divisibleby, "num", 1, 0},
    {"eq", test_eq, "b", 1, 0},
    {"equalto", test_eq, "b", 1, 0},
    {"==", test_eq, "b", 1, 0},
    {"escaped", test_escaped, "", 0, 0},
    {"even", test_even, "", 0, 0},
    {"false", test_false, "", 0, 0},
    {"filter", test_filter, "", 0, 0},
    {"float", test_float, "", 0, 0},
    {"ge", test_ge, "b", 1, 0},
    {">=", test_ge, "b", 1, 0},
    {"gt", test_gt, "b", 1, 0},
    {"greaterthan", test_gt, "b", 1, 0},
    {">", test_gt, "b", 1, 0},
    {"in", test_in, "seq", 1, 0},
    {"integer", test_integer, "", 0, 0},
    {"iterable", test_iterable, "", 0, 0},
    {"le", test_le, "b", 1, 0},
    {"<=", test_le, "b", 1, 0},
    {"lower", test_lower, "", 0, 0},
    {"lt", test_lt, "b", 1, 0},
    {"lessthan", test_lt, "b", 1, 0},
    {"<", test_lt, "b", 1, 0},
    {"mapping", test_mapping, "", 0, 0},
    {"ne", test_ne, "b", 1, 0},
    {"!=", test_ne, "b", 1, 0},
    {"none", test_none, "", 0, 0},
    {"number", test_number, "", 0, 0},
    {"odd", test_odd, "", 0, 0},
    {"sameas", test_sameas, "other", 1, 0},
    {"sequence", test_sequence, "", 0, 0},
    {"string", test_string, "", 0, 0},
    {"test", test_test, "", 0, 0},
    {"true", test_true, "", 0, 0},
    {"undefined", test_undefined, "", 0, 0},
    {"upper", test_upper, "", 0, 0},
};

const tg_jfunc *tg_jfilter_find(tg_str name)
{
    for (size_t i = 0; i < TG_COUNT(filters); i++)
        if (tg_str_is(name, filters[i].name)) return &filters[i];
    for (const tg_jfunc *f = tg_jseq_filters; f->name; f++)
        if (tg_str_is(name, f->name)) return f;
    return NULL;
}

const tg_jfunc *tg_jtest_find(tg_str name)
{
    for (size_t i = 0; i < TG_COUNT(tests); i++)
        if (tg_str_is(name, tests[i].name)) return &tests[i];
    return NULL;
}
