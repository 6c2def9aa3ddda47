/* SPDX-License-Identifier: Apache-2.0
 * avx512_attend.c - attention over one block of 64 keys.
 *
 * Lane = key for the scores, lane = dimension for the values, up to 6 queries in registers, so
 * that each load of K and V serves all of them. Queries of one call see different ranges only at
 * a causal or a window's edge; the keys all of them see are added together, the rest query by
 * query, in ascending order. With more than one pass an f16 page is converted once into the
 * scratch. */
#include "kernel/avx512.h"

#include <math.h>
#include <string.h>

enum { PASS = 6, KEYS = TG_PAGE_TOKENS, KEY_REGS = KEYS / 16 };

typedef struct attend_scratch {
    float p[PASS][KEYS]; /* probabilities of a pass */
    float k[512 * KEYS], v[KEYS * 512];
} attend_scratch;

_Static_assert(sizeof(attend_scratch) <= TG_ATTEND_SCRATCH_BYTES,
               "the scratch of attend is too small");

/* A page as it is read: of the call, or converted. */
typedef struct page {
    const void *k, *v;
    int64_t dim;
    float scale;
} page;

/* The queries of a pass: only such as see at least one key. */
typedef struct pass {
    const float *q[PASS];
    float *m[PASS], *l[PASS], *o[PASS];
    int32_t first[PASS], last[PASS];
} pass;

TG_INLINE __m512 load(tg_kv_type type, const void *p, int64_t i)
{
    if (type == TG_KV_F32) return _mm512_loadu_ps((const float *)p + i);
    const __m256i *h = (const __m256i *)(const void *)((const uint16_t *)p + i);
    return _mm512_cvtph_ps(_mm256_loadu_si256(h));
}

TG_INLINE __m512 load_part(tg_kv_type type, const void *p, int64_t i, __mmask16 lanes)
{
    if (type == TG_KV_F32) return _mm512_maskz_loadu_ps(lanes, (const float *)p + i);
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)p + i));
}

/* Places of register r that a query sees. */
TG_INLINE __mmask16 seen(const pass *x, int j, int r)
{
    uint64_t up = ~(uint64_t)0 << x->first[j], down = ~(uint64_t)0 >> (63 - x->last[j]);
    return (__mmask16)((up & down) >> 16 * r);
}

/* m, l and probabilities from the scores of one query. Scores of unseen places may be anything. */
TG_INLINE void soften(const pass *x, int j, const __m512 s[KEY_REGS], float *p)
{
    const __m512 nothing = _mm512_set1_ps(-INFINITY);
    __m512 top = nothing, sum = _mm512_setzero_ps();
    for (int r = 0; r < KEY_REGS; r++) /* maxps(new, old): new > old ? new : old */
        top = _mm512_max_ps(_mm512_mask_mov_ps(nothing, seen(x, j, r), s[r]), top);
    float m = tg_fold_max(top);
    for (int r = 0; r < KEY_REGS; r++) {
        __m512 e = tg_exp16(_mm512_sub_ps(s[r], _mm512_set1_ps(m)));
        e = _mm512_maskz_mov_ps(seen(x, j, r), e);
        sum = _mm512_add_ps(sum, e);
        _mm512_store_ps(p + 16 * r, e);
    }
    *x->m[j] = m;
    *x->l[j] = tg_fold_sum(sum);
}

/* Scores and probabilities of n queries. */
TG_INLINE void score(const page *g, tg_kv_type type, const pass *x, int n, attend_scratch *t)
{
    __m512 s[PASS][KEY_REGS];
    for (int j = 0; j < n; j++)
        for (int r = 0; r < KEY_REGS; r++)
            s[j][r] = _mm512_setzero_ps();
    for (int64_t d = 0; d < g->dim; d++) {
        __m512 k[KEY_REGS];
        for (int r = 0; r < KEY_REGS; r++)
            k[r] = load(type, g->k, d * KEYS + 16 * r);
        for (int j = 0; j < n; j++) {
            __m512 q = _mm512_set1_ps(x->q[j][d]);
            for (int r = 0; r < KEY_REGS; r++)
                s[j][r] = _mm512_fmadd_ps(q, k[r], s[j][r]);
        }
    }
    for (int j = 0; j < n; j++) {
        for (int r = 0; r < KEY_REGS; r++)
            s[j][r] = _mm512_mul_ps(_mm512_set1_ps(g->scale), s[j][r]);
        soften(x, j, s[j], t->p[j]);
    }
}

/* Queries [at, at + n) of a pass, keys [from, to). */
typedef struct span {
    int at, n;
    int32_t from, to;
} span;

/* o += p V over a span, on n_regs x 16 dimensions from d on; `lanes` cuts the last register. */
TG_INLINE void add_dims(const page *g, tg_kv_type type, const pass *x, const attend_scratch *t,
                        span y, int64_t d, int n_regs, __mmask16 lanes)
{
    __m512 o[PASS][4];
    for (int j = 0; j < y.n; j++)
        for (int r = 0; r < n_regs; r++)
            o[j][r] = _mm512_maskz_loadu_ps(lanes, x->o[y.at + j] + d + 16 * r);
    for (int32_t key = y.from; key < y.to; key++) {
        __m512 v[4];
        for (int r = 0; r < n_regs; r++)
            v[r] = load_part(type, g->v, key * g->dim + d + 16 * r, lanes);
        for (int j = 0; j < y.n; j++) {
            __m512 p = _mm512_set1_ps(t->p[y.at + j][key]);
            for (int r = 0; r < n_regs; r++)
                o[j][r] = _mm512_fmadd_ps(p, v[r], o[j][r]);
        }
    }
    for (int j = 0; j < y.n; j++)
        for (int r = 0; r < n_regs; r++)
            _mm512_mask_storeu_ps(x->o[y.at + j] + d + 16 * r, lanes, o[j][r]);
}

