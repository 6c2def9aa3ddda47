/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend.h - attention over one block of 64 keys, f32 and f16, as the avx2 and the avx512
 * tier share it. A tier brings its 16 lanes (tg_v16) and says how many sums it can hold.
 *
 * A call is cut into passes: up to TG_PASS_MAX queries whose sums fit the registers, so that each
 * load of K and V serves all of them. Lane = key for the scores, lane = dimension for the values.
 * All passes score before the first adds values, and between them the probabilities of all queries
 * are made: no operation waits for what has only just begun, which took 6 % (Zen 4, 60 queries).
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

enum {
    TG_PASS_MAX = 6,
    TG_PASS_REGS = TG_KV_PAGE_TOKENS / 16,
    TG_PASS_SIDE = 2 * TG_PASS_REGS /* registers of exponentials that take their steps together */
};

/* Lines of the next block that are not yet asked for. Loops keep it in registers, and give it back:
 * with a pointer more than they have room for they would take one through a vector register, which
 * costs a multiplication a third of its time (Zen 4). */
typedef struct tg_feed {
    const char *at, *end;
} tg_feed;

typedef struct tg_pass_memory tg_pass_memory;

/* Queries that each see at least one key, neighbours in the call, and the block. */
typedef struct tg_pass {
    const void *k, *v;
    int64_t dim;
    float scale, softcap;
    bool is_more; /* merge into m, l, o */
    const float *const *q;
    float *m, *l, *o;
    const int32_t *first, *last;
    int32_t low, high; /* [low, high): keys that one of them sees */
    int32_t from, to;  /* [from, to): keys that all see; from = to = high where there are none */
    int32_t at, n;     /* the first query's place in the call, and how many there are */
    float *p;          /* [n][TG_KV_PAGE_TOKENS] in t, of these queries */
    tg_pass_memory *t;
} tg_pass;

/* What the steps of a call leave to each other, at the head of the scratch; of a whole call where
 * not of one pass. Maxima and sums are folded for sixteen queries, also beyond the last. */
struct tg_pass_memory {
    float p[TG_ATTEND_MAX_QUERIES][TG_KV_PAGE_TOKENS]; /* scores, then probabilities */
    float lanes[TG_ATTEND_MAX_QUERIES + 16][16];       /* maxima, then sums, to be folded */
    float top[TG_ATTEND_MAX_QUERIES + 16];             /* m of the block */
    float old[TG_ATTEND_MAX_QUERIES + 16];             /* weights of the running sums */
    float now[TG_ATTEND_MAX_QUERIES + 16];             /* and of the block */
    bool is_first[TG_ATTEND_MAX_QUERIES];              /* the query has no running sums */
    float sum[TG_PASS_MAX][TG_KV_PAGE_TOKENS];     /* bf16: o of some dimensions before merging */
    uint16_t pair[TG_PASS_MAX][TG_KV_PAGE_TOKENS]; /* bf16: probabilities */
    uint8_t code[TG_PASS_MAX][TG_KV_PAGE_TOKENS];  /* q8: probabilities */
    float scale[TG_PASS_MAX];                      /* and what one is worth */
    float heavy[TG_ATTEND_MAX_QUERIES + 16][16];   /* q16: maxima of weights, to be folded */
    float unit[TG_ATTEND_MAX_QUERIES + 16];        /* what a weight's code is worth, */
    float inv[TG_ATTEND_MAX_QUERIES + 16];         /* and what makes codes of weights */
    tg_pass passes[TG_ATTEND_MAX_QUERIES];
    tg_feed feed;
};

_Static_assert(sizeof(tg_pass_memory) <= TG_ATTEND_SCRATCH_BYTES,
               "the scratch of attend is too small");

/* The two halves of a pass: scores, and the sums of values. The table of a tier and type holds one
 * pair for each number of queries. */
typedef void tg_pass_fn(const tg_pass *x);

typedef struct tg_pass_halves {
    tg_pass_fn *score, *add;
} tg_pass_halves;

/* The functions name_score_n and name_add_n, for n queries: a call each, inlined. */
#define TG_PASS_INSTANCE(name, n, score_call, add_call)                                            \
    static void name##_score_##n(const tg_pass *x)                                                 \
    {                                                                                              \
        score_call;                                                                                \
    }                                                                                              \
    static void name##_add_##n(const tg_pass *x)                                                   \
    {                                                                                              \
        add_call;                                                                                  \
    }

