/* SPDX-License-Identifier: Apache-2.0
 * jinja_format.c - Python's two ways of formatting: "%5.2f" % x, and "{:>5.2f}".format(x).
 *
 * Both end in the same printing of a number or text with fill, width and precision. */
#include "jinja/jinja.h"

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

/* A zero before the width pads between sign and digits. */
static char number_align(const spec *s)
{
    return s->align ? s->align : s->is_zero ? '=' : '>';
}

/* How many zeros in front of digits bring them, grouped, to a width. */
static int64_t count_zeros(size_t whole, size_t rest, int every, int64_t width)
{
    int64_t n = 0;
    for (; (int64_t)rest + (int64_t)whole + n + ((int64_t)whole + n - 1) / every < width; n++)
        continue;
    return n;
}

/* Puts separators into the first `whole` digits of a number; with zero padding, the zeros that
 * bring it to the width are grouped too. */
static void group_digits(tg_buf *out, tg_str digits, size_t whole, const spec *s, int every,
                         size_t n_head)
{
    char group = s->group;
    int64_t n_zeros = 0;
    if (group && number_align(s) == '=' && tg_str_is(s->fill, "0"))
        n_zeros = count_zeros(whole, digits.len - whole, every, s->width - (int64_t)n_head);
    for (int64_t i = 0; i < n_zeros; i++) {
        if (i > 0 && (n_zeros - i + (int64_t)whole) % every == 0) tg_buf_add_byte(out, group);
        tg_buf_add_byte(out, '0');
    }
    if (n_zeros > 0 && whole % (size_t)every == 0) tg_buf_add_byte(out, group);
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
    group_digits(&body, (tg_str){digits + sizeof digits - n, (size_t)n}, (size_t)n, s,
                 base == 10 ? 3 : 4, strlen(head));
    add_padded(r, b, s, tg_str_from_cstr(head), tg_buf_str(&body), number_align(s));
    tg_buf_deinit(&body);
}

/* C's printf knows every form but Python's own; 'n' is 'g' in a locale without separators. */
static void print_float(char *text, size_t size, char type, bool is_alternate, int precision,
                        double v)
{
    switch (type) {
    case 'e': tg_print(text, size, is_alternate ? "%#.*e" : "%.*e", precision, v); break;
    case 'E': tg_print(text, size, is_alternate ? "%#.*E" : "%.*E", precision, v); break;
    case 'f':
    case 'F':
    case '%': tg_print(text, size, is_alternate ? "%#.*f" : "%.*f", precision, v); break;
    case 'G': tg_print(text, size, is_alternate ? "%#.*G" : "%.*G", precision, v); break;
    default: tg_print(text, size, is_alternate ? "%#.*g" : "%.*g", precision, v);
    }
}

/* A precision without a letter: 'g', but a number always has a digit behind its point, and one with
 * no place for it takes the exponent. */
static void print_general(char *text, size_t size, bool is_alternate, int precision, double v)
{
    char digits[400];
    tg_print(digits, sizeof digits, "%.*e", precision - 1, v);
    bool is_full = atoi(strchr(digits, 'e') + 1) + 1 == precision;
    print_float(text, size, is_full ? 'e' : 'g', is_alternate, is_full ? precision - 1 : precision,
                v);
    char *exponent = strchr(text, 'e'), *end = exponent ? exponent : text + strlen(text);
    if (is_full && !is_alternate && strchr(text, '.')) { /* %e keeps zeros that %g drops */
        char *keep = end;
        while (keep[-1] == '0')
            keep--;
        if (keep[-1] == '.') keep--;
        memmove(keep, end, strlen(end) + 1);
    }
    if (!strpbrk(text, ".e")) strncat(text, ".0", size - strlen(text) - 1);
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
        const char *exponent = s->is_alternate ? strchr(tg_buf_cstr(&digits), 'e') : NULL;
        if (exponent && !strchr(tg_buf_cstr(&digits), '.')) { /* "1e+16" is "1.e+16" */
            tg_buf plain = digits;
            size_t n = (size_t)(exponent - plain.ptr);
            digits = (tg_buf){0};
            tg_buf_add(&digits, plain.ptr, n);
            tg_buf_add_byte(&digits, '.');
            tg_buf_add(&digits, plain.ptr + n, plain.len - n);
            tg_buf_deinit(&plain);
        }
    } else {
        if (type == '%') m *= 100;
        print_float(text, sizeof text, type, s->is_alternate, precision, m);
        if (type == 0) print_general(text, sizeof text, s->is_alternate, TG_MAX(precision, 1), m);
        tg_buf_add_cstr(&digits, text);
        if (type == '%') tg_buf_add_byte(&digits, '%');
    }
    group_digits(&body, tg_buf_str(&digits), strcspn(tg_buf_cstr(&digits), ".eE%"), s, 3,
                 strlen(head));
    add_padded(r, b, s, tg_str_from_cstr(head), tg_buf_str(&body), number_align(s));
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

