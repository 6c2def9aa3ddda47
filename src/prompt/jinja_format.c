/* SPDX-License-Identifier: Apache-2.0
 * jinja_format.c - Python's two ways of formatting: "%5.2f" % x, and "{:>5.2f}".format(x).
 *
 * Both end in the same printing of a number or text with fill, width and precision. */
#include "prompt/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 100000, MAX_PRECISION = 300 };

/* What stands between '%' and its letter, or behind ':' in braces. */
typedef struct spec {
    tg_str fill; /* one character, or empty: a space */
    char align;  /* < > ^ =, or 0 */
    char sign;   /* + - space, or 0 */
    char group;  /* , _ or 0 */
    bool is_alternate, is_zero;
    int64_t width, precision; /* -1: none */
    char type;                /* or 0 */
} spec;

static void add_fill(tg_buf *b, const spec *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        tg_buf_add_str(b, s->fill.len ? s->fill : TG_STR(" "));
}

/* sign + prefix + digits, padded to the width. */
static void add_padded(tg_jrun *r, tg_buf *b, const spec *s, tg_str head, tg_str body, char align)
{
    int64_t n = tg_jstr_count(r, tg_jstr(head)) + tg_jstr_count(r, tg_jstr(body));
    int64_t room = TG_MAX(s->width - n, 0);
    if (!tg_jrun_pay(r, room / 16)) return;
    int64_t left = align == '<' ? 0 : align == '^' ? room / 2 : room;
    if (align == '=') {
        tg_buf_add_str(b, head);
        add_fill(b, s, room);
        tg_buf_add_str(b, body);
        return;
    }
    add_fill(b, s, left);
    tg_buf_add_str(b, head);
    tg_buf_add_str(b, body);
    add_fill(b, s, room - left);
}

/* Puts separators into the whole part of a number's digits. */
static void group_digits(tg_buf *out, tg_str digits, char group, int every)
{
    size_t whole = 0;
    while (whole < digits.len && digits.ptr[whole] != '.' && digits.ptr[whole] != 'e' &&
           digits.ptr[whole] != '%')
        whole++;
    for (size_t i = 0; i < digits.len; i++) {
        if (group && i > 0 && i < whole && (whole - i) % (size_t)every == 0)
            tg_buf_add_byte(out, group);
        tg_buf_add_byte(out, digits.ptr[i]);
    }
}

