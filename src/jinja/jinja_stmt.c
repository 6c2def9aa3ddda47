/* SPDX-License-Identifier: Apache-2.0
 * jinja_stmt.c - statements: what stands between {% and %}, and the text around it.
 *
 * Each statement is a row with the function that parses it; a tag the reference has and this engine
 * has not is a row without one. */
#include "jinja/jinja_parse.h"

#include <string.h>

typedef tg_jnode *parse_fn(tg_jparser *p);

static tg_jnode *parse_statement(tg_jparser *p);

/* ---- bodies */

static bool is_end(const tg_jparser *p, const char *const *ends)
{
    if (tg_jp_peek(p, 0)->kind != TG_JT_BLOCK_BEGIN) return false;
    const tg_jtok *t = tg_jp_peek(p, 1);
    for (; t->kind == TG_JT_NAME && *ends; ends++)
        if (tg_str_is(t->text, *ends)) return true;
    return false;
}

static tg_jnode *parse_print_tag(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_PRINT, tg_jp_next(p)->pos);
    tg_jp_list items = {0};
    tg_jp_add(p, &items, tg_jp_tuple(p, false, true, NULL, false));
    if (tg_jp_peek(p, 0)->kind == TG_JT_VARIABLE_END)
        tg_jp_next(p);
    else
        tg_jp_fail_expected(p, "'}}'");
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

static bool expect_block_end(tg_jparser *p)
{
    if (tg_jp_peek(p, 0)->kind == TG_JT_BLOCK_END) {
        tg_jp_next(p);
        return true;
    }
    tg_jp_fail_expected(p, "'%}'");
    return false;
}

/* Text and statements up to a tag named in `ends` (which ends in NULL), or to the end of the
 * template when ends is empty. That tag's name is the current token afterwards. */
static tg_jnode *parse_body(tg_jparser *p, const char *const *ends)
{
    tg_jnode *body = tg_jp_node(p, TG_JN_BODY, tg_jp_peek(p, 0)->pos);
    tg_jp_list kids = {0};
    int32_t tag_pos = p->tag_pos;
    if (!tg_jp_enter(p)) return body;
    while (!tg_jp_is_failed(p) && !is_end(p, ends)) {
        const tg_jtok *t = tg_jp_peek(p, 0);
        if (t->kind == TG_JT_EOF) break;
        if (t->kind == TG_JT_DATA) {
            tg_jnode *n = tg_jp_node(p, TG_JN_DATA, t->pos);
            n->value = tg_jstr(tg_jp_next(p)->text);
            tg_jp_add(p, &kids, n);
        } else if (t->kind == TG_JT_VARIABLE_BEGIN) {
            tg_jp_add(p, &kids, parse_print_tag(p));
        } else {
            tg_jp_next(p); /* the lexer opens nothing else */
            tg_jp_add(p, &kids, parse_statement(p));
            expect_block_end(p);
        }
    }
    if (*ends && !tg_jp_is_failed(p)) {
        const char *last = *ends;
        for (const char *const *end = ends; *end; end++)
            last = *end;
        if (tg_jp_peek(p, 0)->kind == TG_JT_EOF)
            tg_jp_fail(p, TG_E_CORRUPT, tag_pos,
                       "the block that begins here has no end; '{%% %s %%}' is missing", last);
        tg_jp_next(p); /* {% */
    }
    body->kids = kids.items;
    body->n_kids = kids.n;
    p->depth--;
    return body;
}

/* ":" or nothing, "%}", and the body. */
static tg_jnode *parse_block_body(tg_jparser *p, const char *const *ends)
{
    tg_jp_skip_op(p, ":");
    if (!expect_block_end(p)) return &p->dummy;
    return parse_body(p, ends);
}

/* The same for a body with a scope of its own. Conditions around it do not excuse an unknown filter
 * in it: in the reference it is a function, or compiled like one. */
static tg_jnode *parse_scope_body(tg_jparser *p, const char *const *ends)
{
    int32_t n_soft = p->n_soft;
    p->n_soft = 0;
    tg_jnode *body = parse_block_body(p, ends);
    p->n_soft = n_soft;
    return body;
}

/* The same for a body with one end tag, which is consumed. */
static tg_jnode *parse_whole_body(tg_jparser *p, const char *end)
{
    const char *ends[] = {end, NULL};
    tg_jnode *body = parse_scope_body(p, ends);
    tg_jp_next(p);
    return body;
}

/* ---- targets */

