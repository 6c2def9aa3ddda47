/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend.h - attention over one block of 64 keys, f32 and f16, as the avx2 and the avx512
 * tier share it. A tier brings its 16 lanes (tg_v16) and says how many sums it can hold.
 *
 * A call is cut into passes: up to TG_PASS_MAX queries whose sums fit the registers, so that each
 * load of K and V serves all of them. Lane = key for the scores, lane = dimension for the values.
 * An f16 is converted where it is used, beside the multiplications; a page converted once for all
 * passes would leave L1. Queries of one pass see different ranges only at a causal or a window's
 * edge: the keys all of them see are added together, the others query by query.
 *
 * Inline only: the tiers are compiled with other flags and may share source, never objects. */
#ifndef TG_KERNEL_AVX2_ATTEND_H
#define TG_KERNEL_AVX2_ATTEND_H

#include "kernel/kernel.h"

#if defined(__AVX512F__)
#include "kernel/avx512.h"
#else
#include "kernel/avx2.h"
#endif

#include <math.h>
#include <string.h>

enum { TG_PASS_MAX = 6, TG_PASS_REGS = TG_PAGE_TOKENS / 16 };

/* What the first half of a pass leaves to the second; at the head of the scratch. */
typedef struct tg_pass_memory {
    float p[TG_PASS_MAX][TG_PAGE_TOKENS];       /* scores, then probabilities */
    float m[16], l[16];                         /* of the block; lane = query */
    float old[16], now[16];                     /* weights of the running sums and of the block */
    bool is_first[16];                          /* the query has no running sums */
    float sum[TG_PASS_MAX][TG_PAGE_TOKENS];     /* bf16: o of some dimensions before merging */
    uint16_t pair[TG_PASS_MAX][TG_PAGE_TOKENS]; /* bf16: probabilities */
    uint8_t code[TG_PASS_MAX][TG_PAGE_TOKENS];  /* q8: probabilities */
    float scale[TG_PASS_MAX];                   /* and what one is worth */
    const char *feed, *feed_end;                /* lines of the next block not yet asked for */
} tg_pass_memory;

_Static_assert(sizeof(tg_pass_memory) <= TG_ATTEND_SCRATCH_BYTES,
               "the scratch of attend is too small");

/* Queries that each see at least one key, neighbours in the call, and the block. */
typedef struct tg_pass {
    const void *k, *v;
    int64_t dim;
    float scale, cap;
    bool is_more; /* merge into m, l, o */
    const float *const *q;
    float *m, *l, *o;
    const int32_t *first, *last;
    int32_t low, high; /* [low, high): keys that one of them sees */
    int32_t from, to;  /* [from, to): keys that all see; from = to = high where there are none */
    tg_pass_memory *t;
} tg_pass;

/* Runs one pass; the table of a tier and type holds one for each number of queries. */
typedef void tg_pass_fn(const tg_pass *x);

/* The function name_n, for n queries: one call, inlined. */
#define TG_PASS_INSTANCE(name, n, call)                                                            \
    static void name##_##n(const tg_pass *x)                                                       \
    {                                                                                              \
        call;                                                                                      \
    }

/* ---- scores */

TG_INLINE tg_v16 tg_pass_load(tg_kv_type type, const void *p, int64_t i, int64_t n)
{
    if (type == TG_KV_F32) return tg_v16_load((const float *)p + i, n);
    return tg_v16_load_f16((const uint16_t *)p + i, n);
}

/* Asks for up to n more lines of the next block, in the order in which they lie, which the
 * hardware's prefetchers then go along with; out of order it took 1.4 times as long, and a line
 * left out costs 150 ns (q8 at depth, Zen 4). To the second level: the first has no room for two
 * blocks. */
TG_INLINE void tg_pass_feed(const tg_pass *x, int n)
{
    const char *at = x->t->feed, *end = x->t->feed_end;
    for (int i = 0; i < n && at < end; i++, at += 64)
        _mm_prefetch(at, _MM_HINT_T1);
    x->t->feed = at;
}