static void add_int(tg_jrun *r, tg_buf *b, const spec *s, int64_t v)
{
    char digits[80];
    uint64_t m = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    int n = 0, base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : 10;
    if (s->type == 'b') base = 2;
    do
        digits[sizeof digits - (size_t)++n] =
            (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[m % (uint64_t)base];
    while ((m /= (uint64_t)base) > 0);
    char head[8] = "";
    if (v < 0 || s->sign == '+' || s->sign == ' ') head[0] = v < 0 ? '-' : s->sign;
    if (s->is_alternate && base != 10) {
        size_t at = strlen(head);
        head[at] = '0';
        head[at + 1] = s->type;
    }
    tg_buf body = {0};
    for (int64_t i = n; i < s->precision; i++)
        tg_buf_add_byte(&body, '0');
    group_digits(&body, (tg_str){digits + sizeof digits - n, (size_t)n}, s->group,
                 base == 10 ? 3 : 4);
    add_padded(r, b, s, tg_str_from_cstr(head), tg_buf_str(&body), s->align ? s->align : '>');
    tg_buf_deinit(&body);
}

static void add_float(tg_jrun *r, tg_buf *b, const spec *s, double v)
{
    char text[700];
    tg_buf digits = {0}, body = {0};
    double m = fabs(v);
    char head[4] = "", type = s->type;
    if (signbit(v) || s->sign == '+' || s->sign == ' ') head[0] = signbit(v) ? '-' : s->sign;
    if (isnan(v) && head[0] == '-') head[0] = 0;
    int precision = (int)(s->precision < 0 ? 6 : s->precision);
    if (isnan(v) || isinf(v)) {
        bool is_upper = type == 'F' || type == 'E' || type == 'G';
        tg_buf_add_cstr(&digits,
                        isnan(v) ? (is_upper ? "NAN" : "nan") : (is_upper ? "INF" : "inf"));
        if (type == '%') tg_buf_add_byte(&digits, '%');
    } else if (type == 0 && s->precision < 0) {
        tg_jfloat_print(&digits, m);
    } else {
        const char *form = type == 'e'                                 ? "%.*e"
                           : type == 'E'                               ? "%.*E"
                           : type == 'f' || type == 'F' || type == '%' ? "%.*f"
                           : type == 'G'                               ? "%.*G"
                                                                       : "%.*g";
        if (type == '%') m *= 100;
        switch (form[3]) {
        case 'e': snprintf(text, sizeof text, "%.*e", precision, m); break;
        case 'E': snprintf(text, sizeof text, "%.*E", precision, m); break;
        case 'f': snprintf(text, sizeof text, "%.*f", precision, m); break;
        case 'G': snprintf(text, sizeof text, "%.*G", precision, m); break;
        default: snprintf(text, sizeof text, "%.*g", precision, m);
        }
        tg_buf_add_cstr(&digits, text);
        if (type == 0 && !strpbrk(text, ".e")) tg_buf_add_cstr(&digits, ".0");
        if (type == '%') tg_buf_add_byte(&digits, '%');
    }
    group_digits(&body, tg_buf_str(&digits), s->group, 3);
    add_padded(r, b, s, tg_str_from_cstr(head), tg_buf_str(&body), s->align ? s->align : '>');
    tg_buf_deinit(&digits);
    tg_buf_deinit(&body);
}

static void add_text(tg_jrun *r, tg_buf *b, const spec *s, tg_jval v, char align)
{
    if (s->precision >= 0) {
        int64_t n = tg_jstr_count(r, v);
        v = tg_jstr_cut(r, v, 0, TG_MIN(n, s->precision));
    }
    tg_jrun_pay(r, v.len / 64);
    add_padded(r, b, s, TG_STR(""), tg_jval_str(v), align);
}

static bool check_sizes(tg_jrun *r, const spec *s)
{
    if (s->width <= MAX_WIDTH && s->precision <= MAX_PRECISION) return true;
    tg_jrun_fail(r, TG_E_LIMIT,
                 "a format asks for width %lld and precision %lld; the limits are "
                 "%d and %d",
                 (long long)s->width, (long long)s->precision, MAX_WIDTH, MAX_PRECISION);
    return false;
}

/* Digits at *p, or -1. */
static int64_t read_number(const char **p, const char *end)
{
    int64_t n = -1;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p)
        n = TG_MIN(TG_MAX(n, 0) * 10 + (**p - '0'), INT64_C(1) << 40);
    return n;
}

/* ---- "..." % value */

typedef struct percent {
    tg_jrun *r;
    tg_buf *b;
    tg_jval value;
    int32_t n_used;
    const char *p, *end;
} percent;

static tg_jval next_value(percent *x)
{
    bool is_tuple = x->value.kind == TG_J_TUPLE;
    if (x->n_used >= (is_tuple ? x->value.u.list->n : 1))
        return tg_jrun_raise(x->r, "not enough arguments for format string");
    return is_tuple ? x->value.u.list->items[x->n_used++] : (x->n_used++, x->value);
}

/* "(name)" selects from a mapping. */
static tg_jval named_value(percent *x)
{
    const char *start = ++x->p;
    int depth = 1;
    for (; x->p < x->end; x->p++) {
        depth += *x->p == '(' ? 1 : *x->p == ')' ? -1 : 0;
        if (depth == 0) break;
    }
    if (depth) return tg_jrun_raise(x->r, "incomplete format key");
    tg_jval key = tg_jstr((tg_str){start, (size_t)(x->p++ - start)});
    if (x->value.kind != TG_J_DICT) return tg_jrun_raise(x->r, "format requires a mapping");
    const tg_jval *v = tg_jdict_find(x->r, x->value.u.dict, key);
    return v ? *v : tg_jrun_raise(x->r, "KeyError: '%.*s'", (int)TG_MIN(key.len, 60u), key.u.s);
}

static int64_t star_or_number(percent *x)
{
    if (x->p >= x->end || *x->p != '*') return read_number(&x->p, x->end);
    x->p++;
    tg_jval v = next_value(x);
    if (!tg_jval_is_int(v)) tg_jrun_raise(x->r, "* wants int");
    return tg_jrun_is_failed(x->r) ? 0 : TG_MAX(tg_jval_int(v), 0);
}