static void check_target(tg_jparser *p, tg_jnode *n)
{
    if (n->kind == TG_JN_NAME) return;
    if (n->kind == TG_JN_NSREF) return;
    if (n->kind == TG_JN_TUPLE) {
        for (int32_t i = 0; i < n->n_kids && !tg_jp_is_failed(p); i++)
            check_target(p, n->kids[i]);
        return;
    }
    tg_jp_fail(p, TG_E_CORRUPT, n->pos, "this cannot be assigned to");
}

static int32_t expect_target_name(tg_jparser *p)
{
    if (tg_jp_peek(p, 0)->kind != TG_JT_NAME) {
        tg_jp_fail_expected(p, "a name");
        return 0;
    }
    tg_jnode *n = tg_jp_primary(p);
    if (n->kind != TG_JN_NAME) check_target(p, n);
    return TG_MAX(n->symbol, 0);
}

/* A target of `set`: a name, name.attribute of a namespace, or several. */
static tg_jnode *parse_set_target(tg_jparser *p)
{
    tg_jp_list items = {0};
    int32_t pos = tg_jp_peek(p, 0)->pos;
    bool is_tuple = false;
    while (!tg_jp_is_failed(p)) {
        if (items.n && (tg_jp_is_op(p, "=") || tg_jp_peek(p, 0)->kind == TG_JT_BLOCK_END)) break;
        tg_jnode *n = tg_jp_primary(p);
        if (n->kind == TG_JN_NAME && tg_jp_skip_op(p, ".")) {
            const tg_jtok *t = tg_jp_next(p);
            if (t->kind != TG_JT_NAME)
                tg_jp_fail(p, TG_E_CORRUPT, t->pos, "expected an attribute's name behind '.'");
            n->kind = TG_JN_NSREF;
            n->value = tg_jstr(t->text);
        }
        check_target(p, n);
        tg_jp_add(p, &items, n);
        if (!tg_jp_skip_op(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && items.n) return items.items[0];
    tg_jnode *n = tg_jp_node(p, TG_JN_TUPLE, pos);
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

/* ---- the statements */

static tg_jnode *parse_if(tg_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    tg_jnode *n = tg_jp_node(p, TG_JN_IF, tg_jp_peek(p, 0)->pos);
    tg_jp_list kids = {0};
    p->n_soft++;
    do {
        tg_jp_next(p); /* if, elif */
        tg_jp_add(p, &kids, tg_jp_tuple(p, false, false, NULL, false));
        tg_jp_add(p, &kids, parse_block_body(p, ends));
    } while (!tg_jp_is_failed(p) && tg_jp_is_name(p, "elif"));
    if (tg_jp_skip_name(p, "else")) tg_jp_add(p, &kids, parse_block_body(p, last));
    tg_jp_next(p); /* endif */
    p->n_soft--;
    n->kids = kids.items;
    n->n_kids = kids.n;
    return n;
}

static tg_jnode *parse_for(tg_jparser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    tg_jnode *n = tg_jp_node(p, TG_JN_FOR, tg_jp_next(p)->pos);
    n->a = tg_jp_tuple(p, true, true, "in", false);
    check_target(p, n->a);
    if (n->a->kind == TG_JN_NAME && n->a->symbol == TG_JSYM_LOOP)
        tg_jp_fail(p, TG_E_CORRUPT, n->pos, "'loop' cannot be the variable of a loop");
    tg_jp_expect_name(p, "in");
    n->b = tg_jp_tuple(p, false, false, "recursive", false);
    if (tg_jp_skip_name(p, "if")) n->c = tg_jp_expression(p, true);
    n->is_recursive = tg_jp_skip_name(p, "recursive");
    n->kids = tg_jp_alloc(p, 2 * sizeof *n->kids);
    if (!n->kids) return n;
    n->n_kids = 2;
    p->n_loops++;
    n->kids[0] = parse_scope_body(p, ends);
    p->n_loops--;
    if (tg_jp_skip_name(p, "else"))
        n->kids[1] = parse_whole_body(p, "endfor");
    else
        tg_jp_next(p); /* endfor */
    return n;
}

static tg_jnode *parse_set(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_SET, tg_jp_next(p)->pos);
    n->a = parse_set_target(p);
    if (tg_jp_skip_op(p, "=")) {
        n->b = tg_jp_tuple(p, false, true, NULL, false);
        return n;
    }
    n->kind = TG_JN_SET_BLOCK;
    n->c = tg_jp_filters(p, NULL, false);
    n->b = parse_whole_body(p, "endset");
    return n;
}

/* "(a, b=1)". */
static tg_jparams *parse_params(tg_jparser *p, bool has_list)
{
    enum { MAX_PARAMS = 255 };
    tg_jparams *ps = tg_jp_alloc(p, sizeof *ps);
    if (!ps || !has_list) return ps;
    int32_t symbols[MAX_PARAMS];
    tg_jp_list defaults = {0};
    bool has_default = false;
    tg_jp_expect_op(p, "(");
    while (!tg_jp_is_failed(p) && !tg_jp_is_op(p, ")")) {
        int32_t pos = tg_jp_peek(p, 0)->pos;
        if (ps->n && !tg_jp_expect_op(p, ",")) break;
        if (ps->n == MAX_PARAMS) {
            tg_jp_fail(p, TG_E_LIMIT, pos, "a macro has more than %d parameters", MAX_PARAMS);
            break;
        }
        symbols[ps->n] = expect_target_name(p);
        for (int32_t i = 0; i < ps->n; i++)
            if (symbols[i] == symbols[ps->n])
                tg_jp_fail(p, TG_E_CORRUPT, pos, "the parameter is there twice");
        bool is_default = tg_jp_skip_op(p, "=");
        if (has_default && !is_default)
            tg_jp_fail(p, TG_E_CORRUPT, pos, "a parameter without a default follows one with");
        has_default |= is_default;
        tg_jp_add(p, &defaults, is_default ? tg_jp_expression(p, true) : NULL);
        ps->n++;
    }
    tg_jp_expect_op(p, ")");
    ps->symbols = tg_jp_alloc(p, sizeof(int32_t) * (size_t)TG_MAX(ps->n, 1));
    if (ps->symbols) memcpy(ps->symbols, symbols, sizeof(int32_t) * (size_t)ps->n);
    ps->defaults = defaults.items;
    return ps;
}

/* The body of a function: a loop outside it cannot be left from inside. */
static tg_jnode *parse_function_body(tg_jparser *p, tg_jparams *params, const char *end)
{
    int32_t n_loops = p->n_loops;
    tg_jparams *outer = p->params;
    p->n_loops = 0;
    p->params = params;
    tg_jnode *body = parse_whole_body(p, end);
    p->n_loops = n_loops;
    p->params = outer;
    /* A name used by an inner function may be its own, or this one's: the reference says both. */
    if (outer && params) {
        outer->has_caller |= params->has_caller;
        outer->has_varargs |= params->has_varargs;
        outer->has_kwargs |= params->has_kwargs;
    }
    return body;
}

static tg_jnode *parse_macro(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_MACRO, tg_jp_next(p)->pos);
    n->text = tg_jp_peek(p, 0)->text;
    n->symbol = expect_target_name(p);
    n->params = parse_params(p, true);
    n->a = parse_function_body(p, n->params, "endmacro");
    return n;
}

static tg_jnode *parse_call_block(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_CALL_BLOCK, tg_jp_next(p)->pos);
    n->params = parse_params(p, tg_jp_is_op(p, "("));
    n->b = tg_jp_expression(p, true);
    if (n->b->kind != TG_JN_CALL)
        tg_jp_fail(p, TG_E_CORRUPT, n->pos, "expected a call behind 'call'");
    n->a = parse_function_body(p, n->params, "endcall");
    return n;
}

