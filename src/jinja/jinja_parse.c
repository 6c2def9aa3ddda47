/* SPDX-License-Identifier: Apache-2.0
 * jinja_parse.c - expressions: tokens to tree, with the precedence of jinja2's parser.
 *
 *   a if b else c  <  or  <  and  <  not  <  == != < <= > >= in, not in  <  + -  <  ~
 *   <  * / // %  <  **  <  - + (unary)  <  . [] ()  <  | is
 *
 * Two things differ from Python and matter: ** is left-associative and binds weaker than a unary
 * sign, and a filter or test binds tighter than any operator. */
#include "jinja/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- operands */

static tg_jnode *constant(tg_jparser *p, int32_t pos, tg_jval v)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_CONST, pos);
    n->value = v;
    return n;
}

static tg_jnode *int_constant(tg_jparser *p, const tg_jtok *t)
{
    if (t->u.i == INT64_MIN)
        tg_jp_fail(p, TG_E_UNSUPPORTED, t->pos, "the integer %.*s does not fit 64 bits",
                   (int)t->text.len, t->text.ptr);
    return constant(p, t->pos, tg_jint(t->u.i));
}

static tg_jnode *parse_name(tg_jparser *p, const tg_jtok *t)
{
    static const struct {
        const char *name;
        tg_jval value;
    } words[] = {
        {"true", {.kind = TG_J_BOOL, .u.b = true}},
        {"True", {.kind = TG_J_BOOL, .u.b = true}},
        {"false", {.kind = TG_J_BOOL, .u.b = false}},
        {"False", {.kind = TG_J_BOOL, .u.b = false}},
        {"none", {.kind = TG_J_NONE}},
        {"None", {.kind = TG_J_NONE}},
    };
    for (size_t i = 0; i < TG_COUNT(words); i++)
        if (tg_str_is(t->text, words[i].name)) return constant(p, t->pos, words[i].value);
    tg_jnode *n = tg_jp_node(p, TG_JN_NAME, t->pos);
    n->text = t->text;
    n->symbol = tg_jp_symbol(p, t->text);
    if (p->params) {
        p->params->has_caller |= n->symbol == TG_JSYM_CALLER;
        p->params->has_varargs |= n->symbol == TG_JSYM_VARARGS;
        p->params->has_kwargs |= n->symbol == TG_JSYM_KWARGS;
    }
    return n;
}

/* Adjacent strings are one. */
static tg_jnode *parse_string(tg_jparser *p, const tg_jtok *t)
{
    tg_str text = t->text;
    if (tg_jp_peek(p, 0)->kind == TG_JT_STRING) {
        size_t len = text.len;
        for (int32_t i = 0; tg_jp_peek(p, i)->kind == TG_JT_STRING; i++)
            len += tg_jp_peek(p, i)->text.len;
        char *all = tg_jp_alloc(p, len + 1);
        if (!all) return &p->dummy;
        if (text.len) memcpy(all, text.ptr, text.len);
        for (len = text.len; tg_jp_peek(p, 0)->kind == TG_JT_STRING;) {
            tg_str more = tg_jp_next(p)->text;
            if (more.len) memcpy(all + len, more.ptr, more.len);
            len += more.len;
        }
        text = (tg_str){all, len};
    }
    return constant(p, t->pos, tg_jstr(text));
}

static tg_jnode *parse_list(tg_jparser *p, int32_t pos)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_LIST, pos);
    tg_jp_list items = {0};
    while (!tg_jp_is_failed(p) && !tg_jp_is_op(p, "]")) {
        if (items.n && !tg_jp_expect_op(p, ",")) break;
        if (tg_jp_is_op(p, "]")) break;
        tg_jp_add(p, &items, tg_jp_expression(p, true));
    }
    tg_jp_expect_op(p, "]");
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