static void add_percent_number(percent *x, spec *s, tg_jval v)
{
    bool is_float = strchr("eEfFgG", s->type) != NULL;
    if (v.kind == TG_J_UNDEFINED) {
        tg_jrun_raise_undefined(x->r, v);
    } else if (!tg_jval_is_number(v) || (!is_float && v.kind == TG_J_FLOAT && s->type != 'd' &&
                                         s->type != 'i' && s->type != 'u')) {
        tg_jrun_raise(x->r, "%%%c format: a real number is required, not %s", s->type,
                      tg_jkind_name(v));
    } else if (is_float) {
        add_float(x->r, x->b, s, tg_jval_float(v));
    } else {
        double f = tg_jval_float(v);
        if (!(fabs(f) < 9.2e18)) {
            tg_jrun_fail(x->r, TG_E_LIMIT, "an integer does not fit 64 bits");
            return;
        }
        if (s->type == 'i' || s->type == 'u') s->type = 'd';
        add_int(x->r, x->b, s, v.kind == TG_J_FLOAT ? (int64_t)f : tg_jval_int(v));
    }
}

static void add_char(percent *x, const spec *s, tg_jval v)
{
    char utf8[4];
    if (v.kind == TG_J_STR && tg_jstr_count(x->r, v) == 1) {
        add_text(x->r, x->b, s, v, s->align ? s->align : '>');
        return;
    }
    int n = tg_jval_is_int(v) && tg_jval_int(v) >= 0 && tg_jval_int(v) <= 0x10ffff
                ? tg_utf8_encode((int32_t)tg_jval_int(v), utf8)
                : 0;
    if (n)
        add_text(x->r, x->b, s, tg_jstr_copy(x->r, (tg_str){utf8, (size_t)n}),
                 s->align ? s->align : '>');
    else
        tg_jrun_raise(x->r, "%%c requires int or char");
}

static void add_directive(percent *x)
{
    spec s = {.width = -1, .precision = -1};
    tg_jval v = {.kind = TG_J_MISSING};
    if (x->p < x->end && *x->p == '(') v = named_value(x);
    for (; x->p < x->end && *x->p && strchr("-+ #0", *x->p); x->p++) {
        s.align = *x->p == '-' ? '<' : s.align;
        s.is_alternate |= *x->p == '#';
        s.is_zero |= *x->p == '0';
        if (*x->p == '+' || (*x->p == ' ' && s.sign != '+')) s.sign = *x->p;
    }
    s.width = star_or_number(x);
    if (x->p < x->end && *x->p == '.') {
        x->p++;
        s.precision = star_or_number(x);
        if (s.precision < 0) s.precision = 0; /* "%.f" */
    }
    while (x->p < x->end && *x->p && strchr("hlL", *x->p))
        x->p++;
    if (tg_jrun_is_failed(x->r) || !check_sizes(x->r, &s)) return;
    if (x->p >= x->end) {
        tg_jrun_raise(x->r, "incomplete format");
        return;
    }
    s.type = *x->p++;
    if (s.type == '%') {
        tg_buf_add_byte(x->b, '%');
        return;
    }
    if (!s.type || !strchr("srdiuoxXeEfFgGc", s.type)) {
        tg_jrun_raise(x->r, "unsupported format character '%c'", s.type);
        return;
    }
    if (v.kind == TG_J_MISSING) v = next_value(x);
    if (tg_jrun_is_failed(x->r)) return;
    if (s.type == 's' || s.type == 'r') {
        tg_buf text = {0};
        if (s.type == 's')
            tg_jval_print(x->r, &text, v);
        else
            tg_jval_print_repr(x->r, &text, v);
        add_text(x->r, x->b, &s, tg_jstr_take(x->r, &text), s.align ? s.align : '>');
    } else if (s.type == 'c') {
        add_char(x, &s, v);
    } else {
        if (s.is_zero && s.align != '<') {
            s.fill = TG_STR("0");
            s.align = '=';
        }
        add_percent_number(x, &s, v);
    }
}

tg_jval tg_jstr_percent(tg_jrun *r, tg_jval format, tg_jval value)
{
    tg_buf b = {0};
    if (format.is_markup)
        return tg_jrun_fail(r, TG_E_UNSUPPORTED, "formatting an escaped string is not built");
    percent x = {.r = r, .b = &b, .value = value, .p = format.u.s, .end = format.u.s + format.len};
    while (x.p < x.end && tg_jrun_pay(r, 1)) {
        const char *at = memchr(x.p, '%', (size_t)(x.end - x.p));
        size_t n = (size_t)((at ? at : x.end) - x.p);
        tg_jrun_pay(r, (int64_t)n / 64);
        tg_buf_add(&b, x.p, n);
        x.p += n + (at != NULL);
        if (at) add_directive(&x);
        if (b.len > r->max_output)
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
    }
    bool is_single = value.kind != TG_J_TUPLE;
    int32_t n = is_single ? 1 : value.u.list->n;
    /* What has items may stay unused; one plain value may not. */
    bool may_stay = value.kind == TG_J_DICT || value.kind == TG_J_LIST ||
                    value.kind == TG_J_RANGE || value.kind == TG_J_UNDEFINED;
    if (x.n_used < n && !may_stay && !tg_jrun_is_failed(r))
        tg_jrun_raise(r, "not all arguments converted during string formatting");
    return tg_jstr_take(r, &b);
}

