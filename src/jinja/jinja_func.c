/* SPDX-License-Identifier: Apache-2.0
 * jinja_func.c - global functions: range, namespace, dict, raise_exception, strftime_now.
 *
 * strftime writes its own C-locale names: what a template prints must not depend on the locale of
 * the program that renders it. */
#include "jinja/jinja.h"

#include <string.h>
#include <time.h>

/* ---- range, dict, namespace */

enum { MAX_RANGE = 100000 }; /* the sandbox's limit */

static tg_jval do_range(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    (void)self;
    int64_t v[3] = {0, 0, 1};
    int n = 0;
    for (; n < 3 && a->v[n].kind != TG_J_MISSING; n++) {
        if (!tg_jval_is_int(a->v[n]))
            return tg_jrun_raise(r, "'%s' object cannot be interpreted as an integer",
                                 tg_jkind_name(a->v[n]));
        v[n] = tg_jval_int(a->v[n]);
    }
    if (n == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0) return tg_jrun_raise(r, "range() arg 3 must not be zero");
    /* Distances of 64-bit numbers fit an unsigned one. */
    bool is_up = v[2] > 0, is_empty = is_up ? v[0] >= v[1] : v[0] <= v[1];
    uint64_t span = is_up ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
    uint64_t step = is_up ? (uint64_t)v[2] : 0 - (uint64_t)v[2];
    uint64_t count = is_empty ? 0 : (span - 1) / step + 1;
    if (count > MAX_RANGE)
        return tg_jrun_raise(
            r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    tg_jrange *x = TG_JNEW(r, tg_jrange);
    if (!x) return tg_jnone();
    *x = (tg_jrange){.start = v[0], .stop = v[1], .step = v[2], .n = (int32_t)count};
    return (tg_jval){.kind = TG_J_RANGE, .u.range = x};
}

/* dict(mapping or pairs, **kw) into d. */
static void fill_dict(tg_jrun *r, tg_jdict *d, const tg_jargs *a)
{
    if (a->n_rest > 1) {
        tg_jrun_raise(r, "dict expected at most 1 argument, got %d", a->n_rest);
        return;
    }
    tg_jwalk w;
    tg_jval item;
    if (a->n_rest && a->rest[0].kind == TG_J_DICT) {
        const tg_jdict *from = a->rest[0].u.dict;
        for (int32_t i = 0; i < from->n && !tg_jrun_is_failed(r); i++)
            tg_jdict_put(r, d, from->entries[i].key, from->entries[i].value);
    } else if (a->n_rest && a->rest[0].kind == TG_J_UNDEFINED) {
        tg_jrun_raise_undefined(r, a->rest[0]);
    } else if (a->n_rest && tg_jwalk_begin(r, &w, a->rest[0])) {
        while (tg_jwalk_next(r, &w, &item)) {
            tg_jval pair = tg_jval_to_list(r, item, TG_J_LIST);
            if (tg_jrun_is_failed(r)) return;
            if (pair.u.list->n != 2) {
                tg_jrun_raise(r, "dictionary update sequence element has length %d; 2 is required",
                              pair.u.list->n);
                return;
            }
            tg_jdict_put(r, d, pair.u.list->items[0], pair.u.list->items[1]);
        }
    }
    for (int32_t i = 0; i < a->n_kw && !tg_jrun_is_failed(r); i++)
        tg_jdict_put(r, d, a->names[i], a->kw[i]);
}

static tg_jval do_dict(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    (void)self;
    tg_jval d = tg_jdict_new(r, 0);
    if (!tg_jrun_is_failed(r)) fill_dict(r, d.u.dict, a);
    return d;
}

static tg_jval do_namespace(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    tg_jval d = do_dict(r, self, a);
    if (tg_jrun_is_failed(r)) return d;
    for (int32_t i = 0; i < d.u.dict->n; i++) {
        tg_jval key = d.u.dict->entries[i].key;
        if (key.kind == TG_J_STR && key.len && key.u.s[0] == '_')
            return tg_jrun_raise(
                r, "attributes of a namespace cannot begin with an underscore: '%.*s'",
                (int)TG_MIN(key.len, 60u), key.u.s);
    }
    d.kind = TG_J_NAMESPACE;
    return d;
}

/* The template's own refusal reaches the caller as it was written, without a position. */
static tg_jval do_raise_exception(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    (void)self;
    tg_jval s = tg_jval_to_str(r, a->v[0]);
    if (!tg_jrun_is_failed(r))
        r->status = tg_fail(r->e, TG_E_ARGUMENT, "%.*s", (int)TG_MIN(s.len, 500u), s.u.s);
    return tg_jnone();
}

/* ---- time */

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

/* Week of the year, weeks beginning on `first` (0 Sunday, 1 Monday). */
static int week_of(const struct tm *t, int first)
{
    return (t->tm_yday + 7 - (t->tm_wday - first + 7) % 7) / 7;
}

static bool is_leap(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* ISO 8601: week 1 holds the year's first Thursday. */
static int iso_week(const struct tm *t, int *year)
{
    int weekday = (t->tm_wday + 6) % 7; /* 0 Monday */
    int week = (t->tm_yday - weekday + 10) / 7;
    *year = t->tm_year + 1900;
    if (week < 1) {
        (*year)--;
        int n_days = is_leap(*year) ? 366 : 365;
        return (t->tm_yday + n_days - weekday + 10) / 7;
    }
    int n_days = is_leap(*year) ? 366 : 365;
    if (week == 53 && n_days - t->tm_yday <= 3 - weekday) {
        (*year)++;
        return 1;
    }
    return week;
}

static void print_time(tg_buf *b, const struct tm *t, const char *format);

/* One directive; false when there is none of this letter. */
static bool print_directive(tg_buf *b, const struct tm *t, char c)
{
    int hour12 = t->tm_hour % 12 ? t->tm_hour % 12 : 12, year = t->tm_year + 1900, iso_year;
    int week = iso_week(t, &iso_year);
    switch (c) {
    case 'a': tg_buf_printf(b, "%.3s", days[t->tm_wday]); break;
    case 'A': tg_buf_add_cstr(b, days[t->tm_wday]); break;
    case 'b':
    case 'h': tg_buf_printf(b, "%.3s", months[t->tm_mon]); break;
    case 'B': tg_buf_add_cstr(b, months[t->tm_mon]); break;
    case 'c': print_time(b, t, "%a %b %e %H:%M:%S %Y"); break;
    case 'C': tg_buf_printf(b, "%02d", year / 100); break;
    case 'd': tg_buf_printf(b, "%02d", t->tm_mday); break;
    case 'D':
    case 'x': print_time(b, t, "%m/%d/%y"); break;
    case 'e': tg_buf_printf(b, "%2d", t->tm_mday); break;
    case 'f': tg_buf_add_cstr(b, "000000"); break; /* the clock counts seconds */
    case 'F': print_time(b, t, "%Y-%m-%d"); break;
    case 'g': tg_buf_printf(b, "%02d", iso_year % 100); break;
    case 'G': tg_buf_printf(b, "%d", iso_year); break;
    case 'H': tg_buf_printf(b, "%02d", t->tm_hour); break;
    case 'I': tg_buf_printf(b, "%02d", hour12); break;
    case 'j': tg_buf_printf(b, "%03d", t->tm_yday + 1); break;
    case 'k': tg_buf_printf(b, "%2d", t->tm_hour); break;
    case 'l': tg_buf_printf(b, "%2d", hour12); break;
    case 'm': tg_buf_printf(b, "%02d", t->tm_mon + 1); break;
    case 'M': tg_buf_printf(b, "%02d", t->tm_min); break;
    case 'n': tg_buf_add_byte(b, '\n'); break;
    case 'p': tg_buf_add_cstr(b, t->tm_hour < 12 ? "AM" : "PM"); break;
    case 'P': tg_buf_add_cstr(b, t->tm_hour < 12 ? "am" : "pm"); break;
    case 'r': print_time(b, t, "%I:%M:%S %p"); break;
    case 'R': print_time(b, t, "%H:%M"); break;
    case 'S': tg_buf_printf(b, "%02d", t->tm_sec); break;
    case 't': tg_buf_add_byte(b, '\t'); break;
    case 'T':
    case 'X': print_time(b, t, "%H:%M:%S"); break;
    case 'u': tg_buf_printf(b, "%d", t->tm_wday ? t->tm_wday : 7); break;
    case 'U': tg_buf_printf(b, "%02d", week_of(t, 0)); break;
    case 'V': tg_buf_printf(b, "%02d", week); break;
    case 'w': tg_buf_printf(b, "%d", t->tm_wday); break;
    case 'W': tg_buf_printf(b, "%02d", week_of(t, 1)); break;
    case 'y': tg_buf_printf(b, "%02d", year % 100); break;
    case 'Y': tg_buf_printf(b, "%d", year); break;
    case 'z':
    case 'Z': break; /* the reference's time has no zone */
    case '%': tg_buf_add_byte(b, '%'); break;
    default: return false;
    }
    return true;
}

/* Formats of our own. */
static void print_time(tg_buf *b, const struct tm *t, const char *format)
{
    for (; *format; format++) {
        if (*format != '%')
            tg_buf_add_byte(b, *format);
        else
            print_directive(b, t, *++format);
    }
}

tg_jval tg_jclock_print(tg_jrun *r, tg_str format)
{
    struct tm t;
    time_t now = r->clock ? (time_t)(r->clock->utc_s + r->clock->utc_offset_s) : time(NULL);
    if (!(r->clock ? gmtime_r(&now, &t) : localtime_r(&now, &t)))
        return tg_jrun_fail(r, TG_E_ARGUMENT, "the time %lld is out of range", (long long)now);
    tg_buf b = {0};
    tg_jrun_pay(r, (int64_t)format.len / 8);
    for (size_t i = 0; i < format.len && !tg_jrun_is_failed(r); i++) {
        if (format.ptr[i] != '%') {
            tg_buf_add_byte(&b, format.ptr[i]);
            continue;
        }
        bool is_plain = i + 2 < format.len && format.ptr[i + 1] == '-'; /* %-d: no padding */
        char c = i + 1 + is_plain < format.len ? format.ptr[i + 1 + is_plain] : 0;
        size_t start = b.len;
        bool is_odd = is_plain && strchr("%fzZ", c); /* the reference takes these apart */
        if (!c || is_odd || !print_directive(&b, &t, c)) {
            tg_jrun_fail(r, TG_E_UNSUPPORTED, "the time format '%%%c' is not built", c ? c : ' ');
            break;
        }
        size_t skip = start;
        while (is_plain && skip + 1 < b.len && (b.ptr[skip] == '0' || b.ptr[skip] == ' '))
            skip++;
        if (skip > start) {
            memmove(b.ptr + start, b.ptr + skip, b.len - skip + 1);
            b.len -= skip - start;
        }
        i += 1 + is_plain;
    }
    return tg_jstr_take(r, &b);
}

static tg_jval do_strftime_now(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    (void)self;
    if (a->v[0].kind != TG_J_STR)
        return tg_jrun_raise(r, "strftime() argument 1 must be str, not %s",
                             tg_jkind_name(a->v[0]));
    return tg_jclock_print(r, tg_jval_str(a->v[0]));
}

static const tg_jfunc globals[] = {
    {"cycler", NULL, "*", 0, 0},
    {"dict", do_dict, "*", 0, 0},
    {"joiner", NULL, "*", 0, 0},
    {"lipsum", NULL, "*", 0, 0},
    {"namespace", do_namespace, "*", 0, 0},
    {"raise_exception", do_raise_exception, "message", 1, 0},
    {"range", do_range, "start stop step", 1, 0},
    {"self", NULL, "*", 0, 0},
    {"strftime_now", do_strftime_now, "format", 1, 0},
};

const tg_jfunc *tg_jglobal_find(tg_str name)
{
    for (size_t i = 0; i < TG_COUNT(globals); i++)
        if (tg_str_is(name, globals[i].name)) return &globals[i];
    return NULL;
}
