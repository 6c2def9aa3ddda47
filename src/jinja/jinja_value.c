/* SPDX-License-Identifier: Apache-2.0
 * jinja_value.c - the values of a template: making, comparing and walking them as Python does.
 *
 * Objects are cut from the rendering's arena and never freed singly. Recursion over nested values
 * is bounded by the depth of the run, work over them by its steps. */
#include "jinja/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- strings */

static bool is_ascii(tg_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] >= 0x80) return false;
    return true;
}

tg_jval tg_jstr(tg_str s)
{
    return (tg_jval){.kind = TG_J_STR,
                     .is_ascii = is_ascii(s),
                     .len = (uint32_t)s.len,
                     .u.s = s.len ? s.ptr : ""};
}

tg_jval tg_jstr_copy(tg_jrun *r, tg_str s)
{
    if (!tg_jrun_pay(r, (int64_t)s.len / 64)) return tg_jstr(TG_STR(""));
    char *p = tg_jrun_alloc(r, s.len + 1);
    if (!p) return tg_jstr(TG_STR(""));
    if (s.len) memcpy(p, s.ptr, s.len);
    return tg_jstr((tg_str){p, s.len});
}

tg_jval tg_jstr_take(tg_jrun *r, tg_buf *b)
{
    if (b->is_failed) tg_jrun_fail(r, TG_E_NOMEM, "no memory for %zu bytes of text", b->len);
    tg_jval v = tg_jstr_copy(r, tg_buf_str(b));
    tg_buf_deinit(b);
    return v;
}

int64_t tg_jstr_count(tg_jrun *r, tg_jval s)
{
    if (s.is_ascii) return s.len;
    tg_jrun_pay(r, s.len / 32);
    int64_t n = 0;
    for (uint32_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.u.s[i] & 0xc0) != 0x80;
    return n;
}

/* The byte offset of character n. */
static uint32_t offset_of(tg_jval s, int64_t n)
{
    if (s.is_ascii) return (uint32_t)n;
    uint32_t i = 0;
    for (; i < s.len; i++)
        if (((unsigned char)s.u.s[i] & 0xc0) != 0x80 && n-- == 0) break;
    return i;
}

tg_jval tg_jstr_cut(tg_jrun *r, tg_jval s, int64_t from, int64_t to)
{
    tg_jrun_pay(r, s.is_ascii ? (to - from) / 64 : s.len / 32);
    uint32_t a = offset_of(s, from), b = offset_of(s, to);
    tg_jval v = tg_jstr((tg_str){s.u.s + a, b - a});
    v.is_markup = s.is_markup;
    return v;
}

/* ---- undefined */

tg_jval tg_jundefined(tg_jrun *r, const char *of, tg_jval name)
{
    tg_jundef *u = TG_JNEW(r, tg_jundef);
    if (u) *u = (tg_jundef){.of = of, .name = name};
    return (tg_jval){.kind = TG_J_UNDEFINED, .u.undef = u};
}

tg_jval tg_jundefined_hint(tg_jrun *r, const char *hint)
{
    tg_jundef *u = TG_JNEW(r, tg_jundef);
    if (u) u->hint = tg_str_from_cstr(hint);
    return (tg_jval){.kind = TG_J_UNDEFINED, .u.undef = u};
}

tg_jval tg_jrun_raise_undefined(tg_jrun *r, tg_jval v)
{
    const tg_jundef *u = v.u.undef;
    if (!u) return tg_jrun_raise(r, "an undefined value is used");
    if (u->hint.len) return tg_jrun_raise(r, "%.*s", (int)u->hint.len, u->hint.ptr);
    bool is_none = u->of && strcmp(u->of, "NoneType") == 0; /* None is called by its value */
    const char *type = is_none ? "None" : u->of, *object = is_none ? "" : " object";
    tg_buf b = {0};
    tg_jval_print_repr(r, &b, u->name);
    int len = (int)TG_MIN(b.len, 100u);
    if (u->is_unsafe)
        tg_jrun_raise(r, "access to attribute %.*s of a '%s' object is unsafe", len,
                      tg_buf_cstr(&b), u->of);
    else if (!u->of)
        tg_jrun_raise(r, "%.*s is undefined", len, tg_buf_cstr(&b));
    else if (u->name.kind == TG_J_STR)
        tg_jrun_raise(r, "'%s%s' has no attribute %.*s", type, object, len, tg_buf_cstr(&b));
    else
        tg_jrun_raise(r, "%s%s has no element %.*s", type, object, len, tg_buf_cstr(&b));
    tg_buf_deinit(&b);
    return tg_jnone();
}

