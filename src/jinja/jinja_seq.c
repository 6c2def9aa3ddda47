/* SPDX-License-Identifier: Apache-2.0
 * jinja_seq.c - filters over sequences and dictionaries.
 *
 * Where the reference returns a generator, so does this: a value that can be walked once, has no
 * length and is always true. Its items are computed at once. */
#include "jinja/jinja.h"

#include <string.h>

static bool is_given(tg_jval v)
{
    return v.kind != TG_J_MISSING && v.kind != TG_J_NONE;
}

/* A generator of the reference: the items so far, and the error that ended them. */
static tg_jval generator(tg_jrun *r, tg_jval list)
{
    if (r->status != TG_E_ARGUMENT || list.kind != TG_J_LIST)
        return tg_jrun_is_failed(r) ? tg_jnone() : tg_jiterator_new(r, list, "generator");
    tg_err error = *r->e;
    *r->e = (tg_err){0};
    r->status = TG_OK;
    tg_err *kept = TG_JNEW(r, tg_err);
    tg_jval v = tg_jiterator_new(r, list, "generator");
    if (!kept || v.kind != TG_J_ITER) return tg_jnone();
    *kept = error;
    v.u.iterator->error = kept;
    return v;
}

static tg_jval all_items(tg_jrun *r, tg_jval v)
{
    return tg_jval_to_list(r, v, TG_J_LIST);
}

/* ---- attributes by path: "a.b.0" */

static tg_jval get_path(tg_jrun *r, tg_jval v, tg_jval path, tg_jval otherwise)
{
    if (path.kind != TG_J_STR) {
        if (is_given(path)) v = tg_jval_get_item(r, v, path);
        return v.kind == TG_J_UNDEFINED && is_given(otherwise) ? otherwise : v;
    }
    for (uint32_t i = 0; i <= path.len && !tg_jrun_is_failed(r);) {
        uint32_t end = i;
        bool is_number = true;
        for (; end < path.len && path.u.s[end] != '.'; end++)
            is_number &= path.u.s[end] >= '0' && path.u.s[end] <= '9';
        tg_jval key = tg_jstr((tg_str){path.u.s + i, end - i});
        int64_t number;
        if (is_number && end > i && tg_jparse_int(tg_jval_str(key), 10, &number) == 0)
            key = tg_jint(number);
        v = tg_jval_get_item(r, v, key);
        if (v.kind == TG_J_UNDEFINED && is_given(otherwise)) v = otherwise;
        i = end + 1;
    }
    return v;
}

static tg_jval ignore_case(tg_jrun *r, tg_jval v)
{
    return v.kind == TG_J_STR ? tg_jstr_map_case(r, v, TG_JCASE_LOWER) : v;
}

/* ---- one item of many */

static tg_jval do_first(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    tg_jwalk w;
    tg_jval item;
    if (!tg_jwalk_begin(r, &w, v)) return tg_jnone();
    if (tg_jwalk_next(r, &w, &item)) return item;
    return tg_jundefined_hint(r, "No first item, sequence was empty.");
}

static tg_jval do_last(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    if (v.kind == TG_J_ITER)
        return tg_jrun_raise(r, "'%s' object is not reversible", tg_jkind_name(v));
    tg_jval list = all_items(r, v);
    if (tg_jrun_is_failed(r)) return list;
    if (list.u.list->n == 0) return tg_jundefined_hint(r, "No last item, sequence was empty.");
    tg_jval last = list.u.list->items[list.u.list->n - 1];
    if (v.kind == TG_J_STR) last.is_markup = v.is_markup; /* reversed() goes by index */
    return last;
}