/* ---- "{}".format(...) */

typedef struct braces {
    tg_jrun *r;
    tg_buf *b;
    const tg_jargs *a;
    int64_t n_auto; /* -1 once a number was written */
    bool is_manual;
} braces;

static tg_jval positional(braces *x, int64_t i)
{
    if (i >= x->a->n_rest)
        return tg_jrun_raise(x->r, "Replacement index %lld out of range for positional args tuple",
                             (long long)i);
    return x->a->rest[i];
}

/* "name", "0" or "", then ".attribute" and "[key]". */
static tg_jval find_field(braces *x, const char *p, const char *end)
{
    const char *start = p;
    while (p < end && *p != '.' && *p != '[')
        p++;
    tg_str name = {start, (size_t)(p - start)};
    int64_t i;
    tg_jval v = {.kind = TG_J_MISSING};
    bool is_number = name.len > 0 && tg_jparse_int(name, 10, &i) == 0 && name.ptr[0] != '-';
    if (name.len == 0 || is_number) {
        if (name.len == 0 ? x->is_manual : x->n_auto > 0)
            return tg_jrun_raise(x->r, "cannot mix automatic and manual field numbering");
        x->is_manual = name.len > 0;
        v = positional(x, name.len ? i : x->n_auto++);
    } else {
        for (int32_t k = 0; k < x->a->n_kw; k++)
            if (tg_str_is_equal(tg_jval_str(x->a->names[k]), name)) v = x->a->kw[k];
        if (v.kind == TG_J_MISSING)
            return tg_jrun_raise(x->r, "KeyError: '%.*s'", (int)TG_MIN(name.len, 60u), name.ptr);
    }
    while (p < end && !tg_jrun_is_failed(x->r)) {
        bool is_key = *p == '[';
        start = ++p;
        while (p < end && (is_key ? *p != ']' : *p != '.' && *p != '['))
            p++;
        tg_str part = {start, (size_t)(p - start)};
        if (is_key && p++ >= end) return tg_jrun_raise(x->r, "Missing ']' in format string");
        if (part.len == 0) return tg_jrun_raise(x->r, "Empty attribute in format string");
        if (!is_key)
            v = tg_jval_get_attribute(x->r, v, part);
        else if (part.ptr[0] != '-' && tg_jparse_int(part, 10, &i) == 0)
            v = tg_jval_get_item(x->r, v, tg_jint(i));
        else
            v = tg_jval_get_item(x->r, v, tg_jstr(part));
    }
    return v;
}

/* [[fill]align][sign][#][0][width][group][.precision][type]; false when there is more. */
static bool parse_spec(spec *s, const char *p, const char *end)
{
    *s = (spec){.width = -1, .precision = -1};
    int32_t c;
    int n = tg_utf8_decode(p, (size_t)(end - p), &c);
    if (n && p + n < end && p[n] && strchr("<>^=", p[n])) {
        s->fill = (tg_str){p, (size_t)n};
        s->align = p[n];
        p += n + 1;
    } else if (p < end && *p && strchr("<>^=", *p)) {
        s->align = *p++;
    }
    if (p < end && *p && strchr("+- ", *p)) s->sign = *p++;
    if (p < end && *p == '#') {
        s->is_alternate = true;
        p++;
    }
    if (p < end && *p == '0') {
        s->is_zero = true;
        if (!s->fill.len) s->fill = TG_STR("0");
        if (!s->align) s->align = '=';
        p++;
    }
    s->width = read_number(&p, end);
    if (p < end && (*p == ',' || *p == '_')) s->group = *p++;
    if (p < end && *p == '.') {
        p++;
        s->precision = read_number(&p, end);
        if (s->precision < 0) return false;
    }
    if (p < end) s->type = *p++;
    return p == end;
}