/* ---- lists */

tg_jval tg_jlist_new(tg_jrun *r, uint8_t kind, int32_t size)
{
    tg_jlist *l = TG_JNEW(r, tg_jlist);
    if (l && size > 0 && (l->items = TG_JARRAY(r, tg_jval, size))) l->size = size;
    if (!l) return tg_jnone();
    return (tg_jval){.kind = kind, .u.list = l};
}

void tg_jlist_add(tg_jrun *r, tg_jval list, tg_jval item)
{
    if (tg_jrun_is_failed(r) || !tg_jrun_pay(r, 1)) return;
    tg_jlist *l = list.u.list;
    if (l->n == l->size) {
        int32_t size = l->size ? l->size * 2 : 4;
        tg_jval *items = TG_JARRAY(r, tg_jval, size);
        if (!items) return;
        if (l->n) memcpy(items, l->items, (size_t)l->n * sizeof *items);
        l->items = items;
        l->size = size;
    }
    l->items[l->n++] = item;
}

tg_jval tg_jtuple2(tg_jrun *r, tg_jval a, tg_jval b)
{
    tg_jval t = tg_jlist_new(r, TG_J_TUPLE, 2);
    tg_jlist_add(r, t, a);
    tg_jlist_add(r, t, b);
    return t;
}

tg_jval tg_jiterator_new(tg_jrun *r, tg_jval list, const char *type_name)
{
    tg_jiterator *o = TG_JNEW(r, tg_jiterator);
    if (!o || list.kind != TG_J_LIST) return tg_jnone();
    o->list = list.u.list;
    o->type_name = type_name;
    return (tg_jval){.kind = TG_J_ITER, .u.iterator = o};
}

/* ---- dictionaries */

/* Tuples nested deeper than this are refused as keys: hashing recurses. */
enum { MAX_KEY_DEPTH = 32 };

/* Tuples may hold one another many times over, so that each visit is paid for. */
static bool is_hashable(tg_jrun *r, tg_jval v, int depth)
{
    if (v.kind == TG_J_TUPLE)
        for (int32_t i = 0; i < v.u.list->n && tg_jrun_pay(r, 1); i++)
            if (depth == 0 || !is_hashable(r, v.u.list->items[i], depth - 1)) return false;
    return v.kind != TG_J_LIST && v.kind != TG_J_DICT;
}

bool tg_jval_is_hashable(tg_jrun *r, tg_jval v)
{
    return is_hashable(r, v, MAX_KEY_DEPTH);
}

/* Values that are equal have equal hashes: 1, 1.0 and true are one key. */
static uint32_t hash(tg_jrun *r, tg_jval v)
{
    uint64_t h = v.kind;
    double f = tg_jval_is_number(v) ? tg_jval_float(v) : 0;
    switch (v.kind) {
    case TG_J_STR:
        tg_jrun_pay(r, v.len / 256);
        h = XXH3_64bits(v.u.s, v.len);
        break;
    case TG_J_BOOL:
    case TG_J_INT:
    case TG_J_FLOAT: h = XXH3_64bits(&f, sizeof f); break;
    case TG_J_TUPLE:
        for (int32_t i = 0; i < v.u.list->n && tg_jrun_pay(r, 1); i++)
            h = h * 0x9e3779b97f4a7c15u + hash(r, v.u.list->items[i]);
        break;
    case TG_J_NONE:
    case TG_J_UNDEFINED: break;
    default: h = XXH3_64bits(&v.u.ptr, sizeof v.u.ptr);
    }
    return (uint32_t)(h ^ h >> 32);
}

enum { SMALL_DICT = 8 }; /* below, looking at every key beats a table */

static int32_t *find_index(tg_jrun *r, const tg_jdict *d, tg_jval key)
{
    uint32_t mask = (uint32_t)d->index_size - 1, i = hash(r, key) & mask;
    while (d->index[i] && tg_jrun_pay(r, 1) &&
           !tg_jval_is_equal(r, d->entries[d->index[i] - 1].key, key))
        i = (i + 1) & mask;
    return &d->index[i];
}

