/* SPDX-License-Identifier: Apache-2.0
 * attend.c - attention over pages: how queries and KV blocks (pages) are dealt to threads.
 *
 * The contract (kernel_attend.h 12) fixes the arithmetic of a block and of merging blocks in
 * ascending order; this file only decides who computes what. Two ways, with the same bits:
 *
 *  decode   (up to TG_STEP_GEMV_TOKENS tokens) items are (row, KV block, KV head), in memory order:
 *           threads share the blocks of a long context, leave (m, l, o) of each in `partial`, wait
 *           at a barrier, and merge head by head. While the kernel works on one item it fetches the
 *           next.
 *  prefill  (more tokens) items are (run of tokens of one row, KV head): a thread walks all blocks
 *           of an item and merges as it goes.
 *
 * Queries that share a KV head are given to the kernel together, so that a page is read once. */
#include "device/step.h"

/* Queries of consecutive tokens of one row that share a KV head: n_heads of its query heads (all of
 * them, unless they are more than the kernel takes) times n_tokens. */
typedef struct query_set {
    int32_t n, first_token, n_tokens, kv_head, first_head, n_heads;
    const float *q[TG_ATTEND_MAX_QUERIES];
    int32_t begin[TG_ATTEND_MAX_QUERIES], end[TG_ATTEND_MAX_QUERIES];  /* visible positions */
    int32_t first[TG_ATTEND_MAX_QUERIES], last[TG_ATTEND_MAX_QUERIES]; /* of one block */
    int32_t first_block, end_block; /* blocks that any of them sees */
} query_set;

static int32_t first_visible(const tg_attrs *a, int32_t position)
{
    return a->window > 0 ? TG_MAX(position - a->window + 1, 0) : 0;
}

/* Parts that the query heads of one KV head are cut into. */
static int32_t n_parts(const tg_attrs *a)
{
    return (int32_t)tg_div_up(a->n_heads / a->n_kv_heads, TG_ATTEND_MAX_QUERIES);
}

static int32_t n_head_sets(const tg_attrs *a)
{
    return a->n_kv_heads * n_parts(a);
}

static int32_t token_of(const query_set *z, int32_t i)
{
    return z->first_token + i / z->n_heads;
}

static int32_t head_of(const query_set *z, int32_t i)
{
    return z->first_head + i % z->n_heads;
}

/* Query heads of token 0, and the floats from a token's to the next one's. */
typedef struct query_rows {
    const float *at;
    int64_t stride;
} query_rows;

static void make_set(query_set *z, const tg_step_view *v, const tg_attrs *a, query_rows rows,
                     int32_t first_token, int32_t n_tokens, int32_t head_set)
{
    int32_t group = a->n_heads / a->n_kv_heads;
    int32_t skipped = head_set % n_parts(a) * TG_ATTEND_MAX_QUERIES;
    z->kv_head = head_set / n_parts(a);
    z->first_head = z->kv_head * group + skipped;
    z->n_heads = TG_MIN(group - skipped, TG_ATTEND_MAX_QUERIES);
    z->n = n_tokens * z->n_heads;
    z->first_token = first_token;
    z->n_tokens = n_tokens;
    for (int32_t i = 0; i < z->n; i++) {
        int32_t t = token_of(z, i);
        z->q[i] = rows.at + t * rows.stride + (int64_t)head_of(z, i) * a->head_dim;
        z->begin[i] = first_visible(a, v->tokens.positions[t]);
        z->end[i] = v->tokens.positions[t] + 1;
    }
    z->first_block = z->begin[0] / TG_KV_PAGE_TOKENS;
    z->end_block = (z->end[z->n - 1] - 1) / TG_KV_PAGE_TOKENS + 1;
}

/* Where the results of a block go, one after the other for the queries of a set. */
typedef struct results {
    float *m, *l, *o;
    bool is_more; /* they hold the blocks before */
} results;

static char *get_page(const query_set *z, const tg_step_view *v, int32_t layer, int32_t block,
                      char **values)
{
    int32_t row = v->tokens.token_rows[z->first_token];
    int32_t page = tg_step_page_id(v, v->step->program->layers[layer].kv_group, row, block);
    return tg_step_page(v, layer, page, z->kv_head, values);
}

/* (m, l, o) of every query of the set for one block; `next`: K of the page that follows, or NULL.
 */
