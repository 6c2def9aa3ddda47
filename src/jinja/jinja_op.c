/* SPDX-License-Identifier: Apache-2.0
 * jinja_op.c - operators, attributes, subscripts and slices, with Python's rules.
 *
 * Integers have 64 bits here and any number in the reference: what does not fit is an error, never
 * another number. */
#include "jinja/jinja.h"

#include <math.h>
#include <string.h>

/* ---- text */

/* a + b. A string that ends where the arena's free space begins is extended in place: older values
 * see the same bytes, and `s = s + x` in a loop costs what it adds. */
tg_jval tg_jstr_concat(tg_jrun *r, tg_jval a, tg_jval b)
{
    if (a.is_markup != b.is_markup) {
        if (!a.is_markup) a = tg_jstr_escape(r, a);
        if (!b.is_markup) b = tg_jstr_escape(r, b);
    }
    size_t len = (size_t)a.len + b.len;
    if (len > r->max_memory) {
        tg_jrun_fail(r, TG_E_LIMIT, "a string of %zu bytes exceeds the memory budget of %zu", len,
                     r->max_memory);
        return a;
    }
    if (b.len == 0) return a;
    if (a.len == 0) return b;
    tg_jval v = a;
    v.len = (uint32_t)len;
    v.is_ascii = a.is_ascii && b.is_ascii;
    if (r->bump == a.u.s + a.len && r->n_bump > b.len) {
        if (!tg_jrun_pay(r, b.len / 64)) return a;
        memcpy(r->bump, b.u.s, b.len);
        r->bump += b.len;
        r->n_bump -= b.len;
        return v;
    }
    if (!tg_jrun_pay(r, (int64_t)len / 64)) return a;
    /* Half again as much room, so that the next piece finds it. */
    char *p = tg_jrun_alloc_open(r, len, len / 2);
    if (!p) return a;
    memcpy(p, a.u.s, a.len);
    memcpy(p + a.len, b.u.s, b.len);
    v.u.s = p;
    return v;
}

tg_jval tg_jstr_escape(tg_jrun *r, tg_jval v)
{
    tg_jval s = tg_jval_to_str(r, v);
    if (s.is_markup) return s;
    tg_buf b = {0};
    tg_jrun_pay(r, s.len / 16);
    for (uint32_t i = 0; i < s.len; i++) {
        static const char *const names[] = {"&amp;", "&gt;", "&lt;", "&#39;", "&#34;"};
        const char *at = s.u.s[i] ? strchr("&><'\"", s.u.s[i]) : NULL;
        if (at)
            tg_buf_add_cstr(&b, names[at - "&><'\""]);
        else
            tg_buf_add_byte(&b, s.u.s[i]);
    }
    s = tg_jstr_take(r, &b);
    s.is_markup = true;
    return s;
}

static tg_jval repeat(tg_jrun *r, tg_jval v, int64_t n)
{
    size_t total;
    if (n < 0) n = 0;
    if (v.kind != TG_J_STR) {
        tg_jval list = tg_jlist_new(r, v.kind, 0);
        for (int64_t i = 0; i < n && v.u.list->n && !tg_jrun_is_failed(r); i++)
            for (int32_t k = 0; k < v.u.list->n && !tg_jrun_is_failed(r); k++)
                tg_jlist_add(r, list, v.u.list->items[k]);
        return list;
    }
    if (!tg_mul_size((size_t)n, v.len, &total) || total > r->max_memory)
        return tg_jrun_fail(r, TG_E_LIMIT,
                            "%lld times a string of %u bytes exceeds the memory budget of %zu",
                            (long long)n, v.len, r->max_memory);
    if (total == 0 || !tg_jrun_pay(r, (int64_t)total / 64)) return tg_jstr(TG_STR(""));
    char *p = tg_jrun_alloc(r, total);
    if (!p) return v;
    for (int64_t i = 0; i < n; i++)
        memcpy(p + (size_t)i * v.len, v.u.s, v.len);
    tg_jval out = v;
    out.u.s = p;
    out.len = (uint32_t)total;
    return out;
}

static tg_jval join_lists(tg_jrun *r, tg_jval a, tg_jval b)
{
    tg_jval list = tg_jlist_new(r, a.kind, a.u.list->n + b.u.list->n);
    for (int32_t i = 0; i < a.u.list->n && !tg_jrun_is_failed(r); i++)
        tg_jlist_add(r, list, a.u.list->items[i]);
    for (int32_t i = 0; i < b.u.list->n && !tg_jrun_is_failed(r); i++)
        tg_jlist_add(r, list, b.u.list->items[i]);
    return list;
}