static bool grow_dict(tg_jrun *r, tg_jdict *d, int32_t size)
{
    tg_jentry *entries = TG_JARRAY(r, tg_jentry, size);
    if (!entries) return false;
    if (d->n) memcpy(entries, d->entries, (size_t)d->n * sizeof *entries);
    d->entries = entries;
    d->size = size;
    if (size <= SMALL_DICT) return true;
    int32_t index_size = 16;
    while (index_size < size * 2)
        index_size *= 2;
    d->index = TG_JARRAY(r, int32_t, index_size);
    if (!d->index) return false;
    d->index_size = index_size;
    for (int32_t i = 0; i < d->n; i++)
        *find_index(r, d, entries[i].key) = i + 1;
    return !tg_jrun_is_failed(r);
}

tg_jval tg_jdict_new(tg_jrun *r, int32_t size)
{
    tg_jdict *d = TG_JNEW(r, tg_jdict);
    if (!d || (size > 0 && !grow_dict(r, d, size))) return tg_jnone();
    return (tg_jval){.kind = TG_J_DICT, .u.dict = d};
}

tg_jval *tg_jdict_find(tg_jrun *r, const tg_jdict *d, tg_jval key)
{
    if (!tg_jval_is_hashable(r, key)) {
        tg_jrun_raise(r, "unhashable type: '%s'", tg_jkind_name(key));
        return NULL;
    }
    if (d->index) {
        int32_t i = *find_index(r, d, key);
        return i && !tg_jrun_is_failed(r) ? &d->entries[i - 1].value : NULL;
    }
    for (int32_t i = 0; i < d->n; i++)
        if (tg_jval_is_equal(r, d->entries[i].key, key)) return &d->entries[i].value;
    return NULL;
}

void tg_jdict_put(tg_jrun *r, tg_jdict *d, tg_jval key, tg_jval value)
{
    tg_jval *old = tg_jdict_find(r, d, key);
    if (tg_jrun_is_failed(r) || !tg_jrun_pay(r, 1)) return;
    if (old) {
        *old = value;
        return;
    }
    if (d->n == d->size && !grow_dict(r, d, d->size ? d->size * 2 : 4)) return;
    d->entries[d->n++] = (tg_jentry){key, value};
    if (d->index) *find_index(r, d, key) = d->n;
}

/* ---- from JSON */

tg_jval tg_jval_from_json(tg_jrun *r, const json_t *v)
{
    if (!tg_jrun_pay(r, 1)) return tg_jnone();
    switch (json_typeof(v)) {
    case JSON_NULL: return tg_jnone();
    case JSON_TRUE: return tg_jbool(true);
    case JSON_FALSE: return tg_jbool(false);
    case JSON_INTEGER: return tg_jint(json_integer_value(v));
    case JSON_REAL: return tg_jfloat(json_real_value(v));
    case JSON_STRING:
        if (json_string_length(v) > UINT32_MAX / 2)
            return tg_jrun_fail(r, TG_E_LIMIT, "a string of %zu bytes is longer than 2 GiB",
                                json_string_length(v));
        return tg_jstr((tg_str){json_string_value(v), json_string_length(v)});
    case JSON_ARRAY: break;
    case JSON_OBJECT: break;
    }
    if (r->n_depth <= 0)
        return tg_jrun_fail(r, TG_E_LIMIT, "a variable is nested too deep for the budget");
    r->n_depth--;
    tg_jval out;
    if (json_is_array(v)) {
        size_t n = json_array_size(v);
        out = n > INT32_MAX / 32 ? tg_jrun_fail(r, TG_E_LIMIT, "an array has %zu items", n)
                                 : tg_jlist_new(r, TG_J_LIST, (int32_t)n);
        for (size_t i = 0; i < n && !tg_jrun_is_failed(r); i++)
            tg_jlist_add(r, out, tg_jval_from_json(r, json_array_get(v, i)));
    } else {
        const char *key;
        json_t *item;
        out = tg_jdict_new(r, (int32_t)TG_MIN(json_object_size(v), (size_t)1 << 20));
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            if (tg_jrun_is_failed(r)) break;
            tg_jdict_put(r, out.u.dict, tg_jstr(tg_str_from_cstr(key)), tg_jval_from_json(r, item));
        }
    }
    r->n_depth++;
    return out;
}

/* ---- truth, equality, order */