#define TG_PASS_HALVES(name, n)                                                                    \
    {                                                                                              \
        name##_score_##n, name##_add_##n                                                           \
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
TG_INLINE void tg_feed_ask(tg_feed *f, int n)
{
    for (int i = 0; i < n && f->at < f->end; i++, f->at += 64)
        _mm_prefetch(f->at, _MM_HINT_T1);
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
    TG_UNROLL
    for (int i = 0; i < n_regs; i++)
        sums[i] = n <= 4 ? tg_v16_fma_one(a, b[i], sums[i]) : tg_v16_fma(all, b[i], sums[i]);
}

/* sums += the pair of int16 at a, times those of b. */
TG_INLINE void tg_pass_multiply_pairs(int n, int n_regs, const void *a, const tg_i16 *b,
                                      tg_i16 *sums)
{
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
    tg_i16 all = tg_i16_set(pair);
    TG_UNROLL
    for (int i = 0; i < n_regs; i++)
        sums[i] =
            n <= 4 ? tg_i16_dot_pair_one(sums[i], a, b[i]) : tg_i16_dot_pair(sums[i], all, b[i]);
}

/* Scores of n queries for the keys of registers [r, r + n_regs), into p. */
TG_INLINE void tg_pass_score(const tg_pass *x, tg_kv_type type, int n, int64_t r, int n_regs)
{
    tg_v16 s[TG_PASS_MAX][TG_PASS_REGS];
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        TG_UNROLL
        for (int i = 0; i < n_regs; i++)
            s[j][i] = tg_v16_set(0);
    }
    tg_feed feed = x->t->feed;
    for (int64_t d = 0; d < x->dim; d++) {
        tg_v16 k[TG_PASS_REGS];
        tg_feed_ask(&feed, tg_pass_lines(type, n_regs));
        TG_UNROLL
        for (int i = 0; i < n_regs; i++)
            k[i] = tg_pass_load(type, x->k, d * TG_KV_PAGE_TOKENS + 16 * (r + i), 16);
        TG_UNROLL
        for (int j = 0; j < n; j++)
            tg_pass_multiply(n, n_regs, &x->q[j][d], k, s[j]);
    }
    x->t->feed = feed;
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        TG_UNROLL
        for (int i = 0; i < n_regs; i++)
            tg_v16_store(x->p + j * TG_KV_PAGE_TOKENS + 16 * (r + i), 16,
                         tg_v16_mul(tg_v16_set(x->scale), s[j][i]));
    }
}

/* Contract 15. */
TG_INLINE tg_v16 tg_pass_softcap(tg_v16 s, float softcap)
{
    tg_v16 c = tg_v16_set(softcap), one = tg_v16_set(1), two = tg_v16_set(2);
    tg_v16 e = tg_v16_exp(tg_v16_mul(two, tg_v16_div(s, c)));
    return tg_v16_mul(c, tg_v16_sub(one, tg_v16_div(two, tg_v16_add(one, e))));
}

/* ---- probabilities, of all queries of a run: neighbours that see something
 *
 * `regs` is how many registers of a query's 64 places there are to work on, 1 where all queries see
 * only keys of the first: the newest block of a context. Keys beyond are neither read nor
 * multiplied, here and in what follows. */

TG_INLINE bool tg_pass_is_edge(const tg_pass *x, int32_t j)
{
    return x->first[j] > 0 || x->last[j] < TG_KV_PAGE_TOKENS - 1;
}

TG_INLINE bool tg_pass_is_scaled(tg_kv_type type)
{
    return type != TG_KV_BF16 && type != TG_KV_Q8;
}

/* Scores of one query as contract 12 has them, in place, and the maximum of each lane. Unseen
 * places may hold anything. */