static tg_jnode *parse_filter_block(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_FILTER_BLOCK, tg_jp_next(p)->pos);
    n->c = tg_jp_filters(p, NULL, true);
    n->a = parse_whole_body(p, "endfilter");
    return n;
}

static tg_jnode *parse_with(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_WITH, tg_jp_next(p)->pos);
    tg_jp_list kids = {0};
    while (!tg_jp_is_failed(p) && tg_jp_peek(p, 0)->kind != TG_JT_BLOCK_END) {
        if (kids.n && !tg_jp_expect_op(p, ",")) break;
        tg_jnode *target = tg_jp_primary(p);
        check_target(p, target);
        tg_jp_expect_op(p, "=");
        tg_jp_add(p, &kids, target);
        tg_jp_add(p, &kids, tg_jp_expression(p, true));
    }
    n->kids = kids.items;
    n->n_kids = kids.n;
    n->a = parse_whole_body(p, "endwith");
    return n;
}

static tg_jnode *parse_block(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_BLOCK, tg_jp_next(p)->pos);
    n->text = tg_jp_peek(p, 0)->text;
    expect_target_name(p);
    for (int32_t i = 0; i < p->blocks.n; i++)
        if (tg_str_is_equal(p->blocks.items[i]->text, n->text))
            tg_jp_fail(p, TG_E_CORRUPT, n->pos, "block '%.*s' defined twice",
                       (int)TG_MIN(n->text.len, 60u), n->text.ptr);
    tg_jp_add(p, &p->blocks, n);
    if (tg_jp_skip_name(p, "scoped")) n->kind = TG_JN_SCOPE;
    if (tg_jp_is_name(p, "required"))
        tg_jp_fail(p, TG_E_UNSUPPORTED, n->pos, "'required' blocks are not built");
    n->a = parse_whole_body(p, "endblock");
    const tg_jtok *t = tg_jp_peek(p, 0);
    if (t->kind == TG_JT_NAME && tg_str_is_equal(t->text, n->text)) tg_jp_next(p);
    return n;
}

