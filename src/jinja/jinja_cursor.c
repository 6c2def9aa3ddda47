/* SPDX-License-Identifier: Apache-2.0
 * jinja_cursor.c - the parser's place among the tokens, its errors, nodes and names. */
#include "jinja/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tg_jp_fail(tg_jparser *p, tg_status s, int32_t pos, const char *fmt, ...)
{
    if (tg_jp_is_failed(p)) return;
    char words[400];
    va_list ap;
    va_start(ap, fmt);
    if (tg_vprint(words, sizeof words, fmt, ap) < 0) words[0] = 0;
    va_end(ap);
    p->status = tg_jfail_at(p->e, s, p->t->source, pos, "%s", words);
    p->at = p->toks.n - 1; /* everything reads EOF from here on */
}

static void describe(char *out, size_t size, const tg_jtok *t)
{
    static const char *const names[] = {
        [TG_JT_EOF] = "the end of the template",
        [TG_JT_DATA] = "text",
        [TG_JT_VARIABLE_BEGIN] = "'{{'",
        [TG_JT_VARIABLE_END] = "'}}'",
        [TG_JT_BLOCK_BEGIN] = "'{%'",
        [TG_JT_BLOCK_END] = "'%}'",
        [TG_JT_NAME] = "name",
        [TG_JT_STRING] = "a string",
        [TG_JT_INT] = "a number",
        [TG_JT_FLOAT] = "a number",
        [TG_JT_OPERATOR] = "operator",
    };
    if (t->kind == TG_JT_NAME || t->kind == TG_JT_OPERATOR)
        snprintf(out, size, "'%.*s'", (int)TG_MIN(t->text.len, 60u), t->text.ptr);
    else
        snprintf(out, size, "%s", names[t->kind]);
}

void tg_jp_fail_expected(tg_jparser *p, const char *what)
{
    char found[80];
    const tg_jtok *t = tg_jp_peek(p, 0);
    describe(found, sizeof found, t);
    tg_jp_fail(p, TG_E_CORRUPT, t->pos, "expected %s, found %s", what, found);
}

const tg_jtok *tg_jp_peek(const tg_jparser *p, int32_t ahead)
{
    return &p->toks.items[TG_MIN(p->at + ahead, p->toks.n - 1)];
}

const tg_jtok *tg_jp_next(tg_jparser *p)
{
    const tg_jtok *t = tg_jp_peek(p, 0);
    if (p->at < p->toks.n - 1) p->at++;
    return t;
}

bool tg_jp_is_token(const tg_jtok *t, tg_jtok_kind kind, const char *text)
{
    return t->kind == kind && tg_str_is(t->text, text);
}

bool tg_jp_is_op(const tg_jparser *p, const char *op)
{
    return tg_jp_is_token(tg_jp_peek(p, 0), TG_JT_OPERATOR, op);
}

bool tg_jp_is_name(const tg_jparser *p, const char *name)
{
    return tg_jp_is_token(tg_jp_peek(p, 0), TG_JT_NAME, name);
}

bool tg_jp_skip_op(tg_jparser *p, const char *op)
{
    bool is = tg_jp_is_op(p, op);
    if (is) tg_jp_next(p);
    return is;
}

bool tg_jp_skip_name(tg_jparser *p, const char *name)
{
    bool is = tg_jp_is_name(p, name);
    if (is) tg_jp_next(p);
    return is;
}

static bool expect(tg_jparser *p, bool is_there, const char *what)
{
    char quoted[40];
    if (is_there) return true;
    snprintf(quoted, sizeof quoted, "'%s'", what);
    tg_jp_fail_expected(p, quoted);
    return false;
}

bool tg_jp_expect_op(tg_jparser *p, const char *op)
{
    return expect(p, tg_jp_skip_op(p, op), op);
}

bool tg_jp_expect_name(tg_jparser *p, const char *name)
{
    return expect(p, tg_jp_skip_name(p, name), name);
}