static void attend_block(query_set *z, const tg_step_view *v, const tg_instr *x, int32_t layer,
                         int32_t block, const char *next, const results *to)
{
    int32_t base = block * TG_KV_PAGE_TOKENS;
    for (int32_t i = 0; i < z->n; i++) {
        z->first[i] = TG_MAX(z->begin[i] - base, 0);
        z->last[i] = TG_MIN(z->end[i] - base, TG_KV_PAGE_TOKENS) - 1;
    }
    char *values, *k = get_page(z, v, layer, block, &values);
    tg_attend a = {
        .k = k,
        .v = values,
        .head_dim = x->attrs.head_dim,
        .n_queries = z->n,
        .q = z->q,
        .first = z->first,
        .last = z->last,
        .scale = x->attrs.scale,
        .softcap = x->attrs.softcap,
        .is_more = to->is_more,
        .m = to->m,
        .l = to->l,
        .o = to->o,
        .next = next,
        .scratch = v->mine->attend,
    };
    v->step->kernels->attend[v->step->program->kv_type](&a);
}

static float *output_of(const query_set *z, const tg_step_view *v, const tg_instr *x, int32_t i)
{
    int64_t stride;
    float *y = tg_step_value(v, x->out, &stride);
    return y + token_of(z, i) * stride + (int64_t)head_of(z, i) * x->attrs.head_dim;
}

/* ---- prefill */

/* The set's queries in the KV type's form. */
static void convert_set(query_set *z, const tg_step_view *v, const tg_instr *x)
{
    tg_kv_query_fn *convert = v->step->kernels->kv_query[v->step->program->kv_type];
    float *to = v->mine->queries;
    for (int32_t i = 0; i < z->n && convert; i++, to += x->attrs.head_dim) {
        convert(to, z->q[i], x->attrs.head_dim);
        z->q[i] = to;
    }
}

static void walk_blocks(query_set *z, const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    float m[TG_ATTEND_MAX_QUERIES], l[TG_ATTEND_MAX_QUERIES];
    results to = {m, l, v->mine->running, false};
    for (int32_t b = z->first_block; b < z->end_block; b++) {
        char *values, *next = b + 1 < z->end_block ? get_page(z, v, layer, b + 1, &values) : NULL;
        attend_block(z, v, x, layer, b, next, &to);
        to.is_more = true;
    }
    for (int32_t i = 0; i < z->n; i++) {
        tg_attend_parts one = {.head_dim = x->attrs.head_dim,
                               .n_blocks = 1,
                               .m = m + i,
                               .l = l + i,
                               .o = to.o + (int64_t)i * x->attrs.head_dim};
        v->step->kernels->attend_finish(output_of(z, v, x, i), &one);
    }
}

/* Tokens of one query set: as many as fit the kernel, and, where that loses few, so many that the
 * kernel's passes of 6 or 3 queries are full. */
static int32_t tokens_per_set(const tg_attrs *a)
{
    enum { PASS = 6 };
    int32_t group = a->n_heads / a->n_kv_heads, n = TG_MAX(TG_ATTEND_MAX_QUERIES / group, 1);
    for (int32_t full = n; full > n - PASS && full > 0; full--)
        if (full * group % PASS == 0) return full;
    return n;
}

static void attend_prefill(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    int32_t per_set = tokens_per_set(&x->attrs);
    int64_t item = 0;
    query_rows rows;
    rows.at = tg_step_value(v, x->in[0], &rows.stride);
    for (int32_t row = 0; row < v->step->counts.n_rows; row++) {
        int32_t begin = v->tokens.row_tokens[row], end = v->tokens.row_tokens[row + 1];
        for (int32_t t = begin; t < end; t += per_set)
            for (int32_t h = 0; h < n_head_sets(&x->attrs); h++, item++) {
                /* Later tokens see more keys: dealing in turn evens that out. */
                if (item % v->n_threads != v->thread) continue;
                query_set z;
                make_set(&z, v, &x->attrs, rows, t, TG_MIN(per_set, end - t), h);
                convert_set(&z, v, x);
                walk_blocks(&z, v, x, layer);
            }
    }
}

/* ---- decode */

/* Where (m, l, o) of a token, query head and block lie; heads of a set and then the tokens of a
 * step follow one another, so that the kernel writes them there. */
static results partial_of(const tg_step_view *v, const tg_attrs *a, int32_t token, int32_t head,
                          int32_t block)
{
    int32_t n_tokens = v->tokens.n, group = a->n_heads / a->n_kv_heads;
    int32_t in_group = head % group, kv_first = head - in_group;
    int32_t set_first = in_group - in_group % TG_ATTEND_MAX_QUERIES;
    int32_t set_heads = TG_MIN(group - set_first, TG_ATTEND_MAX_QUERIES);
    int64_t n_all = (int64_t)n_tokens * a->n_heads, n_parts = n_all * v->step->plan->bucket.pages;
    int64_t i = block * n_all + (int64_t)(kv_first + set_first) * n_tokens +
                (int64_t)token * set_heads + (in_group - set_first);
    return (results){.m = v->step->partial + i,
                     .l = v->step->partial + n_parts + i,
                     .o = v->step->partial + 2 * n_parts + i * a->head_dim};
}

