/* SPDX-License-Identifier: Apache-2.0
 * jinja_print.c - str(v) and repr(v) of values, as Python prints them. */
#include "jinja/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Python's repr of a float: the shortest digits that read back as the same number, in exponent form
 * below 1e-4 and from 1e16. */
void tg_jfloat_print(tg_buf *b, double f)
{
    char digits[TG_SHORTEST_BYTES];
    if (isnan(f) || isinf(f)) {
        tg_buf_add_cstr(b, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int n_digits = tg_f64_print_shortest(digits, f);
    if (signbit(f)) tg_buf_add_byte(b, '-');
    f = fabs(f);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        char *e = strchr(digits, 'e');
        tg_buf_printf(b, "%.*se%c%02d", (int)(e - digits), digits, exponent < 0 ? '-' : '+',
                      abs(exponent));
    } else {
        int decimals = TG_MAX(n_digits - 1 - exponent, 1);
        tg_buf_printf(b, "%.*f", decimals, f);
    }
}

static void print_str_repr(tg_buf *b, tg_str s)
{
    bool has_single = s.len && memchr(s.ptr, '\'', s.len);
    char quote = has_single && !memchr(s.ptr, '"', s.len) ? '"' : '\'';
    tg_buf_add_byte(b, quote);
    for (size_t i = 0; i < s.len;) {
        int32_t c = 0;
        int n = tg_utf8_decode(s.ptr + i, s.len - i, &c);
        if (c == quote || c == '\\')
            tg_buf_printf(b, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            tg_buf_add_cstr(b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (n > 0 && tg_jchar_is_printable(c))
            tg_buf_add(b, s.ptr + i, (size_t)n);
        else if (c < 0x100)
            tg_buf_printf(b, "\\x%02x", (int)c);
        else if (c < 0x10000)
            tg_buf_printf(b, "\\u%04x", (int)c);
        else
            tg_buf_printf(b, "\\U%08x", (int)c);
        i += n > 0 ? (size_t)n : 1;
    }
    tg_buf_add_byte(b, quote);
}

static void print_list(tg_jrun *r, tg_buf *b, tg_jval v)
{
    bool is_tuple = v.kind == TG_J_TUPLE;
    tg_buf_add_byte(b, is_tuple ? '(' : '[');
    for (int32_t i = 0; i < v.u.list->n && !tg_jrun_is_failed(r); i++) {
        if (i) tg_buf_add_cstr(b, ", ");
        tg_jval_print_repr(r, b, v.u.list->items[i]);
    }
    if (is_tuple && v.u.list->n == 1) tg_buf_add_byte(b, ',');
    tg_buf_add_byte(b, is_tuple ? ')' : ']');
}

static void print_dict(tg_jrun *r, tg_buf *b, const tg_jdict *d)
{
    tg_buf_add_byte(b, '{');
    for (int32_t i = 0; i < d->n && !tg_jrun_is_failed(r); i++) {
        if (i) tg_buf_add_cstr(b, ", ");
        tg_jval_print_repr(r, b, d->entries[i].key);
        tg_buf_add_cstr(b, ": ");
        tg_jval_print_repr(r, b, d->entries[i].value);
    }
    tg_buf_add_byte(b, '}');
}

static void print_view(tg_jrun *r, tg_buf *b, tg_jval v)
{
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    tg_buf_add_cstr(b, names[v.u.view->what]);
    print_list(r, b, tg_jval_to_list(r, v, TG_J_LIST));
    tg_buf_add_byte(b, ')');
}

static void print_range(tg_buf *b, const tg_jrange *x)
{
    tg_buf_printf(b, "range(%lld, %lld", (long long)x->start, (long long)x->stop);
    if (x->step != 1) tg_buf_printf(b, ", %lld", (long long)x->step);
    tg_buf_add_byte(b, ')');
}

static void print_nested(tg_jrun *r, tg_buf *b, tg_jval v)
{
    switch (v.kind) {
    case TG_J_LIST:
    case TG_J_TUPLE: print_list(r, b, v); break;
    case TG_J_DICT: print_dict(r, b, v.u.dict); break;
    case TG_J_VIEW: print_view(r, b, v); break;
    case TG_J_NAMESPACE:
        tg_buf_add_cstr(b, "<Namespace ");
        print_dict(r, b, v.u.dict);
        tg_buf_add_byte(b, '>');
        break;
    case TG_J_MACRO:
        tg_jrun_fail(r, TG_E_UNSUPPORTED, "printing a macro is not built; call it with ()");
        break;
    default:
        /* The reference prints a memory address here. */
        tg_jrun_fail(r, TG_E_UNSUPPORTED, "printing a value of type '%s' is not built%s",
                     tg_jkind_name(v), v.kind == TG_J_ITER ? "; use |list" : "");
    }
}

void tg_jval_print_repr(tg_jrun *r, tg_buf *b, tg_jval v)
{
    /* Text in a value being printed counts as output. */
    if (!tg_jrun_pay(r, 1)) return;
    if (b->len > r->max_output) {
        tg_jrun_fail(r, TG_E_LIMIT, "a printed value exceeds the limit of %zu bytes",
                     r->max_output);
        return;
    }
    switch (v.kind) {
    case TG_J_MISSING:
    case TG_J_UNDEFINED: tg_buf_add_cstr(b, "Undefined"); break;
    case TG_J_NONE: tg_buf_add_cstr(b, "None"); break;
    case TG_J_BOOL: tg_buf_add_cstr(b, v.u.b ? "True" : "False"); break;
    case TG_J_INT: tg_buf_printf(b, "%lld", (long long)v.u.i); break;
    case TG_J_FLOAT: tg_jfloat_print(b, v.u.f); break;
    case TG_J_RANGE: print_range(b, v.u.range); break;
    case TG_J_STR:
        tg_jrun_pay(r, v.len / 4);
        if (v.is_markup) tg_buf_add_cstr(b, "Markup(");
        print_str_repr(b, tg_jval_str(v));
        if (v.is_markup) tg_buf_add_byte(b, ')');
        break;
    default:
        if (r->n_depth <= 0) {
            tg_jrun_fail(r, TG_E_LIMIT, "a printed value is nested too deep for the budget");
            break;
        }
        r->n_depth--;
        print_nested(r, b, v);
        r->n_depth++;
    }
}

void tg_jval_print(tg_jrun *r, tg_buf *b, tg_jval v)
{
    if (v.kind == TG_J_STR) {
        tg_jrun_pay(r, v.len / 64);
        tg_buf_add_str(b, tg_jval_str(v));
    } else if (v.kind != TG_J_UNDEFINED && v.kind != TG_J_MISSING) {
        tg_jval_print_repr(r, b, v);
    }
}

tg_jval tg_jval_to_str(tg_jrun *r, tg_jval v)
{
    if (v.kind == TG_J_STR) return v;
    tg_buf b = {0};
    tg_jval_print(r, &b, v);
    return tg_jstr_take(r, &b);
}
