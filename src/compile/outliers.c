/* SPDX-License-Identifier: Apache-2.0
 * outliers.c - the table of outlier groups: the lists of all weights, equal ones stored once. */
#include "compile/compile.h"

#include <inttypes.h>
#include <string.h>

typedef struct builder {
    tg_weight_entry *weights; /* the new table */
    int32_t n_weights;        /* filled so far */
    tg_buf lists;             /* int32_t each */
    int32_t *list;            /* of one weight */
} builder;

static const int32_t *get_lists(const builder *w)
{
    return (const int32_t *)(const void *)w->lists.ptr;
}

/* Where an equal list stands, or a new place at the end. */
static int32_t add_list(builder *w, int32_t n)
{
    size_t n_bytes = (size_t)n * sizeof *w->list;
    if (n == 0) return 0;
    for (int32_t i = 0; i < w->n_weights; i++) {
        const tg_weight_entry *x = &w->weights[i];
        if (x->n_outliers == n && memcmp(get_lists(w) + x->first_outlier, w->list, n_bytes) == 0)
            return x->first_outlier;
    }
    int32_t at = (int32_t)(w->lists.len / sizeof *w->list);
    tg_buf_add(&w->lists, w->list, n_bytes);
    return at;
}

static tg_status set_entry(builder *w, tg_weight_entry *x, tg_choose_outliers_fn *choose,
                           void *context, tg_err *e)
{
    x->first_outlier = x->n_outliers = 0;
    if (x->is_plain || !tg_layout_rows[x->layout].is_quantized) return TG_OK;
    int32_t n = choose(context, x, w->n_weights, w->list);
    if (n > INT16_MAX)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "weight '%s' has %" PRId64 " columns; two planes are possible for %d of "
                       "them: use int8 activations",
                       tg_weight_role_name((tg_weight_role)x->role), x->cols,
                       INT16_MAX * TG_GROUP_COLS);
    x->first_outlier = add_list(w, n);
    x->n_outliers = n;
    return tg_buf_check(&w->lists, e);
}

static tg_status set_all(builder *w, tg_compiled *c, tg_choose_outliers_fn *choose, void *context,
                         tg_err *e)
{
    tg_program *p = &c->program;
    for (int32_t i = 0; i < p->n_weights; i++) {
        w->weights[i] = p->weights[i];
        TG_TRY(set_entry(w, &w->weights[i], choose, context, e));
        w->n_weights = i + 1;
    }
    size_t n_bytes = w->lists.len;
    int32_t *lists = TG_ARENA_ARRAY(&c->arena, int32_t, n_bytes / sizeof *lists);
    if (!lists) return tg_fail_nomem(e, n_bytes, "the lists of outlier groups");
    if (n_bytes) memcpy(lists, w->lists.ptr, n_bytes);
    p->weights = w->weights;
    p->outliers = lists;
    p->n_outliers = (int32_t)(n_bytes / sizeof *lists);
    return TG_OK;
}

tg_status tg_compiled_set_outliers(tg_compiled *c, tg_choose_outliers_fn *choose, void *context,
                                   tg_err *e)
{
    builder w = {0};
    int64_t most = 1;
    for (int32_t i = 0; i < c->program.n_weights; i++)
        most = TG_MAX(most, tg_div_up(c->program.weights[i].cols, TG_GROUP_COLS));
    w.list = TG_NEW_ARRAY(int32_t, most);
    w.weights = TG_ARENA_ARRAY(&c->arena, tg_weight_entry, c->program.n_weights);
    tg_status s = w.list && w.weights ? set_all(&w, c, choose, context, e)
                                      : tg_fail_nomem(e, (size_t)most * sizeof *w.list,
                                                      "the lists of outlier groups");
    tg_buf_deinit(&w.lists);
    tg_mem_free(w.list);
    return s;
}
