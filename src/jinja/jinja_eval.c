/* SPDX-License-Identifier: Apache-2.0
 * jinja_eval.c - one rendering: the tree, a context and budgets in; text out.
 *
 * Scopes are Jinja's: loops, macros, with, block-set, filter and call blocks open one; `if` does
 * not. A name is looked up through the scopes where the code stands (not where it is called from),
 * then in the context, then among the global functions.
 *
 * One corner differs: jinja2 decides at compile time where a name lives. A name of the context that
 * an outer scope sets unconditionally, later in the source and without having read it before, is
 * undefined in inner scopes until then; here it is still the context's.
 *
 * Output goes to one buffer. Captured output (macros, set blocks) is the tail of that buffer since
 * a mark, moved into a value, so a failure never leaves a buffer behind. */
#include "jinja/jinja.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow;

static flow exec(tg_jrun *r, const tg_jnode *n);

/* A level of nesting; true is paired with r->n_depth++. */
static bool enter(tg_jrun *r)
{
    if (!tg_jrun_pay(r, 1)) return false;
    if (r->n_depth <= 0) {
        tg_jrun_fail(r, TG_E_LIMIT, "the template is nested too deep, or calls itself without end");
        return false;
    }
    r->n_depth--;
    return true;
}

static void emit(tg_jrun *r, tg_str s)
{
    if (!tg_jrun_pay(r, (int64_t)s.len / 64)) return;
    if (r->out->len - r->out_start + s.len > r->max_output) {
        tg_jrun_fail(r, TG_E_LIMIT, "the rendered text exceeds its limit of %zu bytes",
                     r->max_output);
        return;
    }
    tg_buf_add_str(r->out, s);
}

/* Takes what was written since `mark` out of the buffer. */
static tg_jval take_output(tg_jrun *r, size_t mark)
{
    tg_jval v = tg_jstr(TG_STR(""));
    if (!tg_jrun_is_failed(r) && r->out->len > mark)
        v = tg_jstr_copy(r, (tg_str){r->out->ptr + mark, r->out->len - mark});
    if (r->out->len > mark) {
        r->out->len = mark;
        r->out->ptr[mark] = 0;
    }
    return v;
}

/* ---- scopes */

static tg_jscope *push_scope(tg_jrun *r, tg_jscope *parent)
{
    tg_jscope *s = TG_JNEW(r, tg_jscope);
    if (!s) return parent; /* failed: nothing is looked up any more */
    s->parent = parent;
    return r->scope = s;
}

static tg_jval *find_binding(tg_jrun *r, tg_jscope *s, int32_t symbol)
{
    tg_jrun_pay(r, s->n / 16);
    for (int32_t i = 0; i < s->n; i++)
        if (s->vars[i].symbol == symbol) return &s->vars[i].value;
    return NULL;
}

static void bind(tg_jrun *r, tg_jscope *s, int32_t symbol, tg_jval v)
{
    tg_jval *old = find_binding(r, s, symbol);
    if (old) {
        *old = v;
        return;
    }
    if (s->n == s->size) {
        int32_t size = s->size ? s->size * 2 : 4;
        struct tg_jbinding *vars = TG_JARRAY(r, struct tg_jbinding, size);
        if (!vars) return;
        if (s->n) memcpy(vars, s->vars, (size_t)s->n * sizeof *vars);
        s->vars = vars;
        s->size = size;
    }
    s->vars[s->n++] = (struct tg_jbinding){symbol, v};
}

static tg_jval look_up(tg_jrun *r, int32_t symbol)
{
    for (tg_jscope *s = r->scope; s; s = s->parent) {
        const tg_jval *v = find_binding(r, s, symbol);
        if (v) return *v;
        if (!tg_jrun_pay(r, 1)) return tg_jnone();
    }
    tg_jval *cached = &r->globals[symbol];
    if (cached->kind != TG_J_MISSING) return *cached;
    tg_str name = r->t->symbols[symbol];
    const json_t *v = NULL;
    char key[256];
    if (r->context && name.len < sizeof key) {
        memcpy(key, name.ptr, name.len);
        key[name.len] = 0;
        v = json_object_get(r->context, key);
    }
    const tg_jfunc *f = v ? NULL : tg_jglobal_find(name);
    if (v)
        *cached = tg_jval_from_json(r, v);
    else if (f)
        *cached = (tg_jval){.kind = TG_J_FUNC, .u.func = f};
    else
        *cached = tg_jundefined(r, NULL, tg_jstr(name));
    return *cached;
}