/* Lines of n registers of keys or values. */
TG_INLINE int tg_pass_lines(tg_kv_type type, int n_regs)
{
    return type == TG_KV_F16 ? n_regs / 2 : n_regs;
}

/* sums += *a * b in a pass of n queries. From 5 on a broadcast is spread over enough. */
TG_INLINE void tg_pass_multiply(int n, int n_regs, const float *a, const tg_v16 *b, tg_v16 *sums)
{
    tg_v16 all = tg_v16_set(*a);
    for (int i = 0; i < n_regs; i++)
        sums[i] = n <= 4 ? tg_v16_fma_one(a, b[i], sums[i]) : tg_v16_fma(all, b[i], sums[i]);
}

/* Scores of n queries for the keys of registers [r, r + n_regs), into p. */
TG_INLINE void tg_pass_score(const tg_pass *x, tg_kv_type type, int n, int64_t r, int n_regs)
{
    tg_v16 s[TG_PASS_MAX][TG_PASS_REGS];
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n_regs; i++)
            s[j][i] = tg_v16_set(0);
    for (int64_t d = 0; d < x->dim; d++) {
        tg_v16 k[TG_PASS_REGS];
        tg_pass_feed(x, tg_pass_lines(type, n_regs));
        for (int i = 0; i < n_regs; i++)
            k[i] = tg_pass_load(type, x->k, d * TG_PAGE_TOKENS + 16 * (r + i), 16);
        for (int j = 0; j < n; j++) {
            tg_pass_multiply(n, n_regs, &x->q[j][d], k, s[j]);
        }
    }
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n_regs; i++)
            tg_v16_store(x->t->p[j] + 16 * (r + i), 16, tg_v16_mul(tg_v16_set(x->scale), s[j][i]));
}

/* Contract 15. */
TG_INLINE tg_v16 tg_pass_cap(tg_v16 s, float cap)
{
    tg_v16 c = tg_v16_set(cap), one = tg_v16_set(1), two = tg_v16_set(2);
    tg_v16 e = tg_v16_exp(tg_v16_mul(two, tg_v16_div(s, c)));
    return tg_v16_mul(c, tg_v16_sub(one, tg_v16_div(two, tg_v16_add(one, e))));
}

/* m, l and probabilities of n queries from their scores, of which only those of registers [low,
 * high) exist. Unseen places may hold anything. Scores of bf16 and q8 are not yet scaled. All
 * queries go side by side: one alone would wait for each of its operations. */
TG_INLINE void tg_pass_soften(const tg_pass *x, tg_kv_type type, int n, int low, int high)
{
    tg_v16 top[TG_PASS_MAX], sum[TG_PASS_MAX];
    float scale = type == TG_KV_Q8 ? x->scale * 0x1p-5f : x->scale;
    bool has_cap = x->cap > 0;
    for (int j = 0; j < n; j++)
        top[j] = tg_v16_set(-INFINITY);
    for (int r = low; r < high; r++) /* max(new, old): new > old ? new : old */
        for (int j = 0; j < n; j++) {
            float *p = x->t->p[j] + 16 * r;
            tg_m16 seen = tg_m16_range(x->first[j], x->last[j], 16 * r);
            tg_v16 s = tg_v16_load(p, 16);
            if (type >= TG_KV_BF16) s = tg_v16_mul(tg_v16_set(scale), s);
            if (has_cap) s = tg_pass_cap(s, x->cap);
            if (type >= TG_KV_BF16 || has_cap) tg_v16_store(p, 16, s);
            top[j] = tg_v16_max(tg_v16_select(seen, s, tg_v16_set(-INFINITY)), top[j]);
        }
    tg_v16_store(x->t->m, 16, tg_v16_fold_each_max(top, n));
    for (int j = 0; j < n; j++)
        sum[j] = tg_v16_set(0);
    for (int r = low; r < high; r++)
        for (int j = 0; j < n; j++) {
            float *p = x->t->p[j] + 16 * r;
            tg_m16 seen = tg_m16_range(x->first[j], x->last[j], 16 * r);
            tg_v16 e = tg_v16_exp(tg_v16_sub(tg_v16_load(p, 16), tg_v16_set(x->t->m[j])));
            if (type == TG_KV_BF16) e = tg_v16_round_bf16(e);
            e = tg_v16_select(seen, e, tg_v16_set(0));
            sum[j] = tg_v16_add(sum[j], e);
            tg_v16_store(p, 16, e);
        }
    tg_v16_store(x->t->l, 16, tg_v16_fold_each_sum(sum, n));
}

