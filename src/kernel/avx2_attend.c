/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend.c - attention over one block of 64 keys.
 *
 * The same plan as avx512_attend.c with registers of 8: up to 3 queries a pass, 32 keys or 32
 * dimensions at a time. Register r of the scores holds keys 8 r .. 8 r + 7, so even ones are
 * lanes 0..7 of the contract's 16 and odd ones lanes 8..15. */
#include "kernel/avx2.h"

#include <math.h>
#include <string.h>

enum { PASS = 3, KEYS = TG_PAGE_TOKENS, KEY_REGS = KEYS / 8, BLOCK = 4 /* registers at a time */ };

typedef struct attend_scratch {
    float p[PASS][KEYS]; /* scores, then probabilities of a pass */
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

TG_INLINE __m256 load(tg_kv_type type, const void *p, int64_t i)
{
    if (type == TG_KV_F32) return _mm256_loadu_ps((const float *)p + i);
    return tg_load_f16x8((const uint16_t *)p + i);
}

/* All ones at the places of register r that a query sees. */
TG_INLINE __m256 seen(const pass *x, int j, int r)
{
    __m256i key =
        _mm256_add_epi32(_mm256_set1_epi32(8 * r), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(x->first[j]), key);
    __m256i high = _mm256_cmpgt_epi32(key, _mm256_set1_epi32(x->last[j]));
    __m256i hidden = _mm256_or_si256(low, high);
    return _mm256_castsi256_ps(_mm256_xor_si256(hidden, _mm256_set1_epi32(-1)));
}

/* m, l and probabilities of one query from its scores at p; unseen places may hold anything. */
static void soften(const pass *x, int j, float *p)
{
    const __m256 nothing = _mm256_set1_ps(-INFINITY);
    __m256 top[2] = {nothing, nothing}, sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int r = 0; r < KEY_REGS; r++) { /* maxps(new, old): new > old ? new : old */
        __m256 s = _mm256_blendv_ps(nothing, _mm256_load_ps(p + 8 * r), seen(x, j, r));
        top[r % 2] = _mm256_max_ps(s, top[r % 2]);
    }
    float m = tg_fold_max(top[0], top[1]);
    for (int r = 0; r < KEY_REGS; r++) {
        __m256 e = tg_exp8(_mm256_sub_ps(_mm256_load_ps(p + 8 * r), _mm256_set1_ps(m)));
        e = _mm256_and_ps(e, seen(x, j, r));
        sum[r % 2] = _mm256_add_ps(sum[r % 2], e);
        _mm256_store_ps(p + 8 * r, e);
    }
    *x->m[j] = m;
    *x->l[j] = tg_fold_sum(sum[0], sum[1]);
}

/* Scores and probabilities of n queries. */
TG_INLINE void score(const page *g, tg_kv_type type, const pass *x, int n, attend_scratch *t)
{
    for (int from = 0; from < KEYS; from += 8 * BLOCK) {
        __m256 s[PASS][BLOCK];
        for (int j = 0; j < n; j++)
            for (int r = 0; r < BLOCK; r++)
                s[j][r] = _mm256_setzero_ps();
        for (int64_t d = 0; d < g->dim; d++) {
            for (int r = 0; r < BLOCK; r++) {
                __m256 k = load(type, g->k, d * KEYS + from + 8 * r);
                for (int j = 0; j < n; j++)
                    s[j][r] = _mm256_fmadd_ps(_mm256_set1_ps(x->q[j][d]), k, s[j][r]);
            }
        }
        for (int j = 0; j < n; j++)
            for (int r = 0; r < BLOCK; r++)
                _mm256_store_ps(t->p[j] + from + 8 * r,
                                _mm256_mul_ps(_mm256_set1_ps(g->scale), s[j][r]));
    }
    for (int j = 0; j < n; j++)
        soften(x, j, t->p[j]);
}

/* Queries [at, at + n) of a pass, keys [from, to). */
typedef struct span {
    int at, n;
    int32_t from, to;
} span;

/* o += p V over a span, on n_regs x 8 dimensions from d on. */
TG_INLINE void add_dims(const page *g, tg_kv_type type, const pass *x, const attend_scratch *t,
                        span y, int64_t d, int n_regs)
{
    __m256 o[PASS][BLOCK];
    for (int j = 0; j < y.n; j++)
        for (int r = 0; r < n_regs; r++)
            o[j][r] = _mm256_loadu_ps(x->o[y.at + j] + d + 8 * r);
    for (int32_t key = y.from; key < y.to; key++) {
        for (int r = 0; r < n_regs; r++) {
            __m256 v = load(type, g->v, key * g->dim + d + 8 * r);
            for (int j = 0; j < y.n; j++)
                o[j][r] = _mm256_fmadd_ps(_mm256_set1_ps(t->p[y.at + j][key]), v, o[j][r]);
        }
    }
    for (int j = 0; j < y.n; j++)
        for (int r = 0; r < n_regs; r++)
            _mm256_storeu_ps(x->o[y.at + j] + d + 8 * r, o[j][r]);
}

TG_INLINE void add_values(const page *g, tg_kv_type type, const pass *x, const attend_scratch *t,
                          span y)
{
    if (y.from >= y.to) return;
    int64_t d = 0;
    for (; d + 8 * BLOCK <= g->dim; d += 8 * BLOCK)
        add_dims(g, type, x, t, y, d, BLOCK);
    for (; d < g->dim; d += 8) /* head_dim is a multiple of 8 */
        add_dims(g, type, x, t, y, d, 1);
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

static pass_fn *const instances[TG_KV_TYPE_COUNT][PASS] = {
    [TG_KV_F32] = {f32_1, f32_2, f32_3},
    [TG_KV_F16] = {f16_1, f16_2, f16_3},
};

/* An f16 page as floats in the scratch. */
static void convert(page *g, attend_scratch *t)
{
    int64_t n = g->dim * KEYS; /* a multiple of 512 */
    for (int64_t i = 0; i < n; i += 8) {
        _mm256_store_ps(t->k + i, load(TG_KV_F16, g->k, i));
        _mm256_store_ps(t->v + i, load(TG_KV_F16, g->v, i));
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

void tg_avx2_attend_f32(const tg_attend *a)
{
    attend(a, TG_KV_F32);
}

void tg_avx2_attend_f16(const tg_attend *a)
{
    attend(a, TG_KV_F16);
}