static void assign(tg_jrun *r, tg_jscope *s, const tg_jnode *target, tg_jval v);

static void unpack(tg_jrun *r, tg_jscope *s, const tg_jnode *target, tg_jval v)
{
    tg_jwalk w;
    tg_jval item;
    int32_t n = 0;
    if (v.kind != TG_J_UNDEFINED && !tg_jval_is_iterable(v)) {
        tg_jrun_raise(r, "cannot unpack non-iterable %s object", tg_jkind_name(v));
        return;
    }
    if (!tg_jwalk_begin(r, &w, v)) return;
    while (n < target->n_kids && tg_jwalk_next(r, &w, &item))
        assign(r, s, target->kids[n++], item);
    if (n < target->n_kids)
        tg_jrun_raise(r, "not enough values to unpack (expected %d, got %d)", target->n_kids, n);
    else if (tg_jwalk_next(r, &w, &item))
        tg_jrun_raise(r, "too many values to unpack (expected %d)", target->n_kids);
}

static void assign(tg_jrun *r, tg_jscope *s, const tg_jnode *target, tg_jval v)
{
    if (tg_jrun_is_failed(r)) return;
    if (target->kind == TG_JN_NAME) {
        bind(r, s, target->symbol, v);
    } else if (target->kind == TG_JN_TUPLE) {
        unpack(r, s, target, v);
    } else {
        tg_jval ns = look_up(r, target->symbol);
        r->pos = target->pos;
        if (ns.kind != TG_J_NAMESPACE)
            tg_jrun_raise(r, "cannot assign attribute on non-namespace object");
        else if (target->value.len && target->value.u.s[0] == '_')
            tg_jrun_raise(r, "attributes of a namespace cannot begin with an underscore: '%.*s'",
                          (int)TG_MIN(target->value.len, 60u), target->value.u.s);
        else
            tg_jdict_put(r, ns.u.dict, target->value, v);
    }
}

/* ---- calls */

static tg_jval eval_with(tg_jrun *r, const tg_jnode *n, tg_jval input);

/* Index of a keyword, or -1. */
static int32_t find_keyword(const tg_jargs *raw, tg_str name)
{
    for (int32_t i = 0; i < raw->n_kw; i++)
        if (tg_str_is_equal(tg_jval_str(raw->names[i]), name)) return i;
    return -1;
}

/* Names that a macro's body uses beyond its parameters. */
static void bind_extras(tg_jrun *r, tg_jscope *s, const tg_jparams *ps, const tg_jargs *raw,
                        const bool *is_used)
{
    if (ps->has_varargs) {
        tg_jval rest = tg_jlist_new(r, TG_J_TUPLE, 0);
        for (int32_t i = ps->n; i < raw->n_rest && !tg_jrun_is_failed(r); i++)
            tg_jlist_add(r, rest, raw->rest[i]);
        bind(r, s, TG_JSYM_VARARGS, rest);
    }
    if (ps->has_kwargs) {
        tg_jval kw = tg_jdict_new(r, 0);
        for (int32_t i = 0; i < raw->n_kw && !tg_jrun_is_failed(r); i++)
            if (!is_used[i]) tg_jdict_put(r, kw.u.dict, raw->names[i], raw->kw[i]);
        bind(r, s, TG_JSYM_KWARGS, kw);
    }
}

enum { MAX_MACRO_KW = 256 };