/* Merges (m, l) of the block and leaves the weights for o, all queries of the pass at once. */
TG_INLINE void tg_pass_weigh(const tg_pass *x, int n)
{
    tg_pass_memory *t = x->t;
    tg_v16 m = tg_v16_load(t->m, 16), l = tg_v16_load(t->l, 16);
    for (int j = 0; j < n; j++)
        t->is_first[j] = !x->is_more || (x->l[j] == 0 && x->m[j] == -INFINITY);
    if (x->is_more) {
        tg_v16 M = tg_v16_load_few(x->m, n), top = tg_v16_max(M, m);
        tg_v16 old = tg_v16_exp(tg_v16_sub(M, top)), now = tg_v16_exp(tg_v16_sub(m, top));
        tg_v16_store(t->old, 16, old);
        tg_v16_store(t->now, 16, now);
        m = top;
        l = tg_v16_fma(tg_v16_load_few(x->l, n), old, tg_v16_mul(l, now));
    }
    tg_v16_store_few(x->m, n, m);
    tg_v16_store_few(x->l, n, l);
    for (int j = 0; j < n && x->is_more; j++)
        if (t->is_first[j]) {
            x->m[j] = t->m[j];
            x->l[j] = t->l[j];
        }
}

/* ---- values */

typedef struct tg_pass_sums {
    tg_v16 o[TG_PASS_MAX][TG_PASS_REGS];
} tg_pass_sums;

/* n_regs x 16 dimensions from d on, of n queries; `lanes` exist in the last register. */
typedef struct tg_pass_dims {
    int n, n_regs;
    int64_t d, lanes;
} tg_pass_dims;

/* o += p V over keys [from, to); is_edge: not all queries see them. */
TG_INLINE void tg_pass_add_keys(const tg_pass *x, tg_kv_type type, tg_pass_dims z, bool is_edge,
                                int32_t from, int32_t to, tg_pass_sums *y)
{
    for (int32_t key = from; key < to; key++) {
        int64_t at = key * x->dim + z.d;
        tg_v16 v[TG_PASS_REGS];
        tg_pass_feed(x, tg_pass_lines(type, z.n_regs));
        for (int r = 0; r < z.n_regs; r++)
            v[r] = tg_pass_load(type, x->v, at + 16 * r, z.lanes);
        for (int j = 0; j < z.n; j++) {
            if (is_edge && (key < x->first[j] || key > x->last[j])) continue;
            tg_pass_multiply(z.n, z.n_regs, &x->t->p[j][key], v, y->o[j]);
        }
    }
}

/* Merges the sums of a block into o, or makes them o. */
TG_INLINE void tg_pass_put(const tg_pass *x, tg_pass_dims z, const tg_pass_sums *y)
{
    for (int j = 0; j < z.n; j++) {
        tg_v16 old = tg_v16_set(x->t->old[j]), now = tg_v16_set(x->t->now[j]);
        for (int r = 0; r < z.n_regs; r++) {
            float *to = x->o + j * x->dim + z.d + 16 * r;
            tg_v16 o = y->o[j][r];
            if (!x->t->is_first[j])
                o = tg_v16_fma(tg_v16_load(to, z.lanes), old, tg_v16_mul(o, now));
            tg_v16_store(to, z.lanes, o);
        }
    }
}

TG_INLINE void tg_pass_clear(tg_pass_dims z, tg_pass_sums *y)
{
    for (int j = 0; j < z.n; j++)
        for (int r = 0; r < z.n_regs; r++)
            y->o[j][r] = tg_v16_set(0);
}