static tg_jnode *parse_dict(tg_jparser *p, int32_t pos)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_DICT, pos);
    tg_jp_list items = {0};
    while (!tg_jp_is_failed(p) && !tg_jp_is_op(p, "}")) {
        if (items.n && !tg_jp_expect_op(p, ",")) break;
        if (tg_jp_is_op(p, "}")) break;
        tg_jp_add(p, &items, tg_jp_expression(p, true));
        tg_jp_expect_op(p, ":");
        tg_jp_add(p, &items, tg_jp_expression(p, true));
    }
    tg_jp_expect_op(p, "}");
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

tg_jnode *tg_jp_primary(tg_jparser *p)
{
    const tg_jtok *t = tg_jp_peek(p, 0);
    if (t->kind == TG_JT_NAME) return parse_name(p, tg_jp_next(p));
    if (t->kind == TG_JT_STRING) return parse_string(p, tg_jp_next(p));
    if (t->kind == TG_JT_INT) return int_constant(p, tg_jp_next(p));
    if (t->kind == TG_JT_FLOAT) return constant(p, t->pos, tg_jfloat(tg_jp_next(p)->u.f));
    tg_jnode *n = &p->dummy;
    if (!tg_jp_enter(p)) return n;
    if (tg_jp_skip_op(p, "(")) {
        n = tg_jp_tuple(p, false, true, NULL, true);
        tg_jp_expect_op(p, ")");
    } else if (tg_jp_skip_op(p, "[")) {
        n = parse_list(p, t->pos);
    } else if (tg_jp_skip_op(p, "{")) {
        n = parse_dict(p, t->pos);
    } else {
        tg_jp_fail_expected(p, "an expression");
    }
    p->depth--;
    return n;
}

static bool is_tuple_end(const tg_jparser *p, const char *end)
{
    tg_jtok_kind k = tg_jp_peek(p, 0)->kind;
    return k == TG_JT_VARIABLE_END || k == TG_JT_BLOCK_END || tg_jp_is_op(p, ")") ||
           (end && tg_jp_is_name(p, end));
}