/* Binds arguments to a macro's parameters in `s`; defaults are evaluated there, left to right. */
static void bind_macro_arguments(tg_jrun *r, tg_jscope *s, const tg_jnode *n, const tg_jargs *raw)
{
    const tg_jparams *ps = n->params;
    bool is_used[MAX_MACRO_KW] = {false}, has_explicit_caller = false;
    if (raw->n_kw > MAX_MACRO_KW) {
        tg_jrun_fail(r, TG_E_LIMIT, "a macro is called with %d keywords", raw->n_kw);
        return;
    }
    for (int32_t i = 0; i < ps->n && !tg_jrun_is_failed(r); i++) {
        int32_t k = i < raw->n_rest ? -1 : find_keyword(raw, r->t->symbols[ps->symbols[i]]);
        has_explicit_caller |= ps->symbols[i] == TG_JSYM_CALLER;
        if (i < raw->n_rest) {
            bind(r, s, ps->symbols[i], raw->rest[i]);
        } else if (k >= 0) {
            is_used[k] = true;
            bind(r, s, ps->symbols[i], raw->kw[k]);
        } else if (ps->defaults[i]) {
            bind(r, s, ps->symbols[i], tg_jrun_eval(r, ps->defaults[i]));
        } else {
            bind(r, s, ps->symbols[i],
                 tg_jundefined(r, NULL, tg_jstr(r->t->symbols[ps->symbols[i]])));
        }
    }
    int32_t k = find_keyword(raw, TG_STR("caller"));
    if (ps->has_caller && !has_explicit_caller) {
        bind(r, s, TG_JSYM_CALLER,
             k >= 0 ? raw->kw[k] : tg_jundefined_hint(r, "No caller defined"));
        if (k >= 0) is_used[k] = true;
    }
    bind_extras(r, s, ps, raw, is_used);
    for (int32_t i = 0; i < raw->n_kw && !ps->has_kwargs; i++)
        if (!is_used[i])
            tg_jrun_raise(r, "macro '%.*s' takes no keyword argument '%.*s'",
                          (int)TG_MIN(n->text.len, 60u), n->text.ptr,
                          (int)TG_MIN(raw->names[i].len, 60u), raw->names[i].u.s);
    if (raw->n_rest > ps->n && !ps->has_varargs)
        tg_jrun_raise(r, "macro '%.*s' takes not more than %d argument(s)",
                      (int)TG_MIN(n->text.len, 60u), n->text.ptr, ps->n);
}

static tg_jval call_macro(tg_jrun *r, const tg_jmacro *m, const tg_jargs *raw)
{
    if (!enter(r)) return tg_jnone();
    tg_jscope *outer = r->scope;
    size_t mark = r->out->len;
    tg_jscope *s = push_scope(r, m->scope);
    bind_macro_arguments(r, s, m->node, raw);
    if (!tg_jrun_is_failed(r)) exec(r, m->node->a);
    r->scope = outer;
    r->n_depth++;
    return take_output(r, mark);
}

tg_jval tg_jrun_call(tg_jrun *r, tg_jval callee, tg_jargs *raw)
{
    if (tg_jrun_is_failed(r)) return tg_jnone();
    switch (callee.kind) {
    case TG_J_FUNC: return tg_jrun_apply(r, callee.u.func, "function", tg_jnone(), raw);
    case TG_J_METHOD:
        return tg_jrun_apply(r, callee.u.method->func, "method", callee.u.method->self, raw);
    case TG_J_MACRO: return call_macro(r, callee.u.macro, raw);
    case TG_J_LOOP: return tg_jloop_call(r, callee, raw);
    case TG_J_UNDEFINED: return tg_jrun_raise_undefined(r, callee);
    default: return tg_jrun_raise(r, "'%s' object is not callable", tg_jkind_name(callee));
    }
}

static tg_jval eval_call(tg_jrun *r, const tg_jnode *n, const tg_jval *caller)
{
    tg_jargs raw;
    tg_jval callee = tg_jrun_eval(r, n->a);
    tg_jrun_eval_arguments(r, n->call, &raw);
    if (caller && !tg_jrun_is_failed(r)) {
        /* One keyword more, behind the others. */
        tg_jval *both = TG_JARRAY(r, tg_jval, (raw.n_kw + 1) * 2);
        if (!both) return tg_jnone();
        if (raw.n_kw) {
            memcpy(both, raw.names, (size_t)raw.n_kw * sizeof *both);
            memcpy(both + raw.n_kw + 1, raw.kw, (size_t)raw.n_kw * sizeof *both);
        }
        both[raw.n_kw] = tg_jstr(TG_STR("caller"));
        both[raw.n_kw * 2 + 1] = *caller;
        raw.names = both;
        raw.kw = both + raw.n_kw + 1;
        raw.n_kw++;
    }
    r->pos = n->pos;
    return tg_jrun_call(r, callee, &raw);
}

/* ---- expressions */

