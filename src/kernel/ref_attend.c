/* SPDX-License-Identifier: Apache-2.0
 * ref_attend.c - the definition of attention over one block of 64 keys, of merging and of storing.
 *
 * A key beyond the visible range may hold anything, NaN too: no product with it is ever formed. */
#include "kernel/ref.h"

enum { MAX_DIM = 512 };

typedef float load_fn(const void *p, size_t i);

/* Scores, probabilities of the visible places and their sum, of one query. */
TG_INLINE void score_block(const tg_attend *a, int query, load_fn *load, float p[TG_PAGE_TOKENS],
                           float *m_out, float *l_out)
{
    float lane[16];
    for (int j = 0; j < 16; j++)
        lane[j] = -INFINITY;
    for (int j = a->first[query]; j <= a->last[query]; j++) {
        float dot = 0;
        for (int d = 0; d < a->head_dim; d++)
            dot = fmaf(a->q[query][d], load(a->k, (size_t)d * TG_PAGE_TOKENS + (size_t)j), dot);
        p[j] = a->scale * dot;
        lane[j % 16] = p[j] > lane[j % 16] ? p[j] : lane[j % 16];
    }
    float m = tg_fold_max16(lane);
    for (int j = 0; j < 16; j++)
        lane[j] = 0;
    for (int j = a->first[query]; j <= a->last[query]; j++) {
        p[j] = tg_exp_ref(p[j] - m);
        lane[j % 16] = lane[j % 16] + p[j];
    }
    *m_out = m;
    *l_out = tg_fold_sum16(lane);
}

static void merge(float *M, float *L, float *O, float m, float l, const float *o, int32_t n)
{
    if (l == 0) return;
    if (*L == 0 && *M == -INFINITY) {
        *M = m;
        *L = l;
        memcpy(O, o, (size_t)n * sizeof *O);
        return;
    }
    float top = *M > m ? *M : m;
    float a = tg_exp_ref(*M - top), b = tg_exp_ref(m - top);
    *L = fmaf(*L, a, l * b);
    for (int32_t d = 0; d < n; d++)
        O[d] = fmaf(O[d], a, o[d] * b);
    *M = top;
}

TG_INLINE void attend(const tg_attend *a, load_fn *load)
{
    size_t n = (size_t)a->head_dim;
    TG_ASSERT(n <= MAX_DIM);
    for (int query = 0; query < a->n_queries; query++) {
        float p[TG_PAGE_TOKENS], o[MAX_DIM] = {0}, m, l;
        score_block(a, query, load, p, &m, &l);
        for (int j = a->first[query]; j <= a->last[query]; j++)
            for (size_t d = 0; d < n; d++)
                o[d] = fmaf(p[j], load(a->v, (size_t)j * n + d), o[d]);
        if (!a->is_more) {
            a->m[query] = -INFINITY;
            a->l[query] = 0;
            memset(a->o + (size_t)query * n, 0, n * sizeof *o);
        }
        merge(&a->m[query], &a->l[query], a->o + (size_t)query * n, m, l, o, a->head_dim);
    }
}

void tg_ref_attend_f32(const tg_attend *a)
{
    attend(a, tg_load_f32);
}

void tg_ref_attend_f16(const tg_attend *a)
{
    attend(a, tg_load_f16);
}

void tg_ref_attend_finish(float *y, const tg_attend_parts *x)
{
    float M = -INFINITY, L = 0, O[MAX_DIM];
    TG_ASSERT(x->head_dim <= MAX_DIM);
    for (int32_t b = 0; b < x->n_blocks; b++)
        merge(&M, &L, O, x->m[b * x->step], x->l[b * x->step], x->o + b * x->o_step, x->head_dim);
    for (int32_t d = 0; d < x->head_dim; d++)
        y[d] = L == 0 ? 0.0f : O[d] / L;
}

void tg_ref_kv_store_f32(void *k, void *v, int32_t slot, const float *key, const float *value,
                         int32_t head_dim)
{
    float *to_k = k, *to_v = v;
    for (int32_t d = 0; d < head_dim; d++)
        to_k[(size_t)d * TG_PAGE_TOKENS + (size_t)slot] = key[d];
    memcpy(to_v + (size_t)slot * (size_t)head_dim, value, (size_t)head_dim * sizeof *value);
}

void tg_ref_kv_store_f16(void *k, void *v, int32_t slot, const float *key, const float *value,
                         int32_t head_dim)
{
    uint16_t *to_k = k, *to_v = (uint16_t *)v + (size_t)slot * (size_t)head_dim;
    for (int32_t d = 0; d < head_dim; d++) {
        to_k[(size_t)d * TG_PAGE_TOKENS + (size_t)slot] = tg_f32_to_f16(key[d]);
        to_v[d] = tg_f32_to_f16(value[d]);
    }
}