const char *tg_jkind_name(tg_jval v)
{
    static const char *const names[TG_J_COUNT] = {
        [TG_J_MISSING] = "missing",
        [TG_J_UNDEFINED] = "Undefined",
        [TG_J_NONE] = "NoneType",
        [TG_J_BOOL] = "bool",
        [TG_J_INT] = "int",
        [TG_J_FLOAT] = "float",
        [TG_J_STR] = "str",
        [TG_J_LIST] = "list",
        [TG_J_TUPLE] = "tuple",
        [TG_J_DICT] = "dict",
        [TG_J_RANGE] = "range",
        [TG_J_FUNC] = "function",
        [TG_J_METHOD] = "builtin_function_or_method",
        [TG_J_MACRO] = "Macro",
        [TG_J_NAMESPACE] = "Namespace",
        [TG_J_LOOP] = "LoopContext",
    };
    static const char *const views[] = {
        [TG_JVIEW_KEYS] = "dict_keys",
        [TG_JVIEW_VALUES] = "dict_values",
        [TG_JVIEW_ITEMS] = "dict_items",
    };
    if (v.kind == TG_J_VIEW) return views[v.u.view->what];
    return v.kind == TG_J_ITER ? v.u.iterator->type_name : names[v.kind];
}

double tg_jval_float(tg_jval v)
{
    return v.kind == TG_J_FLOAT ? v.u.f : (double)tg_jval_int(v);
}

bool tg_jval_is_true(tg_jval v)
{
    switch (v.kind) {
    case TG_J_MISSING:
    case TG_J_UNDEFINED:
    case TG_J_NONE: return false;
    case TG_J_BOOL: return v.u.b;
    case TG_J_INT: return v.u.i != 0;
    case TG_J_FLOAT: return v.u.f != 0;
    case TG_J_STR: return v.len > 0;
    case TG_J_LIST:
    case TG_J_TUPLE: return v.u.list->n > 0;
    case TG_J_DICT: return v.u.dict->n > 0;
    case TG_J_RANGE: return v.u.range->n > 0;
    case TG_J_VIEW: return v.u.view->dict->n > 0;
    case TG_J_LOOP: return v.u.loop->n > 0;
    default: return true;
    }
}

static bool is_list_equal(tg_jrun *r, const tg_jlist *a, const tg_jlist *b)
{
    if (a->n != b->n) return false;
    for (int32_t i = 0; i < a->n; i++)
        if (!tg_jval_is_equal(r, a->items[i], b->items[i])) return false;
    return true;
}

static bool is_dict_equal(tg_jrun *r, const tg_jdict *a, const tg_jdict *b)
{
    if (a->n != b->n) return false;
    for (int32_t i = 0; i < a->n; i++) {
        const tg_jval *v = tg_jdict_find(r, b, a->entries[i].key);
        if (!v || !tg_jval_is_equal(r, a->entries[i].value, *v)) return false;
    }
    return true;
}

static bool is_number_equal(tg_jval a, tg_jval b)
{
    if (tg_jval_is_int(a) && tg_jval_is_int(b)) return tg_jval_int(a) == tg_jval_int(b);
    return tg_jval_float(a) == tg_jval_float(b);
}

bool tg_jval_is_equal(tg_jrun *r, tg_jval a, tg_jval b)
{
    if (!tg_jrun_pay(r, 1)) return false;
    if (tg_jval_is_number(a) && tg_jval_is_number(b)) return is_number_equal(a, b);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case TG_J_UNDEFINED:
    case TG_J_NONE: return true;
    case TG_J_STR:
        if (a.len == b.len) tg_jrun_pay(r, a.len / 256);
        return tg_str_is_equal(tg_jval_str(a), tg_jval_str(b));
    case TG_J_LIST:
    case TG_J_TUPLE:
    case TG_J_DICT: {
        if (a.u.ptr == b.u.ptr) return true;
        if (r->n_depth <= 0) {
            tg_jrun_fail(r, TG_E_LIMIT, "the values compared are nested too deep for the budget");
            return false;
        }
        r->n_depth--;
        bool is = a.kind == TG_J_DICT ? is_dict_equal(r, a.u.dict, b.u.dict)
                                      : is_list_equal(r, a.u.list, b.u.list);
        r->n_depth++;
        return is;
    }
    case TG_J_RANGE: {
        const tg_jrange *x = a.u.range, *y = b.u.range;
        return x->n == y->n &&
               (x->n == 0 || (x->start == y->start && (x->n == 1 || x->step == y->step)));
    }
    case TG_J_METHOD:
        return a.u.method->func == b.u.method->func &&
               a.u.method->self.u.ptr == b.u.method->self.u.ptr;
    case TG_J_VIEW:
        if (a.u.view->dict == b.u.view->dict && a.u.view->what == b.u.view->what) return true;
        tg_jrun_fail(r, TG_E_UNSUPPORTED,
                     "comparing views of dictionaries is not built; use |list");
        return false;
    default: return a.u.ptr == b.u.ptr;
    }
}