TG_INLINE void tg_pass_find_top(const tg_pass *x, tg_kv_type type, int32_t j, int regs,
                                bool is_edge)
{
    float *p = x->p + j * TG_KV_PAGE_TOKENS;
    float scale = type == TG_KV_Q8 ? x->scale * 0x1p-5f : x->scale, softcap = x->softcap;
    int32_t first = x->first[j], last = x->last[j];
    tg_v16 top = tg_v16_set(-INFINITY);
    TG_UNROLL
    for (int r = 0; r < regs; r++) { /* max(new, old): new > old ? new : old */
        tg_v16 s = tg_v16_load(p + 16 * r, 16);
        if (!tg_pass_is_scaled(type)) s = tg_v16_mul(tg_v16_set(scale), s);
        if (softcap > 0) s = tg_pass_softcap(s, softcap);
        if (!tg_pass_is_scaled(type) || softcap > 0) tg_v16_store(p + 16 * r, 16, s);
        if (is_edge) s = tg_v16_select(tg_m16_range(first, last, 16 * r), s, tg_v16_set(-INFINITY));
        top = tg_v16_max(s, top);
    }
    tg_v16_store(x->t->lanes[x->at + j], 16, top);
}

/* Probabilities of n queries, n * regs <= TG_PASS_SIDE, +0 where they do not see, and the sum of
 * each lane. Of q16 they become weights, whose maximum of each lane is kept too. */
TG_INLINE void tg_pass_soften(const tg_pass *x, tg_kv_type type, int32_t j, int n, int regs,
                              bool is_edge)
{
    tg_v16 e[TG_PASS_SIDE], sum[TG_PASS_SIDE], heavy[TG_PASS_SIDE];
    const float *top = x->t->top + x->at + j;
    float *p = x->p + j * TG_KV_PAGE_TOKENS, *lanes = x->t->lanes[x->at + j];
    const int32_t *first = x->first + j, *last = x->last + j;
    TG_UNROLL
    for (int i = 0; i < n * regs; i++) {
        int k = i / regs, r = i % regs;
        e[i] = tg_v16_sub(tg_v16_load(p + k * TG_KV_PAGE_TOKENS + 16 * r, 16), tg_v16_set(top[k]));
    }
    tg_v16_exp_each(e, n * regs);
    TG_UNROLL
    for (int k = 0; k < n; k++)
        sum[k] = heavy[k] = tg_v16_set(0);
    const float *sv = type == TG_KV_Q16 ? x->v : NULL; /* scales come first */
    TG_UNROLL
    for (int i = 0; i < n * regs; i++) {
        int k = i / regs, r = i % regs;
        if (type == TG_KV_BF16) e[i] = tg_v16_round_bf16(e[i]);
        tg_v16 w = e[i];
        if (type == TG_KV_Q16) w = tg_v16_mul(w, tg_v16_load(sv + 16 * r, 16));
        if (is_edge) {
            tg_m16 seen = tg_m16_range(first[k], last[k], 16 * r);
            e[i] = tg_v16_select(seen, e[i], tg_v16_set(0));
            w = tg_v16_select(seen, w, tg_v16_set(0));
        }
        sum[k] = tg_v16_add(sum[k], e[i]);
        if (type == TG_KV_Q16) heavy[k] = tg_v16_max_bits(w, heavy[k]);
        tg_v16_store(p + k * TG_KV_PAGE_TOKENS + 16 * r, 16, w);
    }
    TG_UNROLL
    for (int k = 0; k < n; k++) {
        tg_v16_store(lanes + 16 * k, 16, sum[k]);
        if (type == TG_KV_Q16) tg_v16_store(x->t->heavy[x->at + j + k], 16, heavy[k]);
    }
}

/* q16: what makes codes of the weights of n <= 16 queries, and what one is worth. Of weights that
 * are not finite, or too small, codes are 0. */
TG_INLINE void tg_pass_find_units(const tg_pass *x, int32_t j, int n)
{
    int32_t at = x->at + j;
    tg_v16 most = tg_v16_set(TG_KV_Q16_TOP_WEIGHT), zero = tg_v16_set(0);
    tg_v16 top = tg_v16_fold_each_max_bits(x->t->heavy[at], n), inv = tg_v16_div(most, top);
    tg_m16 is_finite = tg_v16_is_finite(top),
           has_codes = tg_m16_and(is_finite, tg_v16_is_finite(inv));
    tg_v16 without = tg_v16_select(is_finite, zero, tg_v16_set(NAN));
    tg_v16_store(x->t->inv + at, 16, tg_v16_select(has_codes, inv, zero));
    tg_v16_store(x->t->unit + at, 16, tg_v16_select(has_codes, tg_v16_div(top, most), without));
}