tg_jnode *tg_jp_tuple(tg_jparser *p, bool is_simple, bool has_condition, const char *end,
                      bool has_parens)
{
    int32_t pos = tg_jp_peek(p, 0)->pos;
    tg_jp_list items = {0};
    bool is_tuple = false;
    while (!tg_jp_is_failed(p)) {
        if (items.n && !tg_jp_expect_op(p, ",")) break;
        if (is_tuple_end(p, end)) break;
        tg_jp_add(p, &items, is_simple ? tg_jp_primary(p) : tg_jp_expression(p, has_condition));
        if (!tg_jp_is_op(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && items.n) return items.items[0];
    if (!is_tuple && !has_parens) tg_jp_fail_expected(p, "an expression");
    tg_jnode *n = tg_jp_node(p, TG_JN_TUPLE, pos);
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

/* ---- what follows an operand */

/* "a:b:c" or one expression, between [ and ] or a comma. */
static tg_jnode *parse_index(tg_jparser *p)
{
    int32_t pos = tg_jp_peek(p, 0)->pos;
    tg_jnode *first = tg_jp_is_op(p, ":") ? NULL : tg_jp_expression(p, true);
    if (!tg_jp_skip_op(p, ":")) return first ? first : &p->dummy;
    tg_jnode *n = tg_jp_node(p, TG_JN_SLICE, pos);
    tg_jnode **parts = tg_jp_alloc(p, 3 * sizeof *parts);
    if (!parts) return n;
    parts[0] = first;
    for (int i = 1; i < 3; i++) {
        if (!tg_jp_is_op(p, ":") && !tg_jp_is_op(p, "]") && !tg_jp_is_op(p, ","))
            parts[i] = tg_jp_expression(p, true);
        if (i == 1 && !tg_jp_skip_op(p, ":")) break;
    }
    n->kids = parts;
    n->n_kids = 3;
    return n;
}

static tg_jnode *parse_subscript(tg_jparser *p, tg_jnode *of)
{
    int32_t pos = tg_jp_peek(p, 0)->pos;
    tg_jnode *n = tg_jp_node(p, TG_JN_GETITEM, pos);
    n->a = of;
    if (tg_jp_skip_op(p, ".")) {
        const tg_jtok *t = tg_jp_next(p);
        if (t->kind == TG_JT_NAME) {
            n->kind = TG_JN_GETATTR;
            n->text = t->text;
        } else if (t->kind == TG_JT_INT) {
            n->b = int_constant(p, t);
        } else {
            tg_jp_fail(p, TG_E_CORRUPT, t->pos, "expected a name or a number behind '.'");
        }
        return n;
    }
    tg_jp_expect_op(p, "[");
    tg_jp_list items = {0};
    while (!tg_jp_is_failed(p) && !tg_jp_is_op(p, "]")) {
        if (items.n && !tg_jp_expect_op(p, ",")) break;
        tg_jp_add(p, &items, parse_index(p));
    }
    tg_jp_expect_op(p, "]");
    if (items.n == 1) {
        n->b = items.items[0];
        return n;
    }
    n->b = tg_jp_node(p, TG_JN_TUPLE, pos);
    n->b->kids = items.items;
    n->b->n_kids = items.n;
    for (int32_t i = 0; i < items.n; i++)
        if (items.items[i]->kind == TG_JN_SLICE)
            tg_jp_fail(p, TG_E_UNSUPPORTED, pos, "a slice among several indices is not built");
    return n;
}

/* One argument of a call into the lists; false when the order is wrong. */
static bool parse_argument(tg_jparser *p, tg_jcall *c, tg_jp_list *args, tg_jp_list *kw,
                           tg_jp_list *names)
{
    if (tg_jp_is_op(p, "*")) {
        if (c->star || c->starstar) return false;
        tg_jp_next(p);
        c->star = tg_jp_expression(p, true);
    } else if (tg_jp_is_op(p, "**")) {
        if (c->starstar) return false;
        tg_jp_next(p);
        c->starstar = tg_jp_expression(p, true);
    } else if (tg_jp_peek(p, 0)->kind == TG_JT_NAME &&
               tg_jp_is_token(tg_jp_peek(p, 1), TG_JT_OPERATOR, "=")) {
        if (c->starstar) return false;
        const tg_jtok *t = tg_jp_next(p);
        tg_jp_next(p);
        tg_jp_add(p, names, constant(p, t->pos, tg_jstr(t->text)));
        tg_jp_add(p, kw, tg_jp_expression(p, true));
    } else {
        if (c->star || c->starstar || kw->n) return false;
        tg_jp_add(p, args, tg_jp_expression(p, true));
    }
    return true;
}

static tg_jcall *parse_arguments(tg_jparser *p)
{
    int32_t pos = tg_jp_peek(p, 0)->pos;
    tg_jcall *c = tg_jp_alloc(p, sizeof *c);
    tg_jp_list args = {0}, kw = {0}, names = {0};
    tg_jp_expect_op(p, "(");
    for (bool is_first = true; c && !tg_jp_is_failed(p) && !tg_jp_is_op(p, ")"); is_first = false) {
        if (!is_first && !tg_jp_expect_op(p, ",")) break;
        if (!is_first && tg_jp_is_op(p, ")")) break;
        if (!parse_argument(p, c, &args, &kw, &names))
            tg_jp_fail(p, TG_E_CORRUPT, pos, "the arguments of this call are in the wrong order");
    }
    tg_jp_expect_op(p, ")");
    if (!c || tg_jp_is_failed(p)) return NULL;
    c->args = args.items;
    c->n_args = args.n;
    c->kw = kw.items;
    c->n_kw = kw.n;
    c->names = tg_jp_alloc(p, (size_t)kw.n * sizeof(tg_jval));
    for (int32_t i = 0; c->names && i < kw.n; i++) {
        c->names[i] = names.items[i]->value;
        for (int32_t k = 0; k < i; k++)
            if (tg_str_is_equal(tg_jval_str(c->names[k]), tg_jval_str(c->names[i])))
                tg_jp_fail(p, TG_E_CORRUPT, pos, "keyword argument '%.*s' is repeated",
                           (int)TG_MIN(c->names[i].len, 60u), c->names[i].u.s);
    }
    return c;
}

static tg_jnode *parse_call(tg_jparser *p, tg_jnode *callee)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_CALL, tg_jp_peek(p, 0)->pos);
    n->a = callee;
    n->call = parse_arguments(p);
    return n;
}

static tg_jnode *parse_postfix(tg_jparser *p, tg_jnode *n)
{
    while (!tg_jp_is_failed(p)) {
        if (tg_jp_is_op(p, ".") || tg_jp_is_op(p, "["))
            n = parse_subscript(p, n);
        else if (tg_jp_is_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* The dotted name of a filter or test; none of ours has a dot. */
static tg_str parse_dotted(tg_jparser *p)
{
    if (tg_jp_peek(p, 0)->kind != TG_JT_NAME) tg_jp_fail_expected(p, "a name");
    tg_str name = tg_jp_next(p)->text;
    while (tg_jp_skip_op(p, ".")) {
        if (tg_jp_peek(p, 0)->kind != TG_JT_NAME) tg_jp_fail_expected(p, "a name");
        tg_str part = tg_jp_next(p)->text;
        if (!tg_jp_is_failed(p)) name.len = (size_t)(part.ptr + part.len - name.ptr);
    }
    return name;
}

/* An unknown name is an error at once, but inside a condition only when it is reached: templates
 * ask for what an engine may not have. */
static void look_up(tg_jparser *p, tg_jnode *n, const char *what, const tg_jfunc *f)
{
    n->func = f;
    if (f && f->fn) return;
    if (p->n_soft) return;
    tg_jp_fail(p, f ? TG_E_UNSUPPORTED : TG_E_CORRUPT, n->pos, "the %s '%.*s' %s", what,
               (int)TG_MIN(n->text.len, 60u), n->text.ptr,
               f ? "is not built in this engine" : "does not exist");
}

tg_jnode *tg_jp_filters(tg_jparser *p, tg_jnode *a, bool is_started)
{
    while (!tg_jp_is_failed(p) && (is_started || tg_jp_skip_op(p, "|"))) {
        is_started = false;
        tg_jnode *n = tg_jp_node(p, TG_JN_FILTER, tg_jp_peek(p, 0)->pos);
        n->a = a;
        n->text = parse_dotted(p);
        look_up(p, n, "filter", tg_jfilter_find(n->text));
        if (tg_jp_is_op(p, "(")) n->call = parse_arguments(p);
        a = n;
    }
    return a;
}

static tg_jnode *parse_test(tg_jparser *p, tg_jnode *a)
{
    tg_jp_expect_name(p, "is");
    bool is_negated = tg_jp_skip_name(p, "not");
    tg_jnode *n = tg_jp_node(p, TG_JN_TEST, tg_jp_peek(p, 0)->pos);
    n->a = a;
    n->text = parse_dotted(p);
    look_up(p, n, "test", tg_jtest_find(n->text));
    tg_jtok_kind k = tg_jp_peek(p, 0)->kind;
    if (tg_jp_is_op(p, "(")) {
        n->call = parse_arguments(p);
    } else if ((k == TG_JT_NAME && !tg_jp_is_name(p, "else") && !tg_jp_is_name(p, "or") &&
                !tg_jp_is_name(p, "and")) ||
               k == TG_JT_STRING || k == TG_JT_INT || k == TG_JT_FLOAT || tg_jp_is_op(p, "[") ||
               tg_jp_is_op(p, "{")) {
        if (tg_jp_is_name(p, "is"))
            tg_jp_fail(p, TG_E_CORRUPT, tg_jp_peek(p, 0)->pos, "tests cannot be chained with 'is'");
        tg_jcall *c = tg_jp_alloc(p, sizeof *c);
        tg_jp_list args = {0};
        tg_jp_add(p, &args, parse_postfix(p, tg_jp_primary(p)));
        if (c) {
            c->args = args.items;
            c->n_args = args.n;
        }
        n->call = c;
    }
    if (!is_negated) return n;
    tg_jnode *not = tg_jp_node(p, TG_JN_NOT, n->pos);
    not ->a = n;
    return not ;
}

static tg_jnode *parse_filters_and_tests(tg_jparser *p, tg_jnode *n)
{
    while (!tg_jp_is_failed(p)) {
        if (tg_jp_is_op(p, "|"))
            n = tg_jp_filters(p, n, false);
        else if (tg_jp_is_name(p, "is"))
            n = parse_test(p, n);
        else if (tg_jp_is_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* A sign takes the operand without its filters: -x|abs is (-x)|abs. */
static tg_jnode *parse_unary(tg_jparser *p, bool has_filters)
{
    const tg_jtok *t = tg_jp_peek(p, 0);
    tg_jnode *n;
    const tg_jtok *next = tg_jp_peek(p, 1);
    if (tg_jp_is_op(p, "-") && next->kind == TG_JT_INT && next->u.i == INT64_MIN) {
        tg_jp_next(p);
        n = constant(p, t->pos, tg_jint(tg_jp_next(p)->u.i));
    } else if (tg_jp_is_op(p, "-") || tg_jp_is_op(p, "+")) {
        n = tg_jp_node(p, tg_jp_is_op(p, "-") ? TG_JN_NEG : TG_JN_POS, t->pos);
        tg_jp_next(p);
        if (!tg_jp_enter(p)) return n;
        n->a = parse_unary(p, false);
        p->depth--;
    } else {
        n = tg_jp_primary(p);
    }
    n = parse_postfix(p, n);
    return has_filters ? parse_filters_and_tests(p, n) : n;
}

/* ---- operators: one loop per level of precedence */

/* Left-associative operators by level, weakest first; ~ stands between and is a list. */
static const struct {
    const char *text;
    int level;
    tg_jop op;
} binary[] = {
    {"+", 0, TG_JOP_ADD},       {"-", 0, TG_JOP_SUB}, {"*", 2, TG_JOP_MUL},  {"/", 2, TG_JOP_DIV},
    {"//", 2, TG_JOP_FLOORDIV}, {"%", 2, TG_JOP_MOD}, {"**", 3, TG_JOP_POW},
};

static int find_binary(const tg_jparser *p, int level)
{
    for (size_t i = 0; i < TG_COUNT(binary); i++)
        if (binary[i].level == level && tg_jp_is_op(p, binary[i].text)) return (int)i;
    return -1;
}

static tg_jnode *parse_concat(tg_jparser *p);

static tg_jnode *parse_binary(tg_jparser *p, int level)
{
    if (level == 1) return parse_concat(p);
    if (level == 4) return parse_unary(p, true);
    tg_jnode *left = parse_binary(p, level + 1);
    for (int i; !tg_jp_is_failed(p) && (i = find_binary(p, level)) >= 0;) {
        tg_jnode *n = tg_jp_node(p, TG_JN_BINARY, tg_jp_next(p)->pos);
        n->op = binary[i].op;
        n->a = left;
        n->b = parse_binary(p, level + 1);
        left = n;
    }
    return left;
}

static tg_jnode *parse_concat(tg_jparser *p)
{
    tg_jnode *first = parse_binary(p, 2);
    if (!tg_jp_is_op(p, "~")) return first;
    tg_jnode *n = tg_jp_node(p, TG_JN_CONCAT, tg_jp_peek(p, 0)->pos);
    tg_jp_list items = {0};
    tg_jp_add(p, &items, first);
    while (tg_jp_skip_op(p, "~"))
        tg_jp_add(p, &items, parse_binary(p, 2));
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

static bool skip_comparison(tg_jparser *p, tg_jop *op)
{
    static const struct {
        const char *text;
        tg_jop op;
    } rows[] = {{"==", TG_JOP_EQ}, {"!=", TG_JOP_NE}, {"<", TG_JOP_LT},
                {"<=", TG_JOP_LE}, {">", TG_JOP_GT},  {">=", TG_JOP_GE}};
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        if (tg_jp_skip_op(p, rows[i].text)) {
            *op = rows[i].op;
            return true;
        }
    if (tg_jp_skip_name(p, "in")) {
        *op = TG_JOP_IN;
        return true;
    }
    if (tg_jp_is_name(p, "not") && tg_jp_is_token(tg_jp_peek(p, 1), TG_JT_NAME, "in")) {
        tg_jp_next(p);
        tg_jp_next(p);
        *op = TG_JOP_NOT_IN;
        return true;
    }
    return false;
}

static tg_jnode *parse_compare(tg_jparser *p)
{
    enum { MAX_CHAIN = 64 };
    tg_jop ops[MAX_CHAIN];
    int32_t pos = tg_jp_peek(p, 0)->pos;
    tg_jnode *first = parse_binary(p, 0);
    tg_jp_list items = {0};
    for (tg_jop op; skip_comparison(p, &op);) {
        if (items.n == MAX_CHAIN) {
            tg_jp_fail(p, TG_E_LIMIT, pos, "more than %d comparisons in a chain", MAX_CHAIN);
            break;
        }
        ops[items.n] = op;
        tg_jp_add(p, &items, parse_binary(p, 0));
        if (tg_jp_is_failed(p)) break;
    }
    if (!items.n) return first;
    tg_jnode *n = tg_jp_node(p, TG_JN_COMPARE, pos);
    n->a = first;
    n->ops = tg_jp_alloc(p, (size_t)items.n * sizeof *n->ops);
    if (n->ops) memcpy(n->ops, ops, (size_t)items.n * sizeof *n->ops);
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

static tg_jnode *parse_not(tg_jparser *p)
{
    if (!tg_jp_is_name(p, "not")) return parse_compare(p);
    tg_jnode *n = tg_jp_node(p, TG_JN_NOT, tg_jp_next(p)->pos);
    if (!tg_jp_enter(p)) return n;
    n->a = parse_not(p);
    p->depth--;
    return n;
}

/* `a and b and c` and `a or b or c`. */
static tg_jnode *parse_logic(tg_jparser *p, bool is_or)
{
    tg_jnode *left = is_or ? parse_logic(p, false) : parse_not(p);
    while (!tg_jp_is_failed(p) && tg_jp_is_name(p, is_or ? "or" : "and")) {
        tg_jnode *n = tg_jp_node(p, is_or ? TG_JN_OR : TG_JN_AND, tg_jp_next(p)->pos);
        n->a = left;
        n->b = is_or ? parse_logic(p, false) : parse_not(p);
        left = n;
    }
    return left;
}

/* `a if b else c`. Names in it are looked up when reached, so the parts in front of "if" must
 * be known to be conditional before they are parsed: scan ahead for the "if" at this level. */
static bool has_condition_ahead(const tg_jparser *p)
{
    int level = 0;
    for (int32_t i = 0; p->at + i < p->toks.n; i++) {
        const tg_jtok *t = tg_jp_peek(p, i);
        if (t->kind == TG_JT_OPERATOR && t->text.len == 1) {
            char c = t->text.ptr[0];
            level += strchr("([{", c) ? 1 : strchr(")]}", c) ? -1 : 0;
            if (level < 0 || (level == 0 && strchr(",:=", c))) return false;
        }
        if (t->kind != TG_JT_NAME && t->kind != TG_JT_OPERATOR && t->kind < TG_JT_NAME)
            return false;
        if (level == 0 && tg_jp_is_token(t, TG_JT_NAME, "if")) return true;
    }
    return false;
}

tg_jnode *tg_jp_expression(tg_jparser *p, bool has_condition)
{
    if (!tg_jp_enter(p)) return &p->dummy;
    bool is_soft = has_condition && has_condition_ahead(p);
    p->n_soft += is_soft;
    tg_jnode *n = parse_logic(p, true);
    while (has_condition && tg_jp_is_name(p, "if")) {
        tg_jnode *cond = tg_jp_node(p, TG_JN_COND, tg_jp_next(p)->pos);
        p->n_soft++;
        cond->a = n;
        cond->b = parse_logic(p, true);
        if (tg_jp_skip_name(p, "else")) cond->c = tg_jp_expression(p, true);
        p->n_soft--;
        n = cond;
    }
    p->n_soft -= is_soft;
    p->depth--;
    return n;
}