static tg_jnode *parse_generation(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_SCOPE, tg_jp_next(p)->pos);
    int32_t n_loops = p->n_loops;
    p->n_loops = 0; /* the reference makes the body a function */
    n->a = parse_whole_body(p, "endgeneration");
    p->n_loops = n_loops;
    return n;
}

static tg_jnode *parse_print(tg_jparser *p)
{
    tg_jnode *n = tg_jp_node(p, TG_JN_PRINT, tg_jp_next(p)->pos);
    tg_jp_list items = {0};
    while (!tg_jp_is_failed(p) && tg_jp_peek(p, 0)->kind != TG_JT_BLOCK_END) {
        if (items.n && !tg_jp_expect_op(p, ",")) break;
        tg_jp_add(p, &items, tg_jp_expression(p, true));
    }
    n->kids = items.items;
    n->n_kids = items.n;
    return n;
}

static tg_jnode *parse_jump(tg_jparser *p)
{
    bool is_break = tg_jp_is_name(p, "break");
    tg_jnode *n = tg_jp_node(p, is_break ? TG_JN_BREAK : TG_JN_CONTINUE, tg_jp_next(p)->pos);
    if (p->n_loops == 0)
        tg_jp_fail(p, TG_E_CORRUPT, n->pos, "'%s' stands outside a loop",
                   is_break ? "break" : "continue");
    return n;
}

static const struct {
    const char *name;
    parse_fn *parse; /* NULL: the reference has it, this engine does not */
} statements[] = {
    {"if", parse_if},       {"for", parse_for},         {"set", parse_set},
    {"macro", parse_macro}, {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},   {"block", parse_block},     {"generation", parse_generation},
    {"print", parse_print}, {"break", parse_jump},      {"continue", parse_jump},
    {"extends", NULL},      {"include", NULL},          {"import", NULL},
    {"from", NULL},         {"autoescape", NULL},
};

static tg_jnode *parse_statement(tg_jparser *p)
{
    const tg_jtok *t = tg_jp_peek(p, 0);
    if (t->kind != TG_JT_NAME) {
        tg_jp_fail_expected(p, "the name of a tag");
        return &p->dummy;
    }
    int len = (int)TG_MIN(t->text.len, 60u);
    for (size_t i = 0; i < TG_COUNT(statements); i++) {
        if (!tg_str_is(t->text, statements[i].name)) continue;
        if (statements[i].parse) {
            int32_t outer = p->tag_pos;
            p->tag_pos = t->pos;
            tg_jnode *n = statements[i].parse(p);
            p->tag_pos = outer;
            return n;
        }
        tg_jp_fail(p, TG_E_UNSUPPORTED, t->pos, "the tag '%.*s' is not built in this engine", len,
                   t->text.ptr);
        return &p->dummy;
    }
    tg_jp_fail(p, TG_E_CORRUPT, t->pos, "unknown tag '%.*s', or one in the wrong place", len,
               t->text.ptr);
    return &p->dummy;
}

tg_status tg_jparse(tg_template *t, tg_err *e)
{
    static const char *const to_the_end[] = {NULL};
    static const char *const fixed[TG_JSYM_FIXED] = {
        [TG_JSYM_LOOP] = "loop",
        [TG_JSYM_CALLER] = "caller",
        [TG_JSYM_VARARGS] = "varargs",
        [TG_JSYM_KWARGS] = "kwargs",
    };
    tg_jparser p = {.t = t, .arena = &t->arena, .e = e};
    p.status = tg_jlex(&p.toks, &t->arena, t->source, e);
    if (tg_jp_is_failed(&p)) {
        tg_arena_deinit(&p.toks.arena);
        return p.status;
    }
    for (int i = 0; i < TG_JSYM_FIXED; i++)
        tg_jp_symbol(&p, tg_str_from_cstr(fixed[i]));
    t->root = parse_body(&p, to_the_end);
    tg_arena_deinit(&p.toks.arena);
    return p.status;
}