TG_INLINE void tg_pass_add_dims(const tg_pass *x, tg_kv_type type, tg_pass_dims z)
{
    tg_pass_sums y;
    tg_pass_clear(z, &y);
    if (x->low < x->from) tg_pass_add_keys(x, type, z, true, x->low, x->from, &y);
    tg_pass_add_keys(x, type, z, false, x->from, x->to, &y);
    if (x->to < x->high) tg_pass_add_keys(x, type, z, true, x->to, x->high, &y);
    tg_pass_put(x, z, &y);
}

/* A pass of n queries, `regs` registers of keys or dimensions at a time; all three are constants
 * where this is used. */
TG_INLINE void tg_pass_attend(const tg_pass *x, tg_kv_type type, int n, int regs)
{
    int low = x->low / 16, high = (x->high + 15) / 16;
    for (int r = low; r < high;) {
        bool is_whole = r + regs <= high;
        if (is_whole)
            tg_pass_score(x, type, n, r, regs);
        else
            tg_pass_score(x, type, n, r, 1);
        r += is_whole ? regs : 1;
    }
    tg_pass_soften(x, type, n, low, high);
    tg_pass_weigh(x, n);
    int64_t d = 0;
    for (; d + 16 * regs <= x->dim; d += 16 * regs)
        tg_pass_add_dims(x, type, (tg_pass_dims){n, regs, d, 16});
    for (; d < x->dim; d += 16)
        tg_pass_add_dims(x, type, (tg_pass_dims){n, 1, d, x->dim - d});
}

/* ---- passes of a call */

/* Queries [i, i + n) of the call. */
TG_INLINE void tg_pass_run(tg_pass *x, const tg_attend *a, int32_t i, int n,
                           tg_pass_fn *const *instances)
{
    x->q = a->q + i;
    x->m = a->m + i;
    x->l = a->l + i;
    x->o = a->o + (int64_t)i * a->head_dim;
    x->first = a->first + i;
    x->last = a->last + i;
    x->low = x->from = x->first[0];
    x->high = x->to = x->last[0] + 1;
    for (int j = 1; j < n; j++) {
        x->low = TG_MIN(x->low, x->first[j]);
        x->high = TG_MAX(x->high, x->last[j] + 1);
        x->from = TG_MAX(x->from, x->first[j]);
        x->to = TG_MIN(x->to, x->last[j] + 1);
    }
    if (x->from >= x->to) x->from = x->to = x->high;
    instances[n - 1](x);
}

TG_INLINE void tg_pass_skip(const tg_attend *a, int32_t i)
{
    if (a->is_more) return;
    a->m[i] = -INFINITY;
    a->l[i] = 0;
    memset(a->o + (int64_t)i * a->head_dim, 0, (size_t)a->head_dim * sizeof(float));
}

/* Passes of at most `most` queries over all that see anything. */
TG_INLINE void tg_pass_run_all(const tg_attend *a, int most, tg_pass_fn *const *instances)
{
    tg_pass x = {.k = a->k,
                 .v = a->v,
                 .dim = a->head_dim,
                 .scale = a->scale,
                 .cap = a->cap,
                 .is_more = a->is_more,
                 .t = a->scratch};
    x.t->feed = x.t->feed_end = a->next;
    if (a->next) x.t->feed_end += 2 * ((const char *)a->v - (const char *)a->k);
    for (int32_t i = 0; i < a->n_queries;) {
        int n = 0;
        while (n < most && i + n < a->n_queries && a->first[i + n] <= a->last[i + n])
            n++;
        if (n)
            tg_pass_run(&x, a, i, n, instances);
        else
            tg_pass_skip(a, i);
        i += TG_MAX(n, 1);
    }
}

/* ---- parts */

/* Weights of up to 16 blocks that follow a running maximum, which goes on to the last of them. A
 * block with l = 0 gets none. */
typedef struct tg_part_weights {
    float old[16], now[16];
    bool is_empty[16];
} tg_part_weights;