static tg_jval eval_kids(tg_jrun *r, const tg_jnode *n, uint8_t kind)
{
    tg_jval list = tg_jlist_new(r, kind, n->n_kids);
    for (int32_t i = 0; i < n->n_kids && !tg_jrun_is_failed(r); i++)
        tg_jlist_add(r, list, tg_jrun_eval(r, n->kids[i]));
    return list;
}

static tg_jval eval_dict(tg_jrun *r, const tg_jnode *n)
{
    tg_jval d = tg_jdict_new(r, n->n_kids / 2);
    for (int32_t i = 0; i + 1 < n->n_kids && !tg_jrun_is_failed(r); i += 2) {
        tg_jval key = tg_jrun_eval(r, n->kids[i]);
        tg_jval value = tg_jrun_eval(r, n->kids[i + 1]);
        r->pos = n->pos;
        if (!tg_jrun_is_failed(r)) tg_jdict_put(r, d.u.dict, key, value);
    }
    return d;
}

static tg_jval eval_concat(tg_jrun *r, const tg_jnode *n)
{
    tg_jval v = tg_jstr(TG_STR(""));
    for (int32_t i = 0; i < n->n_kids && !tg_jrun_is_failed(r); i++) {
        tg_jval item = tg_jval_to_str(r, tg_jrun_eval(r, n->kids[i]));
        item.is_markup = false;
        if (!tg_jrun_is_failed(r)) v = i ? tg_jstr_concat(r, v, item) : item;
    }
    return v;
}

static tg_jval eval_compare(tg_jrun *r, const tg_jnode *n)
{
    tg_jval left = tg_jrun_eval(r, n->a);
    for (int32_t i = 0; i < n->n_kids && !tg_jrun_is_failed(r); i++) {
        tg_jval right = tg_jrun_eval(r, n->kids[i]);
        r->pos = n->pos;
        if (tg_jrun_is_failed(r) || !tg_jval_compare(r, n->ops[i], left, right))
            return tg_jbool(false);
        left = right;
    }
    return tg_jbool(true);
}

static tg_jval eval_subscript(tg_jrun *r, const tg_jnode *n)
{
    tg_jval of = tg_jrun_eval(r, n->a), parts[3] = {{.kind = TG_J_MISSING}};
    if (n->b->kind != TG_JN_SLICE) {
        tg_jval key = tg_jrun_eval(r, n->b);
        r->pos = n->pos;
        return tg_jrun_is_failed(r) ? tg_jnone() : tg_jval_get_item(r, of, key);
    }
    for (int i = 0; i < 3; i++)
        if (n->b->kids[i]) parts[i] = tg_jrun_eval(r, n->b->kids[i]);
    r->pos = n->pos;
    return tg_jval_slice(r, of, parts);
}

/* A filter or test with its input. */
static tg_jval eval_apply(tg_jrun *r, const tg_jnode *n, tg_jval input)
{
    const char *what = n->kind == TG_JN_FILTER ? "filter" : "test";
    tg_jargs raw;
    tg_jrun_eval_arguments(r, n->call, &raw);
    r->pos = n->pos;
    if (tg_jrun_is_failed(r)) return tg_jnone();
    if (!n->func)
        return tg_jrun_raise(r, "the %s '%.*s' does not exist", what, (int)TG_MIN(n->text.len, 60u),
                             n->text.ptr);
    return tg_jrun_apply(r, n->func, what, input, &raw);
}

/* A chain of filters whose first input is given. */
static tg_jval eval_with(tg_jrun *r, const tg_jnode *n, tg_jval input)
{
    if (!n) return input;
    if (!enter(r)) return tg_jnone();
    tg_jval v = eval_apply(r, n, eval_with(r, n->a, input));
    r->n_depth++;
    return v;
}