static tg_jval best_of(tg_jrun *r, tg_jval v, const tg_jargs *a, bool is_max)
{
    tg_jwalk w;
    tg_jval item, best = {.kind = TG_J_MISSING}, best_key = best;
    if (!tg_jwalk_begin(r, &w, v)) return tg_jnone();
    while (tg_jwalk_next(r, &w, &item)) {
        tg_jval key = get_path(r, item, a->v[1], (tg_jval){.kind = TG_J_MISSING});
        if (!tg_jval_is_true(a->v[0])) key = ignore_case(r, key);
        if (tg_jrun_is_failed(r)) break;
        if (best.kind != TG_J_MISSING && !(is_max ? tg_jval_is_less(r, best_key, key, ">")
                                                  : tg_jval_is_less(r, key, best_key, "<")))
            continue;
        best = item;
        best_key = key;
    }
    if (best.kind == TG_J_MISSING)
        return tg_jundefined_hint(r, "No aggregated item, sequence was empty.");
    return best;
}

static tg_jval do_min(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return best_of(r, v, a, false);
}

static tg_jval do_max(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return best_of(r, v, a, true);
}

/* "attribute start" */
static tg_jval do_sum(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval item, sum = a->v[1].kind == TG_J_MISSING ? tg_jint(0) : a->v[1];
    if (!tg_jwalk_begin(r, &w, v)) return tg_jnone();
    while (tg_jwalk_next(r, &w, &item))
        sum = tg_jval_binary(r, TG_JOP_ADD, sum,
                             get_path(r, item, a->v[0], (tg_jval){.kind = TG_J_MISSING}));
    return sum;
}

/* "d attribute" */
static tg_jval do_join(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval item,
        glue = a->v[0].kind == TG_J_MISSING ? tg_jstr(TG_STR("")) : tg_jval_to_str(r, a->v[0]);
    tg_buf b = {0};
    if (!tg_jwalk_begin(r, &w, v)) return tg_jnone();
    for (bool is_first = true; tg_jwalk_next(r, &w, &item); is_first = false) {
        item = get_path(r, item, a->v[1], (tg_jval){.kind = TG_J_MISSING});
        if (!is_first) tg_jval_print(r, &b, glue);
        if (!tg_jrun_is_failed(r)) tg_jval_print(r, &b, item);
        if (b.len > r->max_output)
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
    }
    return tg_jstr_take(r, &b);
}

/* ---- order */

/* Stable merge sort of `n` entries: key in .key, item in .value. */
static void sort_entries(tg_jrun *r, tg_jentry *x, tg_jentry *room, int32_t n, bool is_reverse)
{
    for (int32_t width = 1; width < n && !tg_jrun_is_failed(r); width *= 2) {
        for (int32_t from = 0; from < n; from += 2 * width) {
            int32_t mid = TG_MIN(from + width, n), end = TG_MIN(from + 2 * width, n);
            int32_t i = from, k = mid;
            for (int32_t at = from; at < end; at++) {
                bool is_right =
                    i >= mid ||
                    (k < end && (is_reverse ? tg_jval_is_less(r, x[i].key, x[k].key, "<")
                                            : tg_jval_is_less(r, x[k].key, x[i].key, "<")));
                room[at] = is_right ? x[k++] : x[i++];
            }
        }
        memcpy(x, room, (size_t)n * sizeof *x);
    }
}

/* The items of `list` ordered by keys[i]. */
static tg_jval sort_by(tg_jrun *r, tg_jval list, tg_jval keys, bool is_reverse)
{
    if (tg_jrun_is_failed(r)) return list;
    int32_t n = list.u.list->n;
    tg_jentry *x = TG_JARRAY(r, tg_jentry, n), *room = TG_JARRAY(r, tg_jentry, n);
    tg_jval out = tg_jlist_new(r, TG_J_LIST, n);
    if (!x || !room || tg_jrun_is_failed(r)) return list;
    for (int32_t i = 0; i < n; i++)
        x[i] = (tg_jentry){keys.u.list->items[i], list.u.list->items[i]};
    sort_entries(r, x, room, n, is_reverse);
    for (int32_t i = 0; i < n && !tg_jrun_is_failed(r); i++)
        tg_jlist_add(r, out, x[i].value);
    return out;
}