TG_INLINE void tg_parts_weigh(tg_part_weights *w, const tg_attend_parts *x, int32_t from, int32_t n,
                              float *M)
{
    float m[16] = {0}, before[16] = {0}, top[16] = {0};
    for (int32_t i = 0; i < n; i++) {
        int64_t at = (from + i) * x->step;
        w->is_empty[i] = x->l[at] == 0;
        m[i] = x->m[at];
        before[i] = *M;
        if (!w->is_empty[i]) *M = *M > m[i] ? *M : m[i];
        top[i] = *M;
    }
    tg_v16 t = tg_v16_load(top, 16);
    tg_v16_store(w->old, 16, tg_v16_exp(tg_v16_sub(tg_v16_load(before, 16), t)));
    tg_v16_store(w->now, 16, tg_v16_exp(tg_v16_sub(tg_v16_load(m, 16), t)));
}

/* y += n_regs x 16 dimensions of n blocks, the first block's at `o`. */
TG_INLINE void tg_parts_add(float *y, const tg_part_weights *w, const tg_attend_parts *x,
                            const float *o, int32_t n, int n_regs, int64_t lanes)
{
    tg_v16 sum[TG_PASS_REGS];
    for (int r = 0; r < n_regs; r++)
        sum[r] = tg_v16_load(y + 16 * r, lanes);
    for (int32_t i = 0; i < n; i++, o += x->o_step) {
        if (w->is_empty[i]) continue;
        tg_v16 old = tg_v16_set(w->old[i]), now = tg_v16_set(w->now[i]);
        for (int r = 0; r < n_regs; r++)
            sum[r] = tg_v16_fma(sum[r], old, tg_v16_mul(tg_v16_load(o + 16 * r, lanes), now));
    }
    for (int r = 0; r < n_regs; r++)
        tg_v16_store(y + 16 * r, lanes, sum[r]);
}

TG_INLINE void tg_parts_finish(float *y, const tg_attend_parts *x)
{
    int32_t b = 0, dim = x->head_dim;
    while (b < x->n_blocks && x->l[b * x->step] == 0)
        b++;
    if (b == x->n_blocks) {
        memset(y, 0, (size_t)dim * sizeof *y);
        return;
    }
    float M = x->m[b * x->step], L = x->l[b * x->step];
    memcpy(y, x->o + b * x->o_step, (size_t)dim * sizeof *y);
    for (b++; b < x->n_blocks; b += 16) {
        tg_part_weights w;
        int32_t n = TG_MIN(16, x->n_blocks - b), d = 0;
        const float *o = x->o + b * x->o_step;
        tg_parts_weigh(&w, x, b, n, &M);
        for (int32_t i = 0; i < n; i++)
            if (!w.is_empty[i]) L = fmaf(L, w.old[i], x->l[(b + i) * x->step] * w.now[i]);
        for (; d + 64 <= dim; d += 64)
            tg_parts_add(y + d, &w, x, o + d, n, 4, 16);
        for (; d < dim; d += 16)
            tg_parts_add(y + d, &w, x, o + d, n, 1, dim - d);
    }
    if (L == 0) memset(y, 0, (size_t)dim * sizeof *y);
    for (int32_t d = 0; d < dim && L != 0; d += 16)
        tg_v16_store(y + d, dim - d, tg_v16_div(tg_v16_load(y + d, dim - d), tg_v16_set(L)));
}

/* ---- storing */

TG_INLINE void tg_store_f16(void *k, void *v, int32_t slot, const float *key, const float *value,
                            int32_t head_dim)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT };
    uint16_t *to_k = (uint16_t *)k + slot, *to_v = (uint16_t *)v + (size_t)slot * (size_t)head_dim;
    for (int32_t d = 0; d < head_dim; d += 8) {
        _Alignas(16) uint16_t h[8];
        __m128i a = _mm256_cvtps_ph(_mm256_loadu_ps(key + d), NEAREST);
        __m128i b = _mm256_cvtps_ph(_mm256_loadu_ps(value + d), NEAREST);
        _mm_store_si128((__m128i *)(void *)h, a);
        for (int32_t i = 0; i < 8; i++)
            to_k[(size_t)(d + i) * TG_PAGE_TOKENS] = h[i];
        _mm_storeu_si128((__m128i *)(void *)(to_v + d), b);
    }
}

#endif