bool tg_jp_enter(tg_jparser *p)
{
    if (p->depth >= TG_JP_MAX_DEPTH) {
        tg_jp_fail(p, TG_E_LIMIT, tg_jp_peek(p, 0)->pos,
                   "brackets and blocks are nested more than %d deep", TG_JP_MAX_DEPTH);
        return false;
    }
    p->depth++;
    return !tg_jp_is_failed(p);
}

/* ---- memory and names */

void *tg_jp_alloc(tg_jparser *p, size_t n_bytes)
{
    void *q = tg_arena_alloc(p->arena, n_bytes);
    if (!q && !tg_jp_is_failed(p)) {
        p->status = tg_fail_nomem(p->e, n_bytes, "a template's tree");
        p->at = p->toks.n - 1;
    }
    return q;
}

/* After a failure every request gets the same node of no meaning, so that the descent need not
 * look; it is not read, since the parse has failed. */
tg_jnode *tg_jp_node(tg_jparser *p, tg_jnode_kind kind, int32_t pos)
{
    tg_jnode *n = tg_jp_is_failed(p) ? NULL : tg_jp_alloc(p, sizeof *n);
    if (!n) {
        p->dummy = (tg_jnode){.kind = TG_JN_CONST};
        return &p->dummy;
    }
    n->kind = kind;
    n->pos = pos;
    n->symbol = -1;
    return n;
}

void tg_jp_add(tg_jparser *p, tg_jp_list *l, tg_jnode *n)
{
    if (l->n == l->size) {
        int32_t size = l->size ? l->size * 2 : 4;
        tg_jnode **items = tg_jp_alloc(p, (size_t)size * sizeof(tg_jnode *));
        if (!items) return;
        if (l->n) memcpy(items, l->items, (size_t)l->n * sizeof *items);
        l->items = items;
        l->size = size;
    }
    l->items[l->n++] = n;
}

static uint32_t hash_name(tg_str s)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * 16777619u;
    return h;
}

static int32_t *find_slot(const tg_jparser *p, tg_str name)
{
    uint32_t mask = (uint32_t)p->index_size - 1, i = hash_name(name) & mask;
    while (p->index[i] && !tg_str_is_equal(p->t->symbols[p->index[i] - 1], name))
        i = (i + 1) & mask;
    return &p->index[i];
}

/* Twice the symbols, and a table four times as large. */
static bool grow_symbols(tg_jparser *p)
{
    int32_t size = p->symbols_size ? p->symbols_size * 2 : 64;
    tg_str *symbols = tg_jp_alloc(p, (size_t)size * sizeof *symbols);
    int32_t *index = tg_jp_alloc(p, (size_t)size * 4 * sizeof *index);
    if (!symbols || !index) return false;
    if (p->t->n_symbols) memcpy(symbols, p->t->symbols, (size_t)p->t->n_symbols * sizeof *symbols);
    p->t->symbols = symbols;
    p->symbols_size = size;
    p->index = index;
    p->index_size = size * 4;
    for (int32_t i = 0; i < p->t->n_symbols; i++)
        *find_slot(p, symbols[i]) = i + 1;
    return true;
}

int32_t tg_jp_symbol(tg_jparser *p, tg_str name)
{
    /* A stranger may choose names that all fall into one place of the table. */
    enum { MAX_SYMBOLS = 8192 };
    if (p->t->n_symbols >= MAX_SYMBOLS) {
        tg_jp_fail(p, TG_E_LIMIT, tg_jp_peek(p, 0)->pos, "more than %d variables are named",
                   MAX_SYMBOLS);
        return 0;
    }
    if (p->t->n_symbols == p->symbols_size && !grow_symbols(p)) return 0;
    int32_t *slot = find_slot(p, name);
    if (!*slot) {
        p->t->symbols[p->t->n_symbols] = name;
        *slot = ++p->t->n_symbols;
    }
    return *slot - 1;
}