bool tg_jval_is_less(tg_jrun *r, tg_jval a, tg_jval b, const char *op)
{
    if (!tg_jrun_pay(r, 1)) return false;
    if (tg_jval_is_int(a) && tg_jval_is_int(b)) return tg_jval_int(a) < tg_jval_int(b);
    if (tg_jval_is_number(a) && tg_jval_is_number(b)) return tg_jval_float(a) < tg_jval_float(b);
    if (a.kind == TG_J_STR && b.kind == TG_J_STR) {
        /* The order of UTF-8 bytes is the order of code points. */
        uint32_t n = TG_MIN(a.len, b.len);
        tg_jrun_pay(r, n / 256);
        int c = n ? memcmp(a.u.s, b.u.s, n) : 0;
        return c < 0 || (c == 0 && a.len < b.len);
    }
    if (a.kind == b.kind && (a.kind == TG_J_LIST || a.kind == TG_J_TUPLE)) {
        const tg_jlist *x = a.u.list, *y = b.u.list;
        bool is = x->n < y->n;
        if (r->n_depth <= 0) {
            tg_jrun_fail(r, TG_E_LIMIT, "the values compared are nested too deep for the budget");
            return false;
        }
        r->n_depth--;
        for (int32_t i = 0; i < x->n && i < y->n; i++)
            if (!tg_jval_is_equal(r, x->items[i], y->items[i])) {
                is = tg_jval_is_less(r, x->items[i], y->items[i], op);
                break;
            }
        r->n_depth++;
        return is;
    }
    if (a.kind == TG_J_UNDEFINED || b.kind == TG_J_UNDEFINED)
        tg_jrun_raise_undefined(r, a.kind == TG_J_UNDEFINED ? a : b);
    tg_jrun_raise(r, "'%s' not supported between instances of '%s' and '%s'", op, tg_jkind_name(a),
                  tg_jkind_name(b));
    return false;
}

bool tg_jval_is_in(tg_jrun *r, tg_jval item, tg_jval in)
{
    if (in.kind == TG_J_STR) {
        if (item.kind != TG_J_STR) {
            tg_jrun_raise(r, "'in <string>' requires string as left operand, not %s",
                          tg_jkind_name(item));
            return false;
        }
        if (item.len == 0) return true;
        tg_jrun_pay(r, in.len / 32);
        for (uint32_t i = 0; item.len <= in.len - i && i < in.len; i++) {
            const char *at = memchr(in.u.s + i, item.u.s[0], in.len - i);
            if (!at || item.len > in.len - (size_t)(at - in.u.s)) return false;
            if (memcmp(at, item.u.s, item.len) == 0) return true;
            i = (uint32_t)(at - in.u.s);
            if (!tg_jrun_pay(r, 1 + item.len / 256)) return false;
        }
        return false;
    }
    if (in.kind == TG_J_DICT) return tg_jdict_find(r, in.u.dict, item) != NULL;
    if (in.kind == TG_J_VIEW && in.u.view->what == TG_JVIEW_KEYS)
        return tg_jdict_find(r, in.u.view->dict, item) != NULL;
    tg_jwalk w;
    tg_jval x;
    if (!tg_jval_is_iterable(in)) {
        tg_jrun_raise(r, "argument of type '%s' is not iterable", tg_jkind_name(in));
        return false;
    }
    bool is = false;
    for (tg_jwalk_begin(r, &w, in); !is && tg_jwalk_next(r, &w, &x);)
        is = tg_jval_is_equal(r, x, item);
    return is;
}

/* ---- walking */

bool tg_jval_has_len(tg_jval v)
{
    return (v.kind >= TG_J_STR && v.kind <= TG_J_RANGE) || v.kind == TG_J_VIEW ||
           v.kind == TG_J_LOOP || v.kind == TG_J_UNDEFINED;
}