TG_INLINE void add_values(const page *g, tg_kv_type type, const pass *x, const attend_scratch *t,
                          span y)
{
    if (y.from >= y.to) return;
    int64_t d = 0;
    for (; d + 64 <= g->dim; d += 64)
        add_dims(g, type, x, t, y, d, 4, 0xffff);
    for (; d < g->dim; d += 16)
        add_dims(g, type, x, t, y, d, 1, tg_mask16(g->dim - d));
}

/* One query alone: the edges of a range. */
static TG_NOINLINE void add_one_f32(const page *g, const pass *x, const attend_scratch *t, int at,
                                    int32_t from, int32_t to)
{
    add_values(g, TG_KV_F32, x, t, (span){at, 1, from, to});
}

static TG_NOINLINE void add_one_f16(const page *g, const pass *x, const attend_scratch *t, int at,
                                    int32_t from, int32_t to)
{
    add_values(g, TG_KV_F16, x, t, (span){at, 1, from, to});
}

TG_INLINE void attend_pass(const page *g, tg_kv_type type, const pass *x, int n, attend_scratch *t)
{
    int32_t from = 0, to = KEYS; /* what all of them see */
    for (int j = 0; j < n; j++) {
        from = TG_MAX(from, x->first[j]);
        to = TG_MIN(to, x->last[j] + 1);
        memset(x->o[j], 0, (size_t)g->dim * sizeof(float));
    }
    score(g, type, x, n, t);
    if (from >= to) from = to = KEYS; /* nothing: each goes alone */
    for (int j = 0; j < n; j++) {
        int32_t end = TG_MIN(from, x->last[j] + 1);
        if (type == TG_KV_F32)
            add_one_f32(g, x, t, j, x->first[j], end);
        else
            add_one_f16(g, x, t, j, x->first[j], end);
    }
    add_values(g, type, x, t, (span){0, n, from, to});
    for (int j = 0; j < n; j++) {
        if (type == TG_KV_F32)
            add_one_f32(g, x, t, j, to, x->last[j] + 1);
        else
            add_one_f16(g, x, t, j, to, x->last[j] + 1);
    }
}

typedef void pass_fn(const page *g, const pass *x, attend_scratch *t);

static void f32_1(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F32, x, 1, t);
}
static void f32_2(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F32, x, 2, t);
}
static void f32_3(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F32, x, 3, t);
}
static void f32_4(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F32, x, 4, t);
}
static void f32_5(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F32, x, 5, t);
}
static void f32_6(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F32, x, 6, t);
}
static void f16_1(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F16, x, 1, t);
}
static void f16_2(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F16, x, 2, t);
}
static void f16_3(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F16, x, 3, t);
}
static void f16_4(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F16, x, 4, t);
}
static void f16_5(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F16, x, 5, t);
}
static void f16_6(const page *g, const pass *x, attend_scratch *t)
{
    attend_pass(g, TG_KV_F16, x, 6, t);
}

static pass_fn *const instances[TG_KV_TYPE_COUNT][PASS] = {
    [TG_KV_F32] = {f32_1, f32_2, f32_3, f32_4, f32_5, f32_6},
    [TG_KV_F16] = {f16_1, f16_2, f16_3, f16_4, f16_5, f16_6},
};

/* An f16 page as floats in the scratch. */
static void convert(page *g, attend_scratch *t)
{
    int64_t n = g->dim * KEYS; /* a multiple of 512 */
    for (int64_t i = 0; i < n; i += 16) {
        _mm512_store_ps(t->k + i, load(TG_KV_F16, g->k, i));
        _mm512_store_ps(t->v + i, load(TG_KV_F16, g->v, i));
    }
    g->k = t->k;
    g->v = t->v;
}

static void attend(const tg_attend *a, tg_kv_type type)
{
    attend_scratch *t = a->scratch;
    page g = {.k = a->k, .v = a->v, .dim = a->head_dim, .scale = a->scale};
    if (type == TG_KV_F16 && a->n_queries > PASS) {
        convert(&g, t);
        type = TG_KV_F32;
    }
    pass x;
    int n = 0;
    for (int32_t i = 0; i < a->n_queries; i++) {
        float *o = a->o + (int64_t)i * a->head_dim;
        if (a->last[i] < a->first[i]) {
            a->m[i] = -INFINITY;
            a->l[i] = 0;
            memset(o, 0, (size_t)a->head_dim * sizeof *o);
            continue;
        }
        x.q[n] = a->q[i];
        x.m[n] = &a->m[i];
        x.l[n] = &a->l[i];
        x.o[n] = o;
        x.first[n] = a->first[i];
        x.last[n] = a->last[i];
        if (++n < PASS) continue;
        instances[type][n - 1](&g, &x, t);
        n = 0;
    }
    if (n) instances[type][n - 1](&g, &x, t);
}

void tg_avx512_attend_f32(const tg_attend *a)
{
    attend(a, TG_KV_F32);
}

void tg_avx512_attend_f16(const tg_attend *a)
{
    attend(a, TG_KV_F16);
}