/* Blocks that the tokens of a row see, as [*first, *end). */
static void find_row_blocks(const tg_step_view *v, const tg_attrs *a, int32_t row, int32_t *first,
                            int32_t *end)
{
    int32_t t = v->tokens.row_tokens[row], n = v->tokens.row_tokens[row + 1] - t;
    *first = first_visible(a, v->tokens.positions[t]) / TG_KV_PAGE_TOKENS;
    *end = v->tokens.positions[t + n - 1] / TG_KV_PAGE_TOKENS + 1;
}

/* Query rows of all tokens in the KV type's form: made once by each thread, since its items
 * come back to them block by block. */
static query_rows convert_rows(const tg_step_view *v, const tg_instr *x)
{
    tg_kv_query_fn *convert = v->step->kernels->kv_query[v->step->program->kv_type];
    query_rows rows, made = {v->mine->queries, (int64_t)x->attrs.n_heads * x->attrs.head_dim};
    rows.at = tg_step_value(v, x->in[0], &rows.stride);
    if (!convert) return rows;
    float *to = v->mine->queries;
    for (int32_t t = 0; t < v->tokens.n; t++, rows.at += rows.stride)
        for (int32_t h = 0; h < x->attrs.n_heads; h++, to += x->attrs.head_dim)
            convert(to, rows.at + (int64_t)h * x->attrs.head_dim, x->attrs.head_dim);
    return made;
}

/* Some of a row's (block, head set) pairs. */
typedef struct row_items {
    int32_t row;
    int64_t begin, end;
} row_items;

static void attend_row_items(const tg_step_view *v, const tg_instr *x, int32_t layer,
                             query_rows rows, row_items y)
{
    int32_t first, last, t = v->tokens.row_tokens[y.row],
                         n_tokens = v->tokens.row_tokens[y.row + 1] - t;
    int32_t fit = tokens_per_set(&x->attrs), n_sets = n_head_sets(&x->attrs);
    find_row_blocks(v, &x->attrs, y.row, &first, &last);
    for (int64_t i = y.begin; i < y.end; i++)
        for (int32_t j = 0; j < n_tokens; j += fit) {
            int32_t block = first + (int32_t)(i / n_sets), set = (int32_t)(i % n_sets);
            query_set z,
                after = {.first_token = t, .kv_head = (set + 1) % n_sets / n_parts(&x->attrs)};
            char *values, *next = NULL;
            if (i + 1 < y.end)
                next = get_page(&after, v, layer, block + (set + 1) / n_sets, &values);
            make_set(&z, v, &x->attrs, rows, t + j, TG_MIN(fit, n_tokens - j), set);
            results to = partial_of(v, &x->attrs, t + j, z.first_head, block);
            tg_step_prefetch(v);
            attend_block(&z, v, x, layer, block, next, &to);
        }
}

static void merge_partials(const tg_step_view *v, const tg_instr *x)
{
    const tg_attrs *a = &x->attrs;
    int64_t begin, end, stride, n_all = (int64_t)v->tokens.n * a->n_heads;
    float *y = tg_step_value(v, x->out, &stride);
    tg_step_share(v, n_all, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int32_t t = (int32_t)(i / a->n_heads), h = (int32_t)(i % a->n_heads);
        int32_t block = first_visible(a, v->tokens.positions[t]) / TG_KV_PAGE_TOKENS;
        results from = partial_of(v, a, t, h, block);
        tg_attend_parts parts = {.head_dim = a->head_dim,
                                 .n_blocks = v->tokens.positions[t] / TG_KV_PAGE_TOKENS + 1 - block,
                                 .m = from.m,
                                 .l = from.l,
                                 .o = from.o,
                                 .step = n_all,
                                 .o_step = n_all * a->head_dim};
        tg_step_prefetch(v);
        v->step->kernels->attend_finish(y + t * stride + (int64_t)h * a->head_dim, &parts);
    }
}

static void attend_decode(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    int64_t begin, end, n_all = 0, before = 0;
    int32_t first, last;
    for (int32_t row = 0; row < v->step->counts.n_rows; row++) {
        find_row_blocks(v, &x->attrs, row, &first, &last);
        n_all += (int64_t)(last - first) * n_head_sets(&x->attrs);
    }
    tg_step_share(v, n_all, &begin, &end);
    query_rows rows = convert_rows(v, x);
    for (int32_t row = 0; row < v->step->counts.n_rows; row++) {
        find_row_blocks(v, &x->attrs, row, &first, &last);
        int64_t n = (int64_t)(last - first) * n_head_sets(&x->attrs);
        attend_row_items(v, x, layer, rows,
                         (row_items){row, TG_MAX(begin - before, 0), TG_MIN(end - before, n)});
        before += n;
    }
    tg_step_barrier(v);
    merge_partials(v, x);
}

void tg_step_attention(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    if (v->tokens.n <= TG_STEP_GEMV_TOKENS)
        attend_decode(v, x, layer);
    else
        attend_prefill(v, x, layer);
}