int64_t tg_jval_len(tg_jrun *r, tg_jval v)
{
    switch (v.kind) {
    case TG_J_UNDEFINED: return 0;
    case TG_J_STR: return tg_jstr_count(r, v);
    case TG_J_LIST:
    case TG_J_TUPLE: return v.u.list->n;
    case TG_J_DICT: return v.u.dict->n;
    case TG_J_RANGE: return v.u.range->n;
    case TG_J_VIEW: return v.u.view->dict->n;
    case TG_J_LOOP: return v.u.loop->n;
    default: tg_jrun_raise(r, "object of type '%s' has no len()", tg_jkind_name(v)); return 0;
    }
}

bool tg_jval_is_iterable(tg_jval v)
{
    return tg_jval_has_len(v) || v.kind == TG_J_ITER;
}

bool tg_jwalk_begin(tg_jrun *r, tg_jwalk *w, tg_jval v)
{
    *w = (tg_jwalk){.v = v};
    if (tg_jrun_is_failed(r)) return false;
    if (v.kind == TG_J_LOOP) {
        tg_jrun_fail(r, TG_E_UNSUPPORTED, "walking over 'loop' is not built");
        return false;
    }
    if (!tg_jval_is_iterable(v)) {
        tg_jrun_raise(r, "'%s' object is not iterable",
                      v.kind == TG_J_NONE ? "NoneType" : tg_jkind_name(v));
        return false;
    }
    if (v.kind == TG_J_STR)
        w->n = (int32_t)v.len;
    else if (v.kind == TG_J_ITER)
        w->n = v.u.iterator->list->n - v.u.iterator->next;
    else
        w->n = (int32_t)tg_jval_len(r, v);
    return true;
}

/* The end of a generator, which may be an error. */
static void end_once(tg_jrun *r, struct tg_jiterator *once)
{
    if (!once->error || once->next < once->list->n || tg_jrun_is_failed(r)) return;
    r->status = tg_fail(r->e, once->error->status, "%s", once->error->msg);
    once->error = NULL;
}

bool tg_jwalk_next(tg_jrun *r, tg_jwalk *w, tg_jval *item)
{
    if (w->i >= w->n && w->v.kind == TG_J_ITER) end_once(r, w->v.u.iterator);
    if (w->i >= w->n || !tg_jrun_pay(r, 1)) return false;
    tg_jval v = w->v;
    int32_t i = w->i++;
    switch (v.kind) {
    case TG_J_STR: {
        int n = 1;
        while (i + n < w->n && ((unsigned char)v.u.s[i + n] & 0xc0) == 0x80)
            n++;
        *item = tg_jstr((tg_str){v.u.s + i, (size_t)n}); /* of markup too, as Python has it */
        w->i = i + n;
        return true;
    }
    case TG_J_LIST:
    case TG_J_TUPLE: *item = v.u.list->items[i]; return true;
    case TG_J_DICT: *item = v.u.dict->entries[i].key; return true;
    case TG_J_RANGE: *item = tg_jint(v.u.range->start + i * v.u.range->step); return true;
    case TG_J_ITER:
        if (v.u.iterator->next >= v.u.iterator->list->n) {
            end_once(r, v.u.iterator);
            return false;
        }
        *item = v.u.iterator->list->items[v.u.iterator->next++];
        return true;
    case TG_J_VIEW: {
        const tg_jentry *x = &v.u.view->dict->entries[i];
        if (v.u.view->what == TG_JVIEW_ITEMS)
            *item = tg_jtuple2(r, x->key, x->value);
        else
            *item = v.u.view->what == TG_JVIEW_KEYS ? x->key : x->value;
        return !tg_jrun_is_failed(r);
    }
    default: return false;
    }
}

tg_jval tg_jval_to_list(tg_jrun *r, tg_jval v, uint8_t kind)
{
    tg_jwalk w;
    tg_jval item;
    if (!tg_jwalk_begin(r, &w, v)) return tg_jlist_new(r, kind, 0);
    tg_jval list = tg_jlist_new(r, kind, v.kind == TG_J_STR ? 0 : w.n);
    while (!tg_jrun_is_failed(r) && tg_jwalk_next(r, &w, &item))
        tg_jlist_add(r, list, item);
    return list;
}