/* The sort key of an item: a list of values, one for each attribute of "a,b". */
static tg_jval sort_key(tg_jrun *r, tg_jval item, tg_jval attribute, bool is_cased)
{
    tg_jval key = tg_jlist_new(r, TG_J_LIST, 1), none = {.kind = TG_J_MISSING};
    uint32_t i = 0;
    do {
        tg_jval path = attribute;
        if (attribute.kind == TG_J_STR) {
            uint32_t end = i;
            while (end < attribute.len && attribute.u.s[end] != ',')
                end++;
            path = tg_jstr((tg_str){attribute.u.s + i, end - i});
            i = end + 1;
        }
        tg_jval v = get_path(r, item, path, none);
        if (!tg_jrun_is_failed(r)) tg_jlist_add(r, key, is_cased ? v : ignore_case(r, v));
    } while (attribute.kind == TG_J_STR && i <= attribute.len && !tg_jrun_is_failed(r));
    return key;
}

/* Python's sort takes an integer for `reverse`, and nothing else that is true. */
static bool is_reversed(tg_jrun *r, tg_jval v)
{
    if (v.kind == TG_J_UNDEFINED) tg_jrun_raise_undefined(r, v);
    if (v.kind != TG_J_MISSING && !tg_jval_is_int(v))
        tg_jrun_raise(r, "'%s' object cannot be interpreted as an integer", tg_jkind_name(v));
    return v.kind != TG_J_MISSING && tg_jval_is_true(v);
}

/* "reverse case_sensitive attribute" */
static tg_jval do_sort(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval list = all_items(r, v), keys = tg_jlist_new(r, TG_J_LIST, 0);
    for (int32_t i = 0; !tg_jrun_is_failed(r) && i < list.u.list->n; i++)
        tg_jlist_add(r, keys,
                     sort_key(r, list.u.list->items[i], a->v[2], tg_jval_is_true(a->v[1])));
    return sort_by(r, list, keys, is_reversed(r, a->v[0]));
}

static tg_jval sort_dict(tg_jrun *r, tg_jval v, bool is_cased, int32_t by, bool is_reverse)
{
    tg_jval list = tg_jlist_new(r, TG_J_LIST, 0), keys = tg_jlist_new(r, TG_J_LIST, 0);
    for (int32_t i = 0; !tg_jrun_is_failed(r) && i < v.u.dict->n; i++) {
        tg_jentry x = v.u.dict->entries[i];
        tg_jval key = by ? x.value : x.key;
        tg_jlist_add(r, list, tg_jtuple2(r, x.key, x.value));
        tg_jlist_add(r, keys, is_cased ? key : ignore_case(r, key));
    }
    return sort_by(r, list, keys, is_reverse);
}

tg_jval tg_jdict_sorted(tg_jrun *r, tg_jval dict)
{
    return sort_dict(r, dict, true, 0, false);
}

/* "case_sensitive by reverse" */
static tg_jval do_dictsort(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval by = a->v[1];
    bool is_value = by.kind == TG_J_STR && tg_str_is(tg_jval_str(by), "value");
    if (by.kind != TG_J_MISSING && !is_value &&
        !(by.kind == TG_J_STR && tg_str_is(tg_jval_str(by), "key")))
        return tg_jrun_raise(r, "You can only sort by either \"key\" or \"value\"");
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    if (v.kind != TG_J_DICT)
        return tg_jrun_raise(r, "'%s' object has no attribute 'items'", tg_jkind_name(v));
    return sort_dict(r, v, tg_jval_is_true(a->v[0]), is_value, is_reversed(r, a->v[2]));
}

