/* SPDX-License-Identifier: Apache-2.0
 * ref_attend.c - the definition of attention over one block of 64 keys, of merging and of storing.
 *
 * A key beyond the visible range may hold anything, NaN too: no product with it is ever formed. */
#include "kernel/kv_q8.h"
#include "kernel/ref.h"

#include <float.h>

enum { MAX_DIM = 512 };

/* Chain of products of a query and the key at place j, unscaled. */
typedef float score_fn(const tg_attend *a, int query, size_t j);
/* o [head_dim] = p V over the visible keys first..last; o is zero before. */
typedef void add_fn(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o);

static float round_bf16(float x)
{
    return tg_bf16_to_f32(tg_f32_to_bf16(x));
}

/* Scores, probabilities of the visible places and their sum, of one query. */
TG_INLINE void score_block(const tg_attend *a, int query, score_fn *score, tg_kv_type type,
                           float p[TG_KV_PAGE_TOKENS], float *m_out, float *l_out)
{
    float lane[16], scale = type == TG_KV_Q8 ? a->scale * 0x1p-5f : a->scale;
    if (type == TG_KV_Q16) scale = 1; /* each group has it already */
    for (int j = 0; j < 16; j++)
        lane[j] = -INFINITY;
    for (int j = a->first[query]; j <= a->last[query]; j++) {
        p[j] = scale * score(a, query, (size_t)j);
        if (a->softcap > 0) p[j] = tg_softcap_ref(p[j], a->softcap);
        lane[j % 16] = p[j] > lane[j % 16] ? p[j] : lane[j % 16];
    }
    float m = tg_fold_max16(lane);
    for (int j = 0; j < 16; j++)
        lane[j] = 0;
    for (int j = a->first[query]; j <= a->last[query]; j++) {
        p[j] = tg_exp_ref(p[j] - m);
        if (type == TG_KV_BF16) p[j] = round_bf16(p[j]);
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

TG_INLINE void attend(const tg_attend *a, tg_kv_type type, score_fn *score, add_fn *add)
{
    size_t n = (size_t)a->head_dim;
    TG_ASSERT(n <= MAX_DIM);
    for (int query = 0; query < a->n_queries; query++) {
        float p[TG_KV_PAGE_TOKENS], o[MAX_DIM] = {0}, m, l;
        score_block(a, query, score, type, p, &m, &l);
        add(a, a->first[query], a->last[query], p, o);
        if (!a->is_more) {
            a->m[query] = -INFINITY;
            a->l[query] = 0;
            memset(a->o + (size_t)query * n, 0, n * sizeof *o);
        }
        merge(&a->m[query], &a->l[query], a->o + (size_t)query * n, m, l, o, a->head_dim);
    }
}

/* ---- f32 and f16 */

typedef float load_fn(const void *p, size_t i);

TG_INLINE float score_float(const tg_attend *a, int query, size_t j, load_fn *load)
{
    float dot = 0;
    for (size_t d = 0; d < (size_t)a->head_dim; d++)
        dot = fmaf(a->q[query][d], load(a->k, d * TG_KV_PAGE_TOKENS + j), dot);
    return dot;
}

TG_INLINE void add_float(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o,
                         load_fn *load)
{
    size_t n = (size_t)a->head_dim;
    for (int32_t j = first; j <= last; j++)
        for (size_t d = 0; d < n; d++)
            o[d] = fmaf(p[j], load(a->v, (size_t)j * n + d), o[d]);
}

static float score_f32(const tg_attend *a, int query, size_t j)
{
    return score_float(a, query, j, tg_load_f32);
}

static void add_f32(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o)
{
    add_float(a, first, last, p, o, tg_load_f32);
}

static float score_f16(const tg_attend *a, int query, size_t j)
{
    return score_float(a, query, j, tg_load_f16);
}

static void add_f16(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o)
{
    add_float(a, first, last, p, o, tg_load_f16);
}

void tg_ref_attend_f32(const tg_attend *a)
{
    attend(a, TG_KV_F32, score_f32, add_f32);
}

void tg_ref_attend_f16(const tg_attend *a)
{
    attend(a, TG_KV_F16, score_f16, add_f16);
}

/* ---- bf16 */

/* A denormal as a zero of its sign. */
static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float flushed_fma(float a, float b, float c)
{
    return flush(fmaf(flush(a), flush(b), flush(c)));
}

static float dot2(const float a[2], const float b[2], float acc)
{
    return flushed_fma(a[0], b[0], flushed_fma(a[1], b[1], acc));
}

static float load_bf16(const void *p, size_t i)
{
    uint16_t h;
    memcpy(&h, (const char *)p + 2 * i, sizeof h);
    return tg_bf16_to_f32(h);
}

static float score_bf16(const tg_attend *a, int query, size_t j)
{
    float dot = 0;
    for (size_t d = 0; d < (size_t)a->head_dim; d += 2) {
        size_t at = d * TG_KV_PAGE_TOKENS + 2 * j;
        float q[2] = {load_bf16(a->q[query], d), load_bf16(a->q[query], d + 1)};
        float k[2] = {load_bf16(a->k, at), load_bf16(a->k, at + 1)};
        dot = dot2(q, k, dot);
    }
    return dot;
}

static void add_bf16(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o)
{
    size_t n = (size_t)a->head_dim;
    for (int32_t j = first & ~1; j <= last; j += 2)
        for (size_t d = 0; d < n; d++) {
            float x[2] = {0}, v[2] = {0};
            for (int32_t i = 0; i < 2; i++) {
                if (j + i < first || j + i > last) continue;
                x[i] = p[j + i];
                v[i] = load_bf16(a->v, (size_t)j * n + 2 * d + (size_t)i);
            }
            o[d] = dot2(x, v, o[d]);
        }
}

void tg_ref_attend_bf16(const tg_attend *a)
{
    attend(a, TG_KV_BF16, score_bf16, add_bf16);
}

void tg_ref_kv_query_bf16(float *out, const float *q, int32_t head_dim)
{
    for (int32_t d = 0; d < head_dim; d++) {
        uint16_t h = tg_f32_to_bf16(q[d]);
        memcpy((char *)out + 2 * d, &h, sizeof h);
    }
}

/* ---- q8 */

static float score_q8(const tg_attend *a, int query, size_t j)
{
    size_t n = (size_t)a->head_dim, n_groups = n / TG_KV_GROUP;
    const int8_t *q = (const int8_t *)a->q[query];
    const uint8_t *k = a->k;
    float dot = 0;
    for (size_t g = 0; g < n_groups; g++) {
        int32_t sum = 0;
        for (size_t d = TG_KV_GROUP * g; d < TG_KV_GROUP * (g + 1); d++)
            sum += q[d] * (k[d / 4 * 4 * TG_KV_PAGE_TOKENS + 4 * j + d % 4] - 128);
        float sk = tg_load_f16(k + n * TG_KV_PAGE_TOKENS, g * TG_KV_PAGE_TOKENS + j);
        dot = fmaf((float)sum, tg_load_f32(q + n, g) * sk, dot);
    }
    return dot;
}

/* o += p V where V has codes and one scale a key, which `code` and `scale` read. */
typedef int32_t load_code_fn(const void *v, size_t n, size_t j, size_t d);
typedef float load_scale_fn(const void *v, size_t n, size_t j);

TG_INLINE void add_codes(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o,
                         float most, load_code_fn *code, load_scale_fn *scale)
{
    size_t n = (size_t)a->head_dim;
    float w[TG_KV_PAGE_TOKENS];
    uint32_t top = 0;
    for (int32_t j = first; j <= last; j++) {
        w[j] = p[j] * scale(a->v, n, (size_t)j);
        top = TG_MAX(top, tg_f32_to_bits(w[j]) & 0x7fffffffu);
    }
    float wmax = tg_f32_from_bits(top), winv = most / wmax;
    bool is_finite = top < 0x7f800000u, has_codes = is_finite && winv <= FLT_MAX;
    float unit = has_codes ? wmax / most : is_finite ? 0 : NAN;
    for (size_t d = 0; d < n; d++) {
        int32_t sum = 0;
        for (int32_t j = first; j <= last && has_codes; j++)
            sum += (int32_t)rintf(w[j] * winv) * code(a->v, n, (size_t)j, d);
        o[d] = unit * (float)sum;
    }
}

static int32_t load_code_q8(const void *v, size_t n, size_t j, size_t d)
{
    return ((const int8_t *)v)[j / 4 * 4 * n + 4 * d + j % 4];
}

static float load_scale_q8(const void *v, size_t n, size_t j)
{
    return tg_load_f16((const char *)v + n * TG_KV_PAGE_TOKENS, j);
}

static void add_q8(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o)
{
    add_codes(a, first, last, p, o, 255, load_code_q8, load_scale_q8);
}

void tg_ref_attend_q8(const tg_attend *a)
{
    attend(a, TG_KV_Q8, score_q8, add_q8);
}

void tg_ref_kv_query_q8(float *out, const float *q, int32_t head_dim)
{
    tg_kv_query_q8(out, q, head_dim);
}

/* ---- q16 */

static int32_t load_i16(const void *p, size_t i)
{
    int16_t x;
    memcpy(&x, (const char *)p + 2 * i, sizeof x);
    return x;
}

static size_t count_groups_q16(size_t n)
{
    return (n + TG_KV_Q16_GROUP - 1) / TG_KV_Q16_GROUP;
}

static float score_q16(const tg_attend *a, int query, size_t j)
{
    size_t n = (size_t)a->head_dim;
    const char *q = (const char *)a->q[query], *k = a->k;
    float dot = 0;
    for (size_t g = 0; g < count_groups_q16(n); g++) {
        int32_t sum = 0;
        for (size_t d = TG_KV_Q16_GROUP * g; d < TG_MIN(n, TG_KV_Q16_GROUP * (g + 1)); d++)
            sum += load_i16(q, d) * load_i16(k, d / 2 * 2 * TG_KV_PAGE_TOKENS + 2 * j + d % 2);
        float sk = tg_load_f32(k + 2 * n * TG_KV_PAGE_TOKENS, g * TG_KV_PAGE_TOKENS + j);
        dot = fmaf((float)sum, a->scale * tg_load_f32(q + 2 * n, g) * sk, dot);
    }
    return dot;
}

static int32_t load_code_q16(const void *v, size_t n, size_t j, size_t d)
{
    return load_i16((const char *)v + TG_KV_Q16_HEAD, j / 2 * 2 * n + 2 * d + j % 2);
}

static float load_scale_q16(const void *v, size_t n, size_t j)
{
    (void)n;
    return tg_load_f32(v, j);
}

static void add_q16(const tg_attend *a, int32_t first, int32_t last, const float *p, float *o)
{
    add_codes(a, first, last, p, o, TG_KV_Q16_TOP_WEIGHT, load_code_q16, load_scale_q16);
}

void tg_ref_attend_q16(const tg_attend *a)
{
    attend(a, TG_KV_Q16, score_q16, add_q16);
}

/* Codes of n numbers and their scale, which is returned. */
static float code_q16(int16_t *code, const float *x, int32_t n, float most)
{
    uint32_t top = tg_kv_find_amax(x, n);
    float amax = tg_f32_from_bits(top), inv = most / amax;
    bool is_finite = top < 0x7f800000u, has_codes = is_finite && inv <= FLT_MAX;
    for (int32_t i = 0; i < n; i++)
        code[i] = has_codes ? (int16_t)rintf(x[i] * inv) : 0;
    return has_codes ? amax / most : is_finite ? 0 : amax;
}

void tg_ref_kv_query_q16(float *out, const float *q, int32_t head_dim)
{
    char *codes = (char *)out, *scales = codes + 2 * head_dim;
    for (int32_t d = 0; d < head_dim; d += TG_KV_Q16_GROUP, scales += sizeof(float)) {
        int16_t code[TG_KV_Q16_GROUP];
        int32_t n = TG_MIN(head_dim - d, TG_KV_Q16_GROUP);
        float scale = code_q16(code, q + d, n, TG_KV_Q16_TOP);
        memcpy(codes + 2 * d, code, 2 * (size_t)n);
        memcpy(scales, &scale, sizeof scale);
    }
}

/* ---- parts */

void tg_ref_attend_finish(float *y, const tg_attend_parts *x)
{
    float M = -INFINITY, L = 0, O[MAX_DIM];
    TG_ASSERT(x->head_dim <= MAX_DIM);
    for (int32_t b = 0; b < x->n_blocks; b++)
        merge(&M, &L, O, x->m[b * x->step], x->l[b * x->step], x->o + b * x->o_step, x->head_dim);
    for (int32_t d = 0; d < x->head_dim; d++)
        y[d] = L == 0 ? 0.0f : O[d] / L;
}

/* ---- storing */

void tg_ref_kv_store_f32(void *k, void *v, int32_t slot, const float *key, const float *value,
                         int32_t head_dim)
{
    float *to_k = k, *to_v = v;
    for (int32_t d = 0; d < head_dim; d++)
        to_k[(size_t)d * TG_KV_PAGE_TOKENS + (size_t)slot] = key[d];
    memcpy(to_v + (size_t)slot * (size_t)head_dim, value, (size_t)head_dim * sizeof *value);
}

void tg_ref_kv_store_f16(void *k, void *v, int32_t slot, const float *key, const float *value,
                         int32_t head_dim)
{
    uint16_t *to_k = k, *to_v = (uint16_t *)v + (size_t)slot * (size_t)head_dim;
    for (int32_t d = 0; d < head_dim; d++) {
        to_k[(size_t)d * TG_KV_PAGE_TOKENS + (size_t)slot] = tg_f32_to_f16(key[d]);
        to_v[d] = tg_f32_to_f16(value[d]);
    }
}

void tg_ref_kv_store_bf16(void *k, void *v, int32_t slot, const float *key, const float *value,
                          int32_t head_dim)
{
    size_t n = (size_t)head_dim, at = (size_t)slot;
    uint16_t *to_k = k, *to_v = v;
    for (size_t d = 0; d < n; d++) {
        to_k[d / 2 * 2 * TG_KV_PAGE_TOKENS + 2 * at + d % 2] = tg_f32_to_bf16(key[d]);
        to_v[at / 2 * 2 * n + 2 * d + at % 2] = tg_f32_to_bf16(value[d]);
    }
}

void tg_ref_kv_store_q8(void *k, void *v, int32_t slot, const float *key, const float *value,
                        int32_t head_dim)
{
    tg_kv_store_q8(k, v, slot, key, value, head_dim);
}

void tg_ref_kv_store_q16(void *k, void *v, int32_t slot, const float *key, const float *value,
                         int32_t head_dim)
{
    int16_t code[MAX_DIM], *to_k = k, *to_v = (int16_t *)v + TG_KV_Q16_HEAD / 2;
    size_t n = (size_t)head_dim, at = (size_t)slot;
    char *scales = (char *)k + 2 * n * TG_KV_PAGE_TOKENS;
    for (size_t d = 0; d < n; d += TG_KV_Q16_GROUP, scales += sizeof(float) * TG_KV_PAGE_TOKENS) {
        int32_t left = TG_MIN(head_dim - (int32_t)d, TG_KV_Q16_GROUP);
        float scale = code_q16(code + d, key + d, left, TG_KV_Q16_TOP);
        memcpy(scales + 4 * at, &scale, sizeof scale);
    }
    for (size_t d = 0; d < n; d++)
        to_k[d / 2 * 2 * TG_KV_PAGE_TOKENS + 2 * at + d % 2] = code[d];
    float scale = code_q16(code, value, head_dim, TG_KV_Q16_TOP_VALUE);
    for (size_t d = 0; d < n; d++)
        to_v[at / 2 * 2 * n + 2 * d + at % 2] = code[d];
    memcpy((char *)v + 4 * at, &scale, sizeof scale);
}