/* ---- numbers */

static tg_jval overflow(tg_jrun *r)
{
    return tg_jrun_fail(r, TG_E_LIMIT, "an integer does not fit 64 bits");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static tg_jval int_pow(tg_jrun *r, int64_t base, int64_t n)
{
    if (n < 0 && base == 0) return tg_jrun_raise(r, "0.0 cannot be raised to a negative power");
    if (n < 0) return tg_jfloat(pow((double)base, (double)n));
    int64_t v = 1;
    for (; n > 0; n >>= 1) {
        if ((n & 1) && !tg_mul_i64(v, base, &v)) return overflow(r);
        if (n > 1 && !tg_mul_i64(base, base, &base)) return overflow(r);
    }
    return tg_jint(v);
}

static tg_jval int_binary(tg_jrun *r, tg_jop op, int64_t a, int64_t b)
{
    int64_t v = 0;
    bool is_wrong = false;
    if (b == 0 && (op == TG_JOP_DIV || op == TG_JOP_FLOORDIV || op == TG_JOP_MOD))
        return tg_jrun_raise(r, op == TG_JOP_DIV ? "division by zero"
                                                 : "integer division or modulo by zero");
    if (b == -1 && (op == TG_JOP_FLOORDIV || op == TG_JOP_MOD)) {
        if (op == TG_JOP_MOD) return tg_jint(0);
        return __builtin_sub_overflow(INT64_C(0), a, &v) ? overflow(r) : tg_jint(v);
    }
    switch ((int)op) {
    case TG_JOP_ADD: is_wrong = __builtin_add_overflow(a, b, &v); break;
    case TG_JOP_SUB: is_wrong = __builtin_sub_overflow(a, b, &v); break;
    case TG_JOP_MUL: is_wrong = __builtin_mul_overflow(a, b, &v); break;
    case TG_JOP_DIV: return tg_jfloat((double)a / (double)b);
    case TG_JOP_FLOORDIV: v = floor_div(a, b); break;
    case TG_JOP_MOD: v = a - b * floor_div(a, b); break;
    default: return int_pow(r, a, b);
    }
    return is_wrong ? overflow(r) : tg_jint(v);
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m != 0 && (m < 0) != (b < 0)) m += b;
    return m == 0 ? copysign(0.0, b) : m;
}

/* Python computes the quotient from the remainder, so that both agree, then rounds. */
static double float_floor_div(double a, double b)
{
    double q = (a - float_mod(a, b)) / b;
    if (q == 0) return copysign(0.0, a / b);
    double whole = floor(q);
    return q - whole > 0.5 ? whole + 1 : whole;
}

static tg_jval float_pow(tg_jrun *r, double a, double b)
{
    if (a == 0 && b < 0) return tg_jrun_raise(r, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && floor(b) != b)
        return tg_jrun_fail(r, TG_E_UNSUPPORTED, "complex numbers are not built");
    double v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b))
        return tg_jrun_raise(r, "numerical result out of range");
    return tg_jfloat(v);
}

static tg_jval float_binary(tg_jrun *r, tg_jop op, double a, double b)
{
    if (b == 0 && (op == TG_JOP_DIV || op == TG_JOP_FLOORDIV || op == TG_JOP_MOD))
        return tg_jrun_raise(r,
                             op == TG_JOP_MOD ? "float modulo by zero" : "float division by zero");
    switch ((int)op) {
    case TG_JOP_ADD: return tg_jfloat(a + b);
    case TG_JOP_SUB: return tg_jfloat(a - b);
    case TG_JOP_MUL: return tg_jfloat(a * b);
    case TG_JOP_DIV: return tg_jfloat(a / b);
    case TG_JOP_FLOORDIV: return tg_jfloat(float_floor_div(a, b));
    case TG_JOP_MOD: return tg_jfloat(float_mod(a, b));
    default: return float_pow(r, a, b);
    }
}

/* ---- any two values */

static const char *op_text(tg_jop op)
{
    static const char *const texts[] = {
        [TG_JOP_ADD] = "+",           [TG_JOP_SUB] = "-",
        [TG_JOP_MUL] = "*",           [TG_JOP_DIV] = "/",
        [TG_JOP_FLOORDIV] = "//",     [TG_JOP_MOD] = "%",
        [TG_JOP_POW] = "** or pow()", [TG_JOP_EQ] = "==",
        [TG_JOP_NE] = "!=",           [TG_JOP_LT] = "<",
        [TG_JOP_LE] = "<=",           [TG_JOP_GT] = ">",
        [TG_JOP_GE] = ">=",           [TG_JOP_IN] = "in",
        [TG_JOP_NOT_IN] = "not in",
    };
    return texts[op];
}

