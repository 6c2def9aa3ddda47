/* SPDX-License-Identifier: Apache-2.0
 * jinja_container.c - methods of dictionaries, lists, tuples, ranges and numbers. */
#include "jinja/jinja.h"

#include <math.h>
#include <string.h>

/* ---- dictionaries */

static tg_jval new_view(tg_jrun *r, tg_jval d, tg_jdict_view_kind what)
{
    tg_jdict_view *v = TG_JNEW(r, tg_jdict_view);
    if (!v) return tg_jnone();
    *v = (tg_jdict_view){.dict = d.u.dict, .what = what};
    return (tg_jval){.kind = TG_J_VIEW, .u.view = v};
}

static tg_jval dict_keys(tg_jrun *r, tg_jval d, const tg_jargs *a)
{
    (void)a;
    return new_view(r, d, TG_JVIEW_KEYS);
}

static tg_jval dict_values(tg_jrun *r, tg_jval d, const tg_jargs *a)
{
    (void)a;
    return new_view(r, d, TG_JVIEW_VALUES);
}

static tg_jval dict_items(tg_jrun *r, tg_jval d, const tg_jargs *a)
{
    (void)a;
    return new_view(r, d, TG_JVIEW_ITEMS);
}

static tg_jval dict_get(tg_jrun *r, tg_jval d, const tg_jargs *a)
{
    const tg_jval *v = tg_jdict_find(r, d.u.dict, a->v[0]);
    if (v) return *v;
    return a->v[1].kind == TG_J_MISSING ? tg_jnone() : a->v[1];
}

/* "iterable value" */
static tg_jval dict_fromkeys(tg_jrun *r, tg_jval d, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval key, out = tg_jdict_new(r, 0);
    (void)d;
    if (a->v[0].kind == TG_J_NONE) return tg_jrun_raise(r, "'NoneType' object is not iterable");
    if (tg_jrun_is_failed(r) || !tg_jwalk_begin(r, &w, a->v[0])) return out;
    while (tg_jwalk_next(r, &w, &key))
        tg_jdict_put(r, out.u.dict, key, a->v[1].kind == TG_J_MISSING ? tg_jnone() : a->v[1]);
    return out;
}

static tg_jval dict_copy(tg_jrun *r, tg_jval d, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return d; /* nothing can change either of them */
}

/* ---- lists, tuples and numbers */

/* "value start stop" */
static tg_jval list_index(tg_jrun *r, tg_jval l, const tg_jargs *a)
{
    int64_t n = l.u.list->n, from = tg_jval_is_int(a->v[1]) ? tg_jval_int(a->v[1]) : 0;
    int64_t to = tg_jval_is_int(a->v[2]) ? tg_jval_int(a->v[2]) : n;
    if (from < 0) from = TG_MAX(from + n, 0);
    if (to < 0) to += n;
    for (int64_t i = from; i < TG_MIN(to, n); i++)
        if (tg_jval_is_equal(r, l.u.list->items[i], a->v[0])) return tg_jint(i);
    return tg_jrun_raise(r, "the value is not in the %s", tg_jkind_name(l));
}

static tg_jval list_count(tg_jrun *r, tg_jval l, const tg_jargs *a)
{
    int64_t n = 0;
    for (int32_t i = 0; i < l.u.list->n; i++)
        n += tg_jval_is_equal(r, l.u.list->items[i], a->v[0]);
    return tg_jint(n);
}

static tg_jval list_copy(tg_jrun *r, tg_jval l, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return l;
}

/* Counted on the distance from zero, as in Python. */
static uint64_t magnitude(tg_jval v)
{
    int64_t i = tg_jval_int(v);
    return i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
}

static tg_jval int_bit_count(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    int64_t n = 0;
    (void)r;
    (void)a;
    for (uint64_t m = magnitude(v); m; m &= m - 1)
        n++;
    return tg_jint(n);
}

static tg_jval int_bit_length(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    int64_t n = 0;
    (void)r;
    (void)a;
    for (uint64_t m = magnitude(v); m; m >>= 1)
        n++;
    return tg_jint(n);
}

static tg_jval number_conjugate(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return tg_jval_is_int(v) ? tg_jint(tg_jval_int(v)) : v;
}

/* The place of a value in a range, or -1. */
static int64_t find_in_range(tg_jrun *r, tg_jval range, tg_jval value)
{
    tg_jwalk w;
    tg_jval x;
    int64_t i = 0;
    for (tg_jwalk_begin(r, &w, range); tg_jwalk_next(r, &w, &x); i++)
        if (tg_jval_is_equal(r, x, value)) return i;
    return -1;
}

static tg_jval range_count(tg_jrun *r, tg_jval range, const tg_jargs *a)
{
    return tg_jint(find_in_range(r, range, a->v[0]) >= 0);
}

static tg_jval range_index(tg_jrun *r, tg_jval range, const tg_jargs *a)
{
    int64_t i = find_in_range(r, range, a->v[0]);
    return i < 0 ? tg_jrun_raise(r, "the value is not in range") : tg_jint(i);
}

static tg_jval float_is_integer(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return tg_jbool(isfinite(v.u.f) && floor(v.u.f) == v.u.f);
}

enum {
    DICT = TG_J_BIT(TG_J_DICT),
    LIST = TG_J_BIT(TG_J_LIST),
    SEQ = TG_J_BIT(TG_J_LIST) | TG_J_BIT(TG_J_TUPLE),
    INT = TG_J_BIT(TG_J_INT) | TG_J_BIT(TG_J_BOOL),
    FLOAT = TG_J_BIT(TG_J_FLOAT),
    RANGE = TG_J_BIT(TG_J_RANGE),
    ITER = TG_J_BIT(TG_J_ITER),
    VIEW = TG_J_BIT(TG_J_VIEW),
    DICT_CLASS = TG_J_BIT(TG_J_FUNC), /* find_attribute asks for dict alone */
};

const tg_jfunc tg_jcontainer_methods[] = {
    {"copy", dict_copy, "", 0, DICT},
    {"fromkeys", dict_fromkeys, "/iterable value", 1, DICT | DICT_CLASS},
    {"get", dict_get, "/key default", 1, DICT},
    {"items", dict_items, "", 0, DICT},
    {"keys", dict_keys, "", 0, DICT},
    {"values", dict_values, "", 0, DICT},

    {"copy", list_copy, "", 0, LIST},
    {"count", list_count, "/value", 1, SEQ},
    {"index", list_index, "/value start stop", 1, SEQ},

    {"as_integer_ratio", NULL, "", 0, INT | FLOAT},
    {"bit_count", int_bit_count, "", 0, INT},
    {"bit_length", int_bit_length, "", 0, INT},
    {"conjugate", number_conjugate, "", 0, INT | FLOAT},
    {"from_bytes", NULL, "*", 0, INT},
    {"fromhex", NULL, "*", 0, FLOAT},
    {"hex", NULL, "", 0, FLOAT},
    {"is_integer", float_is_integer, "", 0, FLOAT},
    {"to_bytes", NULL, "*", 0, INT},

    {"count", range_count, "/value", 1, RANGE},
    {"index", range_index, "/value", 1, RANGE},
    {"close", NULL, "", 0, ITER},
    {"send", NULL, "*", 0, ITER},
    {"throw", NULL, "*", 0, ITER},
    {"isdisjoint", NULL, "other", 1, VIEW},
    {"mapping", NULL, "", 0, VIEW},
    {0},
};