static tg_jval eval_node(tg_jrun *r, const tg_jnode *n)
{
    tg_jval a, b;
    switch (n->kind) {
    case TG_JN_CONST: return n->value;
    case TG_JN_NAME: return look_up(r, n->symbol);
    case TG_JN_LIST: return eval_kids(r, n, TG_J_LIST);
    case TG_JN_TUPLE: return eval_kids(r, n, TG_J_TUPLE);
    case TG_JN_DICT: return eval_dict(r, n);
    case TG_JN_GETATTR:
        a = tg_jrun_eval(r, n->a);
        r->pos = n->pos;
        return tg_jrun_is_failed(r) ? a : tg_jval_get_attribute(r, a, n->text);
    case TG_JN_GETITEM: return eval_subscript(r, n);
    case TG_JN_CALL: return eval_call(r, n, NULL);
    case TG_JN_FILTER:
    case TG_JN_TEST: a = tg_jrun_eval(r, n->a); return eval_apply(r, n, a);
    case TG_JN_COND:
        if (tg_jval_is_true(tg_jrun_eval(r, n->b))) return tg_jrun_eval(r, n->a);
        if (n->c) return tg_jrun_eval(r, n->c);
        return tg_jundefined_hint(
            r, "the inline if-expression evaluated to false and no else section was defined");
    case TG_JN_OR: a = tg_jrun_eval(r, n->a); return tg_jval_is_true(a) ? a : tg_jrun_eval(r, n->b);
    case TG_JN_AND:
        a = tg_jrun_eval(r, n->a);
        return tg_jval_is_true(a) ? tg_jrun_eval(r, n->b) : a;
    case TG_JN_NOT: return tg_jbool(!tg_jval_is_true(tg_jrun_eval(r, n->a)));
    case TG_JN_COMPARE: return eval_compare(r, n);
    case TG_JN_CONCAT: return eval_concat(r, n);
    case TG_JN_BINARY:
        a = tg_jrun_eval(r, n->a);
        b = tg_jrun_eval(r, n->b);
        r->pos = n->pos;
        return tg_jval_binary(r, n->op, a, b);
    case TG_JN_NEG:
    case TG_JN_POS:
        a = tg_jrun_eval(r, n->a);
        r->pos = n->pos;
        b = tg_jval_negate(r, a);
        return n->kind == TG_JN_NEG || tg_jrun_is_failed(r) ? b : tg_jval_negate(r, b);
    case TG_JN_SLICE:
    case TG_JN_BODY:
    case TG_JN_DATA:
    case TG_JN_PRINT:
    case TG_JN_IF:
    case TG_JN_FOR:
    case TG_JN_SET:
    case TG_JN_SET_BLOCK:
    case TG_JN_NSREF:
    case TG_JN_MACRO:
    case TG_JN_CALL_BLOCK:
    case TG_JN_FILTER_BLOCK:
    case TG_JN_WITH:
    case TG_JN_SCOPE:
    case TG_JN_BLOCK:
    case TG_JN_BREAK:
    case TG_JN_CONTINUE: break;
    }
    TG_ASSERT(n->kind < TG_JN_BODY && "a statement where the parser puts expressions");
    return tg_jnone();
}

tg_jval tg_jrun_eval(tg_jrun *r, const tg_jnode *n)
{
    if (n->kind == TG_JN_CONST) return n->value;
    if (!enter(r)) return tg_jnone();
    r->pos = n->pos;
    tg_jval v = eval_node(r, n);
    r->n_depth++;
    return v;
}

/* ---- loops */

/* The items that pass the loop's `if`, which sees the target but no `loop`. */
static tg_jval filter_items(tg_jrun *r, const tg_jnode *n, tg_jscope *outer, tg_jval v)
{
    tg_jwalk w;
    tg_jval item, list = tg_jlist_new(r, TG_J_LIST, 0);
    if (tg_jrun_is_failed(r) || !tg_jwalk_begin(r, &w, v)) return list;
    while (tg_jwalk_next(r, &w, &item)) {
        tg_jscope *s = push_scope(r, outer);
        assign(r, s, n->a, item);
        if (!tg_jrun_is_failed(r) && tg_jval_is_true(tg_jrun_eval(r, n->c)))
            tg_jlist_add(r, list, item);
    }
    r->scope = outer;
    return list;
}

static void exec_else(tg_jrun *r, const tg_jnode *n, tg_jscope *outer)
{
    if (!n->kids[1] || tg_jrun_is_failed(r)) return;
    push_scope(r, outer);
    exec(r, n->kids[1]);
    r->scope = outer;
}