tg_jval tg_jval_binary(tg_jrun *r, tg_jop op, tg_jval a, tg_jval b)
{
    if (tg_jrun_is_failed(r)) return tg_jnone();
    if (tg_jval_is_int(a) && tg_jval_is_int(b))
        return int_binary(r, op, tg_jval_int(a), tg_jval_int(b));
    if (tg_jval_is_number(a) && tg_jval_is_number(b))
        return float_binary(r, op, tg_jval_float(a), tg_jval_float(b));
    if (op == TG_JOP_MOD && a.kind == TG_J_STR) return tg_jstr_percent(r, a, b);
    if (a.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, a);
    if (b.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, b);
    bool is_list = a.kind == TG_J_LIST || a.kind == TG_J_TUPLE;
    if (op == TG_JOP_ADD && a.kind == TG_J_STR && b.kind == TG_J_STR)
        return tg_jstr_concat(r, a, b);
    if (op == TG_JOP_ADD && is_list && a.kind == b.kind) return join_lists(r, a, b);
    if (op == TG_JOP_MUL && (a.kind == TG_J_STR || is_list) && tg_jval_is_int(b))
        return repeat(r, a, tg_jval_int(b));
    if (op == TG_JOP_MUL && tg_jval_is_int(a) &&
        (b.kind == TG_J_STR || b.kind == TG_J_LIST || b.kind == TG_J_TUPLE))
        return repeat(r, b, tg_jval_int(a));
    if (a.kind == TG_J_VIEW && b.kind == TG_J_VIEW && op == TG_JOP_SUB)
        return tg_jrun_fail(r, TG_E_UNSUPPORTED, "differences of views are not built");
    if (op == TG_JOP_ADD && a.kind == TG_J_STR)
        return tg_jrun_raise(r, "can only concatenate str (not \"%s\") to str", tg_jkind_name(b));
    return tg_jrun_raise(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op),
                         tg_jkind_name(a), tg_jkind_name(b));
}

bool tg_jval_compare(tg_jrun *r, tg_jop op, tg_jval a, tg_jval b)
{
    const char *text = op_text(op);
    switch ((int)op) {
    case TG_JOP_EQ: return tg_jval_is_equal(r, a, b);
    case TG_JOP_NE: return !tg_jval_is_equal(r, a, b);
    case TG_JOP_LT: return tg_jval_is_less(r, a, b, text);
    case TG_JOP_GT: return tg_jval_is_less(r, b, a, text);
    /* Written so that a NaN is neither. */
    case TG_JOP_LE: return tg_jval_is_less(r, a, b, text) || tg_jval_is_equal(r, a, b);
    case TG_JOP_GE: return tg_jval_is_less(r, b, a, text) || tg_jval_is_equal(r, a, b);
    case TG_JOP_IN: return tg_jval_is_in(r, a, b);
    default: return !tg_jval_is_in(r, a, b);
    }
}

tg_jval tg_jval_negate(tg_jrun *r, tg_jval v)
{
    if (v.kind == TG_J_FLOAT) return tg_jfloat(-v.u.f);
    if (tg_jval_is_int(v)) return int_binary(r, TG_JOP_SUB, 0, tg_jval_int(v));
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    return tg_jrun_raise(r, "bad operand type for unary -: '%s'", tg_jkind_name(v));
}

/* ---- attributes and subscripts */

static tg_jval macro_attribute(tg_jrun *r, tg_jval v, tg_str name)
{
    const tg_jnode *n = v.u.macro->node;
    if (tg_str_is(name, "name")) return n->text.len ? tg_jstr(n->text) : tg_jnone();
    if (tg_str_is(name, "arguments")) {
        tg_jval list = tg_jlist_new(r, TG_J_TUPLE, n->params->n);
        for (int32_t i = 0; i < n->params->n && !tg_jrun_is_failed(r); i++)
            tg_jlist_add(r, list, tg_jstr(r->t->symbols[n->params->symbols[i]]));
        return list;
    }
    if (tg_str_is(name, "caller")) return tg_jbool(n->params->has_caller);
    if (tg_str_is(name, "catch_varargs")) return tg_jbool(n->params->has_varargs);
    if (tg_str_is(name, "catch_kwargs")) return tg_jbool(n->params->has_kwargs);
    return (tg_jval){.kind = TG_J_MISSING};
}