static tg_jval do_reverse(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    tg_jval list = all_items(r, v);
    if (tg_jrun_is_failed(r)) return list;
    tg_jval out = tg_jlist_new(r, TG_J_LIST, list.u.list->n);
    tg_buf b = {0};
    for (int32_t i = list.u.list->n; i-- > 0 && !tg_jrun_is_failed(r);) {
        if (v.kind == TG_J_STR)
            tg_buf_add_str(&b, tg_jval_str(list.u.list->items[i]));
        else
            tg_jlist_add(r, out, list.u.list->items[i]);
    }
    if (v.kind == TG_J_STR) {
        tg_jval text = tg_jstr_take(r, &b);
        text.is_markup = v.is_markup;
        return text;
    }
    tg_buf_deinit(&b);
    if (tg_jrun_is_failed(r) || v.kind == TG_J_ITER) return out;
    return tg_jiterator_new(r, out, v.kind == TG_J_LIST ? "list_reverseiterator" : "reversed");
}

/* "case_sensitive attribute" */
static tg_jval do_unique(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval item, seen = tg_jdict_new(r, 0), out = tg_jlist_new(r, TG_J_LIST, 0);
    if (tg_jrun_is_failed(r) || !tg_jwalk_begin(r, &w, v)) return generator(r, out);
    while (tg_jwalk_next(r, &w, &item)) {
        tg_jval key = get_path(r, item, a->v[1], (tg_jval){.kind = TG_J_MISSING});
        if (!tg_jval_is_true(a->v[0])) key = ignore_case(r, key);
        if (tg_jrun_is_failed(r) || tg_jdict_find(r, seen.u.dict, key)) continue;
        tg_jdict_put(r, seen.u.dict, key, tg_jnone());
        tg_jlist_add(r, out, item);
    }
    return generator(r, out);
}

/* "attribute default case_sensitive" */
static tg_jval do_groupby(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval list = all_items(r, v), keys = tg_jlist_new(r, TG_J_LIST, 0);
    tg_jval out = tg_jlist_new(r, TG_J_LIST, 0), group = tg_jnone(), last = tg_jnone();
    bool is_cased = tg_jval_is_true(a->v[2]);
    for (int32_t i = 0; !tg_jrun_is_failed(r) && i < list.u.list->n; i++) {
        tg_jval key = get_path(r, list.u.list->items[i], a->v[0], a->v[1]);
        if (!tg_jrun_is_failed(r)) tg_jlist_add(r, keys, is_cased ? key : ignore_case(r, key));
    }
    list = sort_by(r, list, keys, false);
    for (int32_t i = 0; !tg_jrun_is_failed(r) && i < list.u.list->n; i++) {
        tg_jval item = list.u.list->items[i], real = get_path(r, item, a->v[0], a->v[1]);
        tg_jval key = is_cased ? real : ignore_case(r, real);
        if (group.kind != TG_J_LIST || !tg_jval_is_equal(r, key, last)) {
            group = tg_jlist_new(r, TG_J_LIST, 0);
            if (!tg_jrun_is_failed(r)) tg_jlist_add(r, out, tg_jtuple2(r, real, group));
        }
        last = key;
        if (!tg_jrun_is_failed(r)) tg_jlist_add(r, group, item);
    }
    return out;
}

/* ---- the same for every item */

static tg_jval do_list(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    return all_items(r, v);
}

static tg_jval do_items(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    (void)a;
    tg_jval out = tg_jlist_new(r, TG_J_LIST, 0);
    if (v.kind == TG_J_UNDEFINED) return generator(r, out);
    if (v.kind != TG_J_DICT) tg_jrun_raise(r, "Can only get item pairs from a mapping.");
    for (int32_t i = 0; !tg_jrun_is_failed(r) && i < v.u.dict->n; i++)
        tg_jlist_add(r, out, tg_jtuple2(r, v.u.dict->entries[i].key, v.u.dict->entries[i].value));
    return generator(r, out);
}

/* The arguments of a call without the first n. */
static tg_jargs rest_after(const tg_jargs *a, int32_t n)
{
    tg_jargs raw = {.rest = a->rest + n, .n_rest = a->n_rest - n};
    raw.names = a->names;
    raw.kw = a->kw;
    raw.n_kw = a->n_kw;
    return raw;
}

