/* SPDX-License-Identifier: Apache-2.0
 * jinja_format.c - "{}".format(x) and "%s" % x.
 *
 * Of Python's formatting what templates use: of the 70 that models ship, which
 * tools/models/fetch-templates fetches, one formats at all, with "{}" and nothing in the braces.
 * Fields by number and by name are here too, and %s, %d and %%. Widths, precisions, conversions and
 * paths are refused by what is written. */
#include "jinja/jinja.h"

#include <math.h>
#include <string.h>

static tg_jval fail_unbuilt(tg_jrun *r, const char *before, tg_str what, const char *after)
{
    return tg_jrun_fail(r, TG_E_UNSUPPORTED, "the format '%s%.*s%s' is not built in this engine",
                        before, (int)TG_MIN(what.len, 60u), what.ptr, after);
}

static bool check_format(tg_jrun *r, tg_jval format)
{
    if (format.is_markup)
        tg_jrun_fail(r, TG_E_UNSUPPORTED, "formatting an escaped string is not built");
    return !tg_jrun_is_failed(r);
}

/* Copies text up to one of the marks; true where one stands at *p. */
static bool copy_plain(tg_jrun *r, tg_buf *b, const char **p, const char *end, const char *marks)
{
    const char *start = *p;
    while (*p < end && !(**p && strchr(marks, **p)))
        ++*p;
    tg_buf_add(b, start, (size_t)(*p - start));
    if (b->len > r->max_output)
        tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
    return tg_jrun_pay(r, 1 + (*p - start) / 64) && *p < end;
}

/* ---- "%s" % value */

static void add_directive(tg_jrun *r, tg_buf *b, char type, tg_jval v)
{
    if (type == 's') {
        tg_jval_print(r, b, v);
    } else if (v.kind == TG_J_UNDEFINED) {
        tg_jrun_raise_undefined(r, v);
    } else if (!tg_jval_is_number(v)) {
        tg_jrun_raise(r, "%%d format: a real number is required, not %s", tg_jkind_name(v));
    } else if (!(fabs(tg_jval_float(v)) < 9.2e18)) {
        tg_jrun_fail(r, TG_E_LIMIT, "an integer does not fit 64 bits");
    } else {
        int64_t i = v.kind == TG_J_FLOAT ? (int64_t)v.u.f : tg_jval_int(v);
        tg_jval_print(r, b, tg_jint(i));
    }
}

tg_jval tg_jstr_percent(tg_jrun *r, tg_jval format, tg_jval value)
{
    tg_buf b = {0};
    bool is_tuple = value.kind == TG_J_TUPLE;
    const tg_jval *values = is_tuple ? value.u.list->items : &value;
    int32_t n = is_tuple ? value.u.list->n : 1, n_used = 0;
    if (!check_format(r, format)) return tg_jnone();
    const char *p = format.u.s, *end = p + format.len;
    while (copy_plain(r, &b, &p, end, "%")) {
        char type = ++p < end ? *p++ : 0;
        if (type == '%')
            tg_buf_add_byte(&b, '%');
        else if (!type)
            tg_jrun_raise(r, "incomplete format");
        else if (type != 's' && type != 'd')
            fail_unbuilt(r, "%", (tg_str){p - 1, 1}, "");
        else if (n_used == n)
            tg_jrun_raise(r, "not enough arguments for format string");
        else
            add_directive(r, &b, type, values[n_used++]);
    }
    /* A value with items may stay unused; one plain value may not. */
    bool may_stay = value.kind == TG_J_DICT || value.kind == TG_J_LIST ||
                    value.kind == TG_J_RANGE || value.kind == TG_J_UNDEFINED;
    if (n_used < n && !may_stay)
        tg_jrun_raise(r, "not all arguments converted during string formatting");
    return tg_jstr_take(r, &b);
}

/* ---- "{}".format(...) */

/* The value of a field: the next one, or one by its number or name. */
static tg_jval find_field(tg_jrun *r, const tg_jargs *a, tg_str name, int32_t *n_auto,
                          bool *is_manual)
{
    int64_t i = 0;
    bool is_number = name.len && name.len < 10;
    for (size_t k = 0; is_number && k < name.len; k++) {
        is_number = name.ptr[k] >= '0' && name.ptr[k] <= '9';
        i = i * 10 + name.ptr[k] - '0';
    }
    if (name.len && !is_number) {
        for (int32_t k = 0; k < a->n_kw; k++)
            if (tg_str_is_equal(tg_jval_str(a->names[k]), name)) return a->kw[k];
        return tg_jrun_raise(r, "KeyError: '%.*s'", (int)TG_MIN(name.len, 60u), name.ptr);
    }
    if (is_number ? *n_auto > 0 : *is_manual)
        return tg_jrun_raise(r, "cannot mix automatic and manual field numbering");
    *is_manual = is_number;
    if (!is_number) i = (*n_auto)++;
    return i < a->n_rest ? a->rest[i]
                         : tg_jrun_raise(r,
                                         "Replacement index %lld out of range for positional args "
                                         "tuple",
                                         (long long)i);
}

tg_jval tg_jstr_format(tg_jrun *r, tg_jval format, const tg_jargs *a)
{
    tg_buf b = {0};
    int32_t n_auto = 0;
    bool is_manual = false;
    if (!check_format(r, format)) return tg_jnone();
    const char *p = format.u.s, *end = p + format.len;
    while (copy_plain(r, &b, &p, end, "{}")) {
        char mark = *p++;
        if (p < end && *p == mark) {
            tg_buf_add_byte(&b, mark);
            p++;
            continue;
        }
        const char *close = mark == '{' ? memchr(p, '}', (size_t)(end - p)) : NULL;
        if (!close) {
            tg_jrun_raise(r,
                          mark == '{' && p < end ? "expected '}' before end of string"
                                                 : "Single '%c' encountered in format string",
                          mark);
            break;
        }
        tg_str name = {p, (size_t)(close - p)};
        p = close + 1;
        for (size_t i = 0; i < name.len; i++)
            if (strchr("!:.[{", name.ptr[i]) && name.ptr[i]) fail_unbuilt(r, "{", name, "}");
        if (!tg_jrun_is_failed(r))
            tg_jval_print(r, &b, find_field(r, a, name, &n_auto, &is_manual));
    }
    return tg_jstr_take(r, &b);
}