/* Runs the loop over `v` with its body standing in `outer`. */
static void run_loop(tg_jrun *r, const tg_jnode *n, tg_jscope *outer, tg_jval v, int32_t depth0)
{
    tg_jscope *saved = r->scope;
    r->scope = outer;
    if (n->c) v = filter_items(r, n, outer, v);
    tg_jloop *l = TG_JNEW(r, tg_jloop);
    if (!l || !tg_jwalk_begin(r, &l->walk, v)) {
        r->scope = saved;
        return;
    }
    l->node = n;
    l->scope = outer;
    l->depth0 = depth0;
    l->index0 = -1;
    l->n = v.kind == TG_J_STR ? (int32_t)tg_jstr_count(r, v) : l->walk.n;
    l->has_next = tg_jwalk_next(r, &l->walk, &l->next);
    tg_jscope *s = NULL;
    bool is_any_whole = false;
    while (l->has_next && tg_jrun_pay(r, 1)) {
        l->previous = l->current;
        l->current = l->next;
        l->index0++;
        l->has_next = tg_jwalk_next(r, &l->walk, &l->next);
        /* The scope of the last round serves again, unless a macro has kept it. */
        if (!s || s->is_kept)
            s = push_scope(r, outer);
        else
            s->n = 0;
        r->scope = s;
        bind(r, s, TG_JSYM_LOOP, (tg_jval){.kind = TG_J_LOOP, .u.loop = l});
        assign(r, s, n->a, l->current);
        flow f = tg_jrun_is_failed(r) ? FLOW_BREAK : exec(r, n->kids[0]);
        is_any_whole |= f == FLOW_NEXT;
        if (f == FLOW_BREAK) break;
    }
    r->scope = outer;
    /* As in the reference, a round that was left early does not count. */
    if (!is_any_whole) exec_else(r, n, outer);
    r->scope = saved;
}

tg_jval tg_jloop_call(tg_jrun *r, tg_jval loop, const tg_jargs *raw)
{
    const tg_jloop *l = loop.u.loop;
    if (!l->node->is_recursive)
        return tg_jrun_raise(r,
                             "The loop must have the 'recursive' marker to be called recursively.");
    if (raw->n_rest != 1 || raw->n_kw)
        return tg_jrun_raise(r, "a recursive loop is called with one argument");
    if (!enter(r)) return tg_jnone();
    size_t mark = r->out->len;
    run_loop(r, l->node, l->scope, raw->rest[0], l->depth0 + 1);
    r->n_depth++;
    return take_output(r, mark);
}

/* ---- statements */

static flow exec_body(tg_jrun *r, const tg_jnode *n)
{
    for (int32_t i = 0; i < n->n_kids && !tg_jrun_is_failed(r); i++) {
        flow f = exec(r, n->kids[i]);
        if (f != FLOW_NEXT) return f;
    }
    return tg_jrun_is_failed(r) ? FLOW_BREAK : FLOW_NEXT;
}

static void exec_print(tg_jrun *r, const tg_jnode *n)
{
    for (int32_t i = 0; i < n->n_kids && !tg_jrun_is_failed(r); i++) {
        tg_jval v = tg_jrun_eval(r, n->kids[i]);
        r->pos = n->kids[i]->pos;
        if (!tg_jrun_is_failed(r)) v = tg_jval_to_str(r, v);
        if (!tg_jrun_is_failed(r)) emit(r, tg_jval_str(v));
    }
}

static flow exec_if(tg_jrun *r, const tg_jnode *n)
{
    int32_t i = 0;
    for (; i + 1 < n->n_kids && !tg_jrun_is_failed(r); i += 2)
        if (tg_jval_is_true(tg_jrun_eval(r, n->kids[i])) && !tg_jrun_is_failed(r))
            return exec(r, n->kids[i + 1]);
    return i < n->n_kids && !tg_jrun_is_failed(r) ? exec(r, n->kids[i]) : FLOW_NEXT;
}

/* A body in a scope of its own under `parent`. */
static flow exec_scoped(tg_jrun *r, const tg_jnode *body, tg_jscope *parent)
{
    tg_jscope *outer = r->scope;
    push_scope(r, parent);
    flow f = tg_jrun_is_failed(r) ? FLOW_BREAK : exec(r, body);
    r->scope = outer;
    return f;
}

/* A body whose text becomes a value, through filters if there are any. */
static flow exec_captured(tg_jrun *r, const tg_jnode *body, const tg_jnode *filters, tg_jval *out)
{
    size_t mark = r->out->len;
    flow f = exec_scoped(r, body, r->scope);
    *out = take_output(r, mark);
    if (filters && !tg_jrun_is_failed(r) && f == FLOW_NEXT) *out = eval_with(r, filters, *out);
    return f;
}