/* Attributes that are values and no methods. */
static tg_jval value_attribute(tg_jval v, tg_str name)
{
    bool is_int = tg_jval_is_int(v);
    tg_jval self = is_int ? tg_jint(tg_jval_int(v)) : v;
    if (v.kind == TG_J_RANGE) {
        const tg_jrange *x = v.u.range;
        if (tg_str_is(name, "start")) return tg_jint(x->start);
        if (tg_str_is(name, "stop")) return tg_jint(x->stop);
        if (tg_str_is(name, "step")) return tg_jint(x->step);
    }
    if (tg_jval_is_number(v)) {
        if (tg_str_is(name, "real")) return self;
        if (tg_str_is(name, "imag")) return is_int ? tg_jint(0) : tg_jfloat(0);
        if (is_int && tg_str_is(name, "numerator")) return self;
        if (is_int && tg_str_is(name, "denominator")) return tg_jint(1);
    }
    return (tg_jval){.kind = TG_J_MISSING};
}

/* getattr(v, name): MISSING when Python's object has no such attribute. */
static tg_jval find_attribute(tg_jrun *r, tg_jval v, tg_str name)
{
    const tg_jval missing = {.kind = TG_J_MISSING};
    if (v.kind == TG_J_NAMESPACE) {
        const tg_jval *x = tg_jdict_find(r, v.u.dict, tg_jstr(name));
        return x ? *x : missing;
    }
    if (v.kind == TG_J_LOOP) return tg_jloop_get(r, v, name);
    if (v.kind == TG_J_MACRO) return macro_attribute(r, v, name);
    if (tg_jmethod_is_unsafe(v.kind, name)) {
        tg_jval u = tg_jundefined(r, tg_jkind_name(v), tg_jstr(name));
        tg_jundef *x = TG_JNEW(r, tg_jundef);
        if (!x) return u;
        *x = (tg_jundef){.of = tg_jkind_name(v), .name = tg_jstr_copy(r, name), .is_unsafe = true};
        u.u.undef = x;
        return u;
    }
    tg_jval value = value_attribute(v, name);
    if (value.kind != TG_J_MISSING) return value;
    const tg_jfunc *f = tg_jmethod_find(v.kind, name);
    if (!f || (v.kind == TG_J_FUNC && strcmp(v.u.func->name, "dict") != 0)) return missing;
    tg_jmethod *m = TG_JNEW(r, tg_jmethod);
    if (!m) return missing;
    *m = (tg_jmethod){.self = v, .func = f};
    return (tg_jval){.kind = TG_J_METHOD, .u.method = m};
}

/* obj[key]: MISSING where Python raises TypeError or LookupError. */
static tg_jval find_item(tg_jrun *r, tg_jval v, tg_jval key)
{
    const tg_jval missing = {.kind = TG_J_MISSING};
    if (v.kind == TG_J_DICT) {
        if (!tg_jval_is_hashable(r, key)) return missing;
        const tg_jval *x = tg_jdict_find(r, v.u.dict, key);
        return x ? *x : missing;
    }
    bool is_sequence =
        v.kind == TG_J_LIST || v.kind == TG_J_TUPLE || v.kind == TG_J_STR || v.kind == TG_J_RANGE;
    if (!is_sequence || !tg_jval_is_int(key)) return missing;
    int64_t n = tg_jval_len(r, v), i = tg_jval_int(key);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return missing;
    if (v.kind == TG_J_STR) return tg_jstr_cut(r, v, i, i + 1);
    if (v.kind == TG_J_RANGE) return tg_jint(v.u.range->start + i * v.u.range->step);
    return v.u.list->items[i];
}

/* Is it what the sandbox gave in place of something unsafe? */
static bool is_hidden(tg_jval undefined)
{
    return undefined.u.undef && undefined.u.undef->is_unsafe;
}

tg_jval tg_jval_get_attribute(tg_jrun *r, tg_jval v, tg_str name)
{
    /* The undefined object has a class like any other, which the sandbox hides. */
    if (v.kind == TG_J_UNDEFINED && !(tg_str_is(name, "__class__") && !is_hidden(v)))
        return tg_jrun_raise_undefined(r, v);
    tg_jval x = find_attribute(r, v, name);
    if (x.kind == TG_J_MISSING) x = find_item(r, v, tg_jstr(name));
    return x.kind == TG_J_MISSING ? tg_jundefined(r, tg_jkind_name(v), tg_jstr(name)) : x;
}