static void add_formatted(braces *x, tg_jval v, tg_str text)
{
    spec s;
    tg_jrun *r = x->r;
    if (text.len == 0) {
        tg_jval_print(r, x->b, v);
        return;
    }
    if (!parse_spec(&s, text.ptr, text.ptr + text.len)) {
        tg_jrun_raise(r, "Invalid format specifier '%.*s'", (int)TG_MIN(text.len, 60u), text.ptr);
        return;
    }
    if (!check_sizes(r, &s)) return;
    bool is_int_type = s.type && strchr("bdoxX", s.type),
         is_float_type = s.type && strchr("eEfFgG%", s.type);
    if (v.kind == TG_J_STR && (s.type == 0 || s.type == 's') && s.align != '=' && !s.sign) {
        add_text(r, x->b, &s, v, s.align ? s.align : '<');
    } else if (v.kind == TG_J_STR && s.is_zero && (s.type == 0 || s.type == 's')) {
        add_text(r, x->b, &s, v, '<');
    } else if (tg_jval_is_int(v) && (is_int_type || (s.type == 0 && v.kind == TG_J_INT)) &&
               s.precision < 0) {
        add_int(r, x->b, &s, tg_jval_int(v));
    } else if (tg_jval_is_number(v) && (is_float_type || (s.type == 0 && v.kind == TG_J_FLOAT))) {
        if (s.group && s.is_zero && s.width > 0)
            tg_jrun_fail(r, TG_E_UNSUPPORTED, "zero padding with a group separator is not built");
        else
            add_float(r, x->b, &s, tg_jval_float(v));
    } else if (tg_jval_is_number(v) || v.kind == TG_J_STR) {
        tg_jrun_raise(r, "the format '%.*s' does not fit an object of type '%s'",
                      (int)TG_MIN(text.len, 60u), text.ptr, tg_jkind_name(v));
    } else {
        tg_jrun_raise(r, "unsupported format string passed to %s.__format__", tg_jkind_name(v));
    }
}

/* "field!r:spec" between braces. */
static void add_field(braces *x, const char *p, const char *end)
{
    const char *name_end = p;
    int depth = 0;
    for (; name_end < end; name_end++) {
        depth += *name_end == '[' ? 1 : *name_end == ']' ? -1 : 0;
        if (depth == 0 && (*name_end == '!' || *name_end == ':')) break;
    }
    tg_jval v = find_field(x, p, name_end);
    if (tg_jrun_is_failed(x->r)) return;
    p = name_end;
    if (p < end && *p == '!') {
        if (end - p < 2 || (p[1] != 'r' && p[1] != 's') || (end - p > 2 && p[2] != ':')) {
            tg_jrun_raise(x->r, "unknown conversion in a format string");
            return;
        }
        tg_buf text = {0};
        if (p[1] == 's')
            tg_jval_print(x->r, &text, v);
        else
            tg_jval_print_repr(x->r, &text, v);
        v = tg_jstr_take(x->r, &text);
        p += 2;
    }
    tg_str text = {p, 0};
    if (p < end && *p == ':') text = (tg_str){p + 1, (size_t)(end - p - 1)};
    if (text.len && memchr(text.ptr, '{', text.len))
        tg_jrun_fail(x->r, TG_E_UNSUPPORTED, "fields inside a format specifier are not built");
    else
        add_formatted(x, v, text);
}

tg_jval tg_jstr_format(tg_jrun *r, tg_jval format, const tg_jargs *a)
{
    tg_buf b = {0};
    braces x = {.r = r, .b = &b, .a = a};
    if (format.is_markup)
        return tg_jrun_fail(r, TG_E_UNSUPPORTED, "formatting an escaped string is not built");
    const char *p = format.u.s, *end = p + format.len;
    while (p < end && tg_jrun_pay(r, 1)) {
        if (b.len > r->max_output)
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
        if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p) {
            tg_buf_add_byte(&b, *p);
            p += 2;
        } else if (*p == '{') {
            const char *close = p + 1;
            for (int depth = 1; close < end; close++) {
                depth += *close == '{' ? 1 : *close == '}' ? -1 : 0;
                if (depth == 0) break;
            }
            if (close >= end) {
                tg_jrun_raise(r, "expected '}' before end of string");
                break;
            }
            add_field(&x, p + 1, close);
            p = close + 1;
        } else if (*p == '}') {
            tg_jrun_raise(r, "Single '}' encountered in format string");
        } else {
            tg_buf_add_byte(&b, *p++);
        }
    }
    return tg_jstr_take(r, &b);
}