/* The weights of query j become codes, in place: pairs of int16. */
TG_INLINE void tg_pass_code(const tg_pass *x, int32_t j, int regs)
{
    float *p = x->p + j * TG_KV_PAGE_TOKENS;
    tg_v16 inv = tg_v16_set(x->t->inv[x->at + j]), w[TG_PASS_REGS];
    w[1] = tg_v16_set(0); /* its place is written also where regs is 1 */
    TG_UNROLL
    for (int r = 0; r < regs; r++)
        w[r] = tg_v16_mul(tg_v16_load(p + 16 * r, 16), inv);
    TG_UNROLL
    for (int r = 0; r < regs; r += 2)
        tg_v16_store_two_i16(p + 8 * r, w[r], w[r + 1]);
}

/* Merges (m, l) of the block into those of n <= 16 queries, and leaves the weights for o. */
TG_INLINE void tg_pass_weigh(const tg_pass *x, int32_t j, int n)
{
    int32_t at = x->at + j;
    float *to_m = x->m + j, *to_l = x->l + j;
    bool *is_first = x->t->is_first + at;
    tg_v16 m = tg_v16_load(x->t->top + at, 16);
    tg_v16 l = tg_v16_fold_each_sum(x->t->lanes[at], n);
    float own[16];
    tg_v16_store(own, 16, l);
    for (int i = 0; i < n; i++)
        is_first[i] = !x->is_more || (to_l[i] == 0 && to_m[i] == -INFINITY);
    if (x->is_more) {
        tg_v16 M = tg_v16_load_first(to_m, n), top = tg_v16_max(M, m);
        tg_v16 w[2] = {tg_v16_sub(M, top), tg_v16_sub(m, top)};
        tg_v16_exp_each(w, 2);
        tg_v16_store(x->t->old + at, 16, w[0]);
        tg_v16_store(x->t->now + at, 16, w[1]);
        m = top;
        l = tg_v16_fma(tg_v16_load_first(to_l, n), w[0], tg_v16_mul(l, w[1]));
    }
    tg_v16_store_first(to_m, n, m);
    tg_v16_store_first(to_l, n, l);
    for (int i = 0; i < n && x->is_more; i++)
        if (is_first[i]) {
            to_m[i] = x->t->top[at + i];
            to_l[i] = own[i];
        }
}

/* tg_pass_soften of n queries, as many together as have room. */
TG_INLINE void tg_pass_soften_each(const tg_pass *x, tg_kv_type type, int32_t n, int regs)
{
    int32_t j = 0;
    for (; regs == 1 && j + 4 <= n; j += 4)
        tg_pass_soften(x, type, j, 4, regs, true);
    for (; j + 2 <= n; j += 2)
        if (regs == 1 || tg_pass_is_edge(x, j) || tg_pass_is_edge(x, j + 1))
            tg_pass_soften(x, type, j, 2, regs, true);
        else
            tg_pass_soften(x, type, j, 2, regs, false);
    if (j < n) tg_pass_soften(x, type, j, 1, regs, true);
}

/* Each step for all n queries before the next. */
TG_INLINE void tg_pass_soften_run(const tg_pass *x, tg_kv_type type, int32_t n, int regs)
{
    tg_pass_memory *t = x->t;
    for (int32_t j = 0; j < n; j++)
        if (regs == 1 || tg_pass_is_edge(x, j))
            tg_pass_find_top(x, type, j, regs, true);
        else
            tg_pass_find_top(x, type, j, regs, false);
    for (int32_t j = 0; j < n; j += 16)
        tg_v16_store(t->top + x->at + j, 16,
                     tg_v16_fold_each_max(t->lanes[x->at + j], TG_MIN(n - j, 16)));
    tg_pass_soften_each(x, type, n, regs);
    for (int32_t j = 0; j < n; j += 16)
        tg_pass_weigh(x, j, TG_MIN(n - j, 16));
    if (type != TG_KV_Q16) return;
    for (int32_t j = 0; j < n; j += 16)
        tg_pass_find_units(x, j, TG_MIN(n - j, 16));
    for (int32_t j = 0; j < n; j++)
        tg_pass_code(x, j, regs);
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
    const float *p = x->p;
    tg_feed feed = x->t->feed;
    for (int32_t key = from; key < to; key++) {
        int64_t at = key * x->dim + z.d;
        tg_v16 v[TG_PASS_REGS];
        tg_feed_ask(&feed, tg_pass_lines(type, z.n_regs));
        TG_UNROLL
        for (int r = 0; r < z.n_regs; r++)
            v[r] = tg_pass_load(type, x->v, at + 16 * r, z.lanes);
        TG_UNROLL
        for (int j = 0; j < z.n; j++) {
            if (is_edge && (key < x->first[j] || key > x->last[j])) continue;
            tg_pass_multiply(z.n, z.n_regs, p + j * TG_KV_PAGE_TOKENS + key, v, y->o[j]);
        }
    }
    x->t->feed = feed;
}