tg_jval tg_jval_get_item(tg_jrun *r, tg_jval v, tg_jval key)
{
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    tg_jval x = find_item(r, v, key);
    if (x.kind == TG_J_MISSING && key.kind == TG_J_STR) x = find_attribute(r, v, tg_jval_str(key));
    return x.kind == TG_J_MISSING ? tg_jundefined(r, tg_jkind_name(v), key) : x;
}

/* A bound of a slice, clamped as Python does; false after failing. */
static bool slice_bound(tg_jrun *r, tg_jval v, int64_t n, int64_t step, int64_t missing,
                        int64_t *out)
{
    if (v.kind == TG_J_MISSING || v.kind == TG_J_NONE) {
        *out = missing;
        return true;
    }
    if (!tg_jval_is_int(v)) {
        tg_jrun_raise(r, "slice indices must be integers or None or have an __index__ method");
        return false;
    }
    int64_t i = tg_jval_int(v);
    if (i < 0) i = i < -n ? -1 : i + n;
    if (i < 0) i = step < 0 ? -1 : 0;
    if (i >= n) i = step < 0 ? n - 1 : n;
    *out = i;
    return true;
}

enum { MAX_STEP = 1 << 20 };

/* A range again, of the items at start, start + step, ... */
static tg_jval slice_range(tg_jrun *r, const tg_jrange *of, int64_t start, int64_t stop,
                           int64_t step)
{
    int64_t whole_step;
    if (!tg_mul_i64(step, of->step, &whole_step)) return overflow(r);
    tg_jrange *x = TG_JNEW(r, tg_jrange);
    if (!x) return tg_jnone();
    step = TG_MAX(TG_MIN(step, MAX_STEP), -MAX_STEP); /* for counting, beyond any range */
    int64_t n = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    *x = (tg_jrange){.start = of->start + start * of->step,
                     .stop = of->start + stop * of->step,
                     .step = whole_step,
                     .n = (int32_t)TG_MAX(n, 0)};
    return (tg_jval){.kind = TG_J_RANGE, .u.range = x};
}

tg_jval tg_jval_slice(tg_jrun *r, tg_jval v, const tg_jval parts[3])
{
    if (tg_jrun_is_failed(r)) return tg_jnone();
    if (v.kind == TG_J_UNDEFINED) return tg_jrun_raise_undefined(r, v);
    if (v.kind == TG_J_DICT) return tg_jrun_raise(r, "unhashable type: 'slice'");
    if (v.kind != TG_J_RANGE && v.kind != TG_J_STR && v.kind != TG_J_LIST && v.kind != TG_J_TUPLE)
        return tg_jrun_raise(r, "'%s' object is not subscriptable", tg_jkind_name(v));
    int64_t n = tg_jval_len(r, v), step = 1, start, stop;
    if (parts[2].kind != TG_J_MISSING && parts[2].kind != TG_J_NONE) {
        if (!tg_jval_is_int(parts[2]))
            return tg_jrun_raise(r, "slice indices must be integers or None");
        step = tg_jval_int(parts[2]);
        if (step == 0) return tg_jrun_raise(r, "slice step cannot be zero");
        if (v.kind != TG_J_RANGE) step = TG_MAX(TG_MIN(step, n + 1), -n - 1);
    }
    if (!slice_bound(r, parts[0], n, step, step < 0 ? n - 1 : 0, &start) ||
        !slice_bound(r, parts[1], n, step, step < 0 ? -1 : n, &stop))
        return tg_jnone();
    if (v.kind == TG_J_STR && step == 1) return tg_jstr_cut(r, v, start, TG_MAX(stop, start));
    if (v.kind == TG_J_RANGE) return slice_range(r, v.u.range, start, stop, step);
    bool is_str = v.kind == TG_J_STR;
    tg_jval all = is_str ? tg_jval_to_list(r, v, TG_J_LIST) : v;
    tg_jval list = tg_jlist_new(r, is_str ? (uint8_t)TG_J_LIST : v.kind, 0);
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && !tg_jrun_is_failed(r); i += step)
        tg_jlist_add(r, list, all.u.list->items[i]);
    if (!is_str || tg_jrun_is_failed(r)) return list;
    tg_buf b = {0};
    for (int32_t i = 0; i < list.u.list->n; i++)
        tg_buf_add_str(&b, tg_jval_str(list.u.list->items[i]));
    tg_jval s = tg_jstr_take(r, &b);
    s.is_markup = v.is_markup;
    return s;
}