/* str(v), repr(v) or ascii(v), by their letters. */
static tg_jval convert(tg_jrun *r, tg_jval v, char how)
{
    tg_buf text = {0}, plain = {0};
    if (how == 's')
        tg_jval_print(r, &text, v);
    else
        tg_jval_print_repr(r, &text, v);
    if (how != 'a') return tg_jstr_take(r, &text);
    for (size_t i = 0; i < text.len;) {
        int32_t c;
        int n = tg_utf8_decode(text.ptr + i, text.len - i, &c);
        if (n <= 0) break; /* strings are valid UTF-8 */
        if (c < 0x80)
            tg_buf_add_byte(&plain, (char)c);
        else
            tg_buf_printf(&plain,
                          c < 0x100     ? "\\x%02x"
                          : c < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                          (unsigned int)c);
        i += (size_t)n;
    }
    plain.is_failed |= text.is_failed;
    tg_buf_deinit(&text);
    return tg_jstr_take(r, &plain);
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
    const char *start = x->p;
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
    if (s.type == '%' && x->p == start + 1) {
        tg_buf_add_byte(x->b, '%');
        return;
    }
    if (!s.type || !strchr("asrdiuoxXeEfFgGc", s.type)) {
        tg_jrun_raise(x->r, "unsupported format character '%c'", s.type);
        return;
    }
    if (v.kind == TG_J_MISSING) v = next_value(x);
    if (tg_jrun_is_failed(x->r)) return;
    if (strchr("asr", s.type)) {
        add_text(x->r, x->b, &s, convert(x->r, v, s.type), s.align ? s.align : '>');
    } else if (s.type == 'c') {
        s.precision = -1;
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

/* Digits and nothing else are a number. */
static bool is_index(tg_str s, int64_t *out)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
    return s.len > 0 && tg_jparse_int(s, 10, out) == 0;
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
    bool is_number = is_index(name, &i);
    if (name.len == 0 && p < end) /* the sandbox's formatter numbers only what is bare */
        return tg_jrun_raise(x->r, "KeyError: ''");
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
        else if (is_index(part, &i))
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
    if (p < end && *p == '0' && !s->fill.len) {
        s->is_zero = true;
        s->fill = TG_STR("0");
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

static void add_code_point(tg_jrun *r, tg_buf *b, const spec *s, int64_t c)
{
    char utf8[4];
    int n = c >= 0 && c <= 0x10ffff ? tg_utf8_encode((int32_t)c, utf8) : 0;
    if (n == 0)
        tg_jrun_raise(r, "%lld is no character", (long long)c);
    else
        add_text(r, b, s, tg_jstr_copy(r, (tg_str){utf8, (size_t)n}), number_align(s));
}

static void add_formatted(braces *x, tg_buf *out, tg_jval v, tg_str text)
{
    spec s;
    tg_jrun *r = x->r;
    if (text.len == 0) {
        tg_jval_print(r, out, v);
        return;
    }
    if (!parse_spec(&s, text.ptr, text.ptr + text.len)) {
        tg_jrun_raise(r, "Invalid format specifier '%.*s'", (int)TG_MIN(text.len, 60u), text.ptr);
        return;
    }
    if (!check_sizes(r, &s)) return;
    bool is_int_type = s.type && strchr("bdoxXn", s.type),
         is_float_type = s.type && strchr("eEfFgGn%", s.type);
    bool is_grouped_wrongly =
        s.group && s.type && strchr(s.group == ',' ? "boxXcns" : "cns", s.type);
    if (v.kind == TG_J_STR && (s.type == 0 || s.type == 's') && s.align != '=' && !s.sign &&
        !s.group && !s.is_alternate) {
        add_text(r, out, &s, v, s.align ? s.align : '<');
    } else if (is_grouped_wrongly) {
        tg_jrun_raise(r, "Cannot specify '%c' with '%c'.", s.group, s.type);
    } else if (tg_jval_is_int(v) && s.type == 'c' && s.precision < 0 && !s.sign &&
               !s.is_alternate) {
        add_code_point(r, out, &s, tg_jval_int(v));
    } else if (tg_jval_is_int(v) && (is_int_type || s.type == 0) && s.precision < 0) {
        if (s.type == 'n') s.type = 'd';
        add_int(r, out, &s, tg_jval_int(v));
    } else if (tg_jval_is_number(v) && (v.kind == TG_J_FLOAT || s.type != 'n') &&
               (is_float_type || (s.type == 0 && v.kind == TG_J_FLOAT))) {
        add_float(r, out, &s, tg_jval_float(v));
    } else if (tg_jval_is_number(v) || v.kind == TG_J_STR) {
        tg_jrun_raise(r, "the format '%.*s' does not fit an object of type '%s'",
                      (int)TG_MIN(text.len, 60u), text.ptr, tg_jkind_name(v));
    } else {
        tg_jrun_raise(r, "unsupported format string passed to %s.__format__", tg_jkind_name(v));
    }
}

static void format_into(braces *x, tg_buf *out, tg_str text, int depth);

/* Behind the field's name: where the brackets and braces of its name end. */
static const char *find_name_end(tg_jrun *r, const char *p, const char *end)
{
    for (; p < end && !strchr("}:!", *p); p++) {
        if (*p == '{') tg_jrun_raise(r, "unexpected '{' in field name");
        if (*p == '[') { /* a key may hold anything but its bracket */
            const char *close = memchr(p, ']', (size_t)(end - p));
            if (!close) return end;
            p = close;
        }
    }
    return p;
}

/* "field!r:spec}" behind a brace; returns what follows it. */
static const char *add_field(braces *x, tg_buf *out, const char *p, const char *end, int depth)
{
    tg_jrun *r = x->r;
    const char *name_end = find_name_end(r, p, end), *close = name_end;
    char how = 0;
    if (close < end && *close == '!') {
        how = close + 1 < end ? close[1] : 0;
        close += 2;
        if (!how || (close < end && *close != ':' && *close != '}'))
            tg_jrun_raise(r, "expected ':' after conversion specifier");
    }
    const char *text = close < end && *close == ':' ? ++close : close;
    for (int level = 0; close < end && (*close != '}' || level > 0); close++)
        level += *close == '{' ? 1 : *close == '}' ? -1 : 0;
    if (close >= end) tg_jrun_raise(r, "expected '}' before end of string");
    if (tg_jrun_is_failed(r)) return end;
    tg_jval v = find_field(x, p, name_end);
    if (how && !strchr("asr", how)) tg_jrun_raise(r, "unknown conversion in a format string");
    if (tg_jrun_is_failed(r)) return end;
    if (how) v = convert(r, v, how);
    tg_buf expanded = {0};
    format_into(x, &expanded, (tg_str){text, (size_t)(close - text)}, depth - 1);
    if (!tg_jrun_is_failed(r)) add_formatted(x, out, v, tg_buf_str(&expanded));
    tg_buf_deinit(&expanded);
    return close + 1;
}

/* A specifier may hold fields, and those specifiers none. */
static void format_into(braces *x, tg_buf *out, tg_str text, int depth)
{
    tg_jrun *r = x->r;
    const char *p = text.ptr, *end = p + text.len;
    if (depth < 0 && text.len) tg_jrun_raise(r, "Max string recursion exceeded");
    while (p < end && tg_jrun_pay(r, 1)) {
        if (out->len > r->max_output)
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
        bool is_double = p + 1 < end && p[1] == *p;
        if ((*p == '{' || *p == '}') && is_double) {
            tg_buf_add_byte(out, *p);
            p += 2;
        } else if (*p == '{') {
            p = add_field(x, out, p + 1, end, depth);
        } else if (*p == '}') {
            tg_jrun_raise(r, "Single '}' encountered in format string");
        } else {
            tg_buf_add_byte(out, *p++);
        }
    }
}

tg_jval tg_jstr_format(tg_jrun *r, tg_jval format, const tg_jargs *a)
{
    tg_buf b = {0};
    braces x = {.r = r, .a = a};
    if (format.is_markup)
        return tg_jrun_fail(r, TG_E_UNSUPPORTED, "formatting an escaped string is not built");
    format_into(&x, &b, tg_jval_str(format), 1);
    return tg_jstr_take(r, &b);
}