/* Ends a generator before its first item. */
#define TG_STOP(r, out, ...) (tg_jrun_raise((r), __VA_ARGS__), generator((r), (out)))

static tg_jval map_attribute(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval item, path = {.kind = TG_J_MISSING}, otherwise = path;
    tg_jval out = tg_jlist_new(r, TG_J_LIST, 0);
    for (int32_t i = 0; i < a->n_kw; i++) {
        tg_str name = tg_jval_str(a->names[i]);
        if (tg_str_is(name, "attribute"))
            path = a->kw[i];
        else if (tg_str_is(name, "default"))
            otherwise = a->kw[i];
        else
            return TG_STOP(r, out, "Unexpected keyword argument '%.*s'", (int)TG_MIN(name.len, 60u),
                           name.ptr);
    }
    if (path.kind == TG_J_MISSING) return TG_STOP(r, out, "map requires a filter argument");
    if (!tg_jwalk_begin(r, &w, v)) return generator(r, out);
    while (tg_jwalk_next(r, &w, &item))
        tg_jlist_add(r, out, get_path(r, item, path, otherwise));
    return generator(r, out);
}

static tg_jval do_map(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval item, out = tg_jlist_new(r, TG_J_LIST, 0);
    if (tg_jrun_is_failed(r) || !tg_jval_is_true(v)) return generator(r, out);
    if (a->n_rest == 0) return map_attribute(r, v, a);
    if (a->rest[0].kind != TG_J_STR) return TG_STOP(r, out, "map needs the name of a filter");
    const tg_jfunc *f = tg_jfilter_find(tg_jval_str(a->rest[0]));
    if (!f)
        return TG_STOP(r, out, "the filter '%.*s' does not exist", (int)TG_MIN(a->rest[0].len, 60u),
                       a->rest[0].u.s);
    tg_jargs raw = rest_after(a, 1);
    if (!tg_jwalk_begin(r, &w, v)) return generator(r, out);
    while (tg_jwalk_next(r, &w, &item))
        tg_jlist_add(r, out, tg_jrun_apply(r, f, "filter", item, &raw));
    return generator(r, out);
}

/* select, reject, and the same by an attribute. */
static tg_jval choose(tg_jrun *r, tg_jval v, const tg_jargs *a, bool is_output_row,
                      bool by_attribute)
{
    tg_jwalk w;
    tg_jval item, out = tg_jlist_new(r, TG_J_LIST, 0), path = {.kind = TG_J_MISSING};
    int32_t n = by_attribute ? 1 : 0;
    const tg_jfunc *f = NULL;
    if (tg_jrun_is_failed(r) || !tg_jval_is_true(v)) return generator(r, out);
    if (a->n_rest < n) return TG_STOP(r, out, "Missing parameter for attribute name");
    if (by_attribute) path = a->rest[0];
    tg_jargs raw = {.rest = NULL};
    if (a->n_rest > n) {
        tg_jval name = a->rest[n];
        if (name.kind != TG_J_STR) return TG_STOP(r, out, "expected the name of a test");
        f = tg_jtest_find(tg_jval_str(name));
        if (!f)
            return TG_STOP(r, out, "the test '%.*s' does not exist", (int)TG_MIN(name.len, 60u),
                           name.u.s);
        raw = rest_after(a, n + 1);
    }
    if (!tg_jwalk_begin(r, &w, v)) return generator(r, out);
    while (tg_jwalk_next(r, &w, &item)) {
        tg_jval x = get_path(r, item, path, (tg_jval){.kind = TG_J_MISSING});
        if (f) x = tg_jrun_apply(r, f, "test", x, &raw);
        if (tg_jval_is_true(x) == is_output_row) tg_jlist_add(r, out, item);
    }
    return generator(r, out);
}

static tg_jval do_select(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return choose(r, v, a, true, false);
}