static flow exec_with(tg_jrun *r, const tg_jnode *n)
{
    tg_jscope *outer = r->scope;
    tg_jscope *s = push_scope(r, outer);
    for (int32_t i = 0; i + 1 < n->n_kids && !tg_jrun_is_failed(r); i += 2) {
        r->scope = outer;
        tg_jval v = tg_jrun_eval(r, n->kids[i + 1]);
        r->scope = s;
        assign(r, s, n->kids[i], v);
    }
    flow f = tg_jrun_is_failed(r) ? FLOW_BREAK : exec(r, n->a);
    r->scope = outer;
    return f;
}

static tg_jval new_macro(tg_jrun *r, const tg_jnode *n)
{
    tg_jmacro *m = TG_JNEW(r, tg_jmacro);
    if (!m) return tg_jnone();
    *m = (tg_jmacro){.node = n, .scope = r->scope};
    for (tg_jscope *s = r->scope; s && !s->is_kept; s = s->parent)
        s->is_kept = true;
    return (tg_jval){.kind = TG_J_MACRO, .u.macro = m};
}

static void exec_call_block(tg_jrun *r, const tg_jnode *n)
{
    tg_jval caller = new_macro(r, n);
    if (tg_jrun_is_failed(r)) return;
    tg_jval v = eval_call(r, n->b, &caller);
    if (!tg_jrun_is_failed(r)) v = tg_jval_to_str(r, v);
    if (!tg_jrun_is_failed(r)) emit(r, tg_jval_str(v));
}

static flow exec_node(tg_jrun *r, const tg_jnode *n)
{
    tg_jval v;
    flow f;
    switch ((int)n->kind) {
    case TG_JN_BODY: return exec_body(r, n);
    case TG_JN_DATA: emit(r, tg_jval_str(n->value)); break;
    case TG_JN_PRINT: exec_print(r, n); break;
    case TG_JN_IF: return exec_if(r, n);
    case TG_JN_FOR:
        v = tg_jrun_eval(r, n->b);
        r->pos = n->b->pos;
        if (!tg_jrun_is_failed(r)) run_loop(r, n, r->scope, v, 0);
        break;
    case TG_JN_SET: assign(r, r->scope, n->a, tg_jrun_eval(r, n->b)); break;
    case TG_JN_SET_BLOCK:
        f = exec_captured(r, n->b, n->c, &v);
        if (f != FLOW_NEXT) return f;
        assign(r, r->scope, n->a, v);
        break;
    case TG_JN_FILTER_BLOCK:
        f = exec_captured(r, n->a, n->c, &v);
        if (f != FLOW_NEXT) return f;
        /* The reference joins what it writes without making text of it first. */
        if (!tg_jrun_is_failed(r) && v.kind != TG_J_STR)
            tg_jrun_raise(r, "a filter block gave a value of type '%s' and not text",
                          tg_jkind_name(v));
        if (!tg_jrun_is_failed(r)) emit(r, tg_jval_str(v));
        break;
    case TG_JN_MACRO: bind(r, r->scope, n->symbol, new_macro(r, n)); break;
    case TG_JN_CALL_BLOCK: exec_call_block(r, n); break;
    case TG_JN_WITH: return exec_with(r, n);
    case TG_JN_SCOPE: return exec_scoped(r, n->a, r->scope);
    case TG_JN_BLOCK: return exec_scoped(r, n->a, r->root_scope);
    case TG_JN_BREAK: return FLOW_BREAK;
    case TG_JN_CONTINUE: return FLOW_CONTINUE;
    default: TG_ASSERT(n->kind >= TG_JN_BODY && "an expression where the parser puts statements");
    }
    return tg_jrun_is_failed(r) ? FLOW_BREAK : FLOW_NEXT;
}

static flow exec(tg_jrun *r, const tg_jnode *n)
{
    if (!enter(r)) return FLOW_BREAK;
    r->pos = n->pos;
    flow f = exec_node(r, n);
    r->n_depth++;
    return f;
}

void tg_jrun_exec(tg_jrun *r, const tg_jnode *n)
{
    exec(r, n);
}
