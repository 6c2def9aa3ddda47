/* SPDX-License-Identifier: Apache-2.0
 * jinja_parse.h - the parser's state, shared by expressions and statements.
 *
 * Recursive descent over the token array, in the order of jinja2's parser. Errors are sticky: the
 * first one stays, every later token reads as EOF and the recursion unwinds by itself. */
#ifndef TG_JINJA_JINJA_PARSE_H
#define TG_JINJA_JINJA_PARSE_H

#include "jinja/jinja.h"

enum {
    /* Levels of brackets, blocks and operators. The reference ends at about 90 brackets. */
    TG_JP_MAX_DEPTH = 150,
};

/* Nodes collected before their number is known. */
typedef struct tg_jp_list {
    tg_jnode **items;
    int32_t n, size;
} tg_jp_list;

typedef struct tg_jparser {
    tg_template *t;
    tg_arena *arena;
    tg_jtoks toks;
    int32_t at;
    int32_t depth;
    int32_t tag_pos;    /* of the innermost open tag's name */
    int32_t n_loops;    /* open for loops of this function: break and continue need one */
    int32_t n_soft;     /* open conditions: an unknown filter is an error only when reached */
    tg_jparams *params; /* of the macro being parsed, or NULL */
    tg_jp_list blocks;  /* whose names are taken */
    int32_t *index;     /* hash table of symbol + 1 */
    int32_t index_size, symbols_size;
    tg_jnode dummy; /* what is handed out after a failure */
    tg_status status;
    tg_err *e;
} tg_jparser;

TG_PRINTF(4, 5)
void tg_jp_fail(tg_jparser *p, tg_status s, int32_t pos, const char *fmt, ...);
/* "expected X here, found Y" at the current token. */
void tg_jp_fail_expected(tg_jparser *p, const char *what);
static inline bool tg_jp_is_failed(const tg_jparser *p)
{
    return p->status != TG_OK;
}
const tg_jtok *tg_jp_peek(const tg_jparser *p, int32_t ahead);
const tg_jtok *tg_jp_next(tg_jparser *p);
bool tg_jp_is_token(const tg_jtok *t, tg_jtok_kind kind, const char *text);
bool tg_jp_is_op(const tg_jparser *p, const char *op);
bool tg_jp_is_name(const tg_jparser *p, const char *name);
bool tg_jp_skip_op(tg_jparser *p, const char *op);
bool tg_jp_skip_name(tg_jparser *p, const char *name);
bool tg_jp_expect_op(tg_jparser *p, const char *op);
bool tg_jp_expect_name(tg_jparser *p, const char *name);
/* Counts a level; false, failed, at the limit. Every true is paired with depth--. */
bool tg_jp_enter(tg_jparser *p);

tg_jnode *tg_jp_node(tg_jparser *p, tg_jnode_kind kind, int32_t pos);
void *tg_jp_alloc(tg_jparser *p, size_t n_bytes);
int32_t tg_jp_symbol(tg_jparser *p, tg_str name);

void tg_jp_add(tg_jparser *p, tg_jp_list *l, tg_jnode *n);

/* Expressions: never NULL, a None constant after a failure. */
tg_jnode *tg_jp_expression(tg_jparser *p, bool has_condition);
tg_jnode *tg_jp_primary(tg_jparser *p);
/* One expression, or a tuple of several separated by commas. `end` is a name that ends it too, or
 * NULL; `is_simple` takes primaries only (targets). */
tg_jnode *tg_jp_tuple(tg_jparser *p, bool is_simple, bool has_condition, const char *end,
                      bool has_parens);
/* "name(args)|name..." applied to `a`, which may be NULL: filled in when run. */
tg_jnode *tg_jp_filters(tg_jparser *p, tg_jnode *a, bool is_started);

#endif