static tg_jval do_reject(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return choose(r, v, a, false, false);
}

static tg_jval do_selectattr(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return choose(r, v, a, true, true);
}

static tg_jval do_rejectattr(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    return choose(r, v, a, false, true);
}

/* "linecount fill_with" */
static tg_jval do_batch(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jwalk w;
    tg_jval item, out = tg_jlist_new(r, TG_J_LIST, 0), row = tg_jnone();
    if (!tg_jval_is_int(a->v[0])) return TG_STOP(r, out, "batch needs a number of items");
    int64_t size = tg_jval_int(a->v[0]);
    if (tg_jrun_is_failed(r) || !tg_jwalk_begin(r, &w, v)) return generator(r, out);
    while (tg_jwalk_next(r, &w, &item)) {
        if (row.kind != TG_J_LIST || row.u.list->n == size) {
            row = tg_jlist_new(r, TG_J_LIST, 0);
            if (tg_jrun_is_failed(r)) break;
            tg_jlist_add(r, out, row);
        }
        tg_jlist_add(r, row, item);
    }
    while (is_given(a->v[1]) && row.kind == TG_J_LIST && row.u.list->n < size &&
           !tg_jrun_is_failed(r))
        tg_jlist_add(r, row, a->v[1]);
    return generator(r, out);
}

/* "slices fill_with" */
static tg_jval do_slice(tg_jrun *r, tg_jval v, const tg_jargs *a)
{
    tg_jval list = all_items(r, v), out = tg_jlist_new(r, TG_J_LIST, 0);
    if (!tg_jval_is_int(a->v[0])) return TG_STOP(r, out, "slice needs a number of slices");
    int64_t n_slices = tg_jval_int(a->v[0]);
    if (n_slices == 0) return TG_STOP(r, out, "integer division or modulo by zero");
    if (tg_jrun_is_failed(r)) return generator(r, out);
    int64_t n = list.u.list->n, size = n / TG_MAX(n_slices, 1), n_longer = n - size * n_slices;
    int32_t at = 0;
    for (int64_t s = 0; s < n_slices && !tg_jrun_is_failed(r); s++) {
        tg_jval row = tg_jlist_new(r, TG_J_LIST, 0);
        for (int64_t i = 0; i < size + (s < n_longer) && !tg_jrun_is_failed(r); i++)
            tg_jlist_add(r, row, list.u.list->items[at++]);
        if (!tg_jrun_is_failed(r) && is_given(a->v[1]) && s >= n_longer)
            tg_jlist_add(r, row, a->v[1]);
        if (!tg_jrun_is_failed(r)) tg_jlist_add(r, out, row);
    }
    return generator(r, out);
}

const tg_jfunc tg_jseq_filters[] = {
    {"batch", do_batch, "linecount fill_with", 1, 0},
    {"dictsort", do_dictsort, "case_sensitive by reverse", 0, 0},
    {"first", do_first, "", 0, 0},
    {"groupby", do_groupby, "attribute default case_sensitive", 1, 0},
    {"items", do_items, "", 0, 0},
    {"join", do_join, "d attribute", 0, 0},
    {"last", do_last, "", 0, 0},
    {"list", do_list, "", 0, 0},
    {"map", do_map, "*", 0, 0},
    {"max", do_max, "case_sensitive attribute", 0, 0},
    {"min", do_min, "case_sensitive attribute", 0, 0},
    {"reject", do_reject, "*", 0, 0},
    {"rejectattr", do_rejectattr, "*", 0, 0},
    {"reverse", do_reverse, "", 0, 0},
    {"select", do_select, "*", 0, 0},
    {"selectattr", do_selectattr, "*", 0, 0},
    {"slice", do_slice, "slices fill_with", 1, 0},
    {"sort", do_sort, "reverse case_sensitive attribute", 0, 0},
    {"sum", do_sum, "attribute start", 0, 0},
    {"unique", do_unique, "case_sensitive attribute", 0, 0},
    {0},
};