/* Merges the sums of a block into o, or makes them o. */
TG_INLINE void tg_pass_put(const tg_pass *x, tg_pass_dims z, const tg_pass_sums *y)
{
    TG_UNROLL
    for (int j = 0; j < z.n; j++) {
        int32_t query = x->at + j;
        tg_v16 old = tg_v16_set(x->t->old[query]), now = tg_v16_set(x->t->now[query]);
        TG_UNROLL
        for (int r = 0; r < z.n_regs; r++) {
            float *to = x->o + j * x->dim + z.d + 16 * r;
            tg_v16 o = y->o[j][r];
            if (!x->t->is_first[query])
                o = tg_v16_fma(tg_v16_load(to, z.lanes), old, tg_v16_mul(o, now));
            tg_v16_store(to, z.lanes, o);
        }
    }
}

TG_INLINE void tg_pass_clear(tg_pass_dims z, tg_pass_sums *y)
{
    TG_UNROLL
    for (int j = 0; j < z.n; j++) {
        TG_UNROLL
        for (int r = 0; r < z.n_regs; r++)
            y->o[j][r] = tg_v16_set(0);
    }
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

/* The halves of a pass of n queries, `regs` registers of keys or dimensions at a time; all three
 * are constants where this is used. */
TG_INLINE void tg_pass_score_all(const tg_pass *x, tg_kv_type type, int n, int regs)
{
    int high = (x->high + 15) / 16;
    for (int r = x->low / 16; r < high;) {
        bool is_whole = r + regs <= high;
        if (is_whole)
            tg_pass_score(x, type, n, r, regs);
        else
            tg_pass_score(x, type, n, r, 1);
        r += is_whole ? regs : 1;
    }
}

TG_INLINE void tg_pass_add_all(const tg_pass *x, tg_kv_type type, int n, int regs)
{
    int64_t d = 0;
    for (; d + 16 * regs <= x->dim; d += 16 * regs)
        tg_pass_add_dims(x, type, (tg_pass_dims){n, regs, d, 16});
    for (; d < x->dim; d += 16)
        tg_pass_add_dims(x, type, (tg_pass_dims){n, 1, d, x->dim - d});
}

/* ---- passes of a call */

/* The pass that begins with query i: up to `most` of them, before one that sees nothing. */
TG_INLINE void tg_pass_place(tg_pass *x, const tg_attend *a, int32_t i, int most)
{
    *x = (tg_pass){.k = a->k,
                   .v = a->v,
                   .dim = a->head_dim,
                   .scale = a->scale,
                   .softcap = a->softcap,
                   .is_more = a->is_more,
                   .q = a->q + i,
                   .m = a->m + i,
                   .l = a->l + i,
                   .o = a->o + (int64_t)i * a->head_dim,
                   .first = a->first + i,
                   .last = a->last + i,
                   .low = TG_KV_PAGE_TOKENS,
                   .to = TG_KV_PAGE_TOKENS,
                   .at = i,
                   .p = ((tg_pass_memory *)a->scratch)->p[i],
                   .t = a->scratch};
    int32_t n = 0;
    for (; n < most && i + n < a->n_queries && x->first[n] <= x->last[n]; n++) {
        x->low = TG_MIN(x->low, x->first[n]);
        x->high = TG_MAX(x->high, x->last[n] + 1);
        x->from = TG_MAX(x->from, x->first[n]);
        x->to = TG_MIN(x->to, x->last[n] + 1);
    }
    x->n = n;
    if (x->from >= x->to) x->from = x->to = x->high;
}

TG_INLINE void tg_pass_skip(const tg_attend *a, int32_t i)
{
    if (a->is_more) return;
    a->m[i] = -INFINITY;
    a->l[i] = 0;
    memset(a->o + (int64_t)i * a->head_dim, 0, (size_t)a->head_dim * sizeof(float));
}

/* Passes of at most `most` queries over all that see anything: all scores, all probabilities, then
 * all sums, so that one half of the block at a time is in L1. */
TG_INLINE void tg_pass_run_all(const tg_attend *a, tg_kv_type type, int most,
                               const tg_pass_halves *of)
{
    tg_pass_memory *t = a->scratch;
    tg_pass *end = t->passes;
    TG_ASSERT(a->n_queries <= TG_ATTEND_MAX_QUERIES);
    t->feed = (tg_feed){a->next, a->next};
    if (a->next) t->feed.end += 2 * ((const char *)a->v - (const char *)a->k);
    for (int32_t i = 0; i < a->n_queries;) {
        tg_pass_place(end, a, i, most);
        i += end->n;
        if (end->n == 0) {
            tg_pass_skip(a, i++);
            continue;
        }
        of[end->n - 1].score(end);
        end++;
    }
    for (const tg_pass *x = t->passes; x < end;) {
        const tg_pass *run = x;
        int32_t n = 0, high = 0;
        for (; x < end && x->at == run->at + n; x++) {
            n += x->n;
            high = TG_MAX(high, x->high);
        }
        if (high <= 16)
            tg_pass_soften_run(run, type, n, 1);
        else
            tg_pass_soften_run(run, type, n, TG_PASS_REGS);
    }
    for (const tg_pass *x = t->passes; x < end; x++)
        of[x->n - 1].add(x);
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

/* y, M and all lanes of L += block b, whose weights go from one register to the next. For a few
 * blocks, as a step of few tokens at a small depth has them: there the weights of up to 16, which
 * pass through memory, took as long as all else. */
TG_INLINE void tg_parts_add_one(float *y, const tg_attend_parts *x, int32_t b, float *M, tg_v16 *L)
{
    float m = x->m[b * x->step], l = x->l[b * x->step], top = *M > m ? *M : m;
    const float *o = x->o + b * x->o_step;
    if (l == 0) return;
    tg_v16 w[2] = {tg_v16_set(*M - top), tg_v16_set(m - top)};
    tg_v16_exp_each(w, 2);
    *M = top;
    *L = tg_v16_fma(*L, w[0], tg_v16_mul(tg_v16_set(l), w[1]));
    for (int32_t d = 0, n = x->head_dim; d < n; d += 16) {
        tg_v16 now = tg_v16_mul(tg_v16_load(o + d, n - d), w[1]);
        tg_v16_store(y + d, n - d, tg_v16_fma(tg_v16_load(y + d, n - d), w[0], now));
    }
}

TG_INLINE void tg_parts_finish(float *y, const tg_attend_parts *x)
{
    enum { FEW = 4 };
    int32_t b = 0, dim = x->head_dim;
    while (b < x->n_blocks && x->l[b * x->step] == 0)
        b++;
    if (b == x->n_blocks) {
        memset(y, 0, (size_t)dim * sizeof *y);
        return;
    }
    float M = x->m[b * x->step], L = x->l[b * x->step];
    memcpy(y, x->o + b * x->o_step, (size_t)dim * sizeof *y);
    b++;
    if (x->n_blocks - b < FEW) {
        float lanes[16];
        tg_v16 all = tg_v16_set(L);
        for (; b < x->n_blocks; b++)
            tg_parts_add_one(y, x, b, &M, &all);
        tg_v16_store(lanes, 16, all);
        L = lanes[0];
    }
    for (; b < x->n_blocks; b += 16) {
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
            to_k[(size_t)(d + i) * TG_KV_PAGE_TOKENS] = h[i];
        _mm_storeu_si128((__m128i *)(void *)(to_v + d), b);
    }
}

#endif
