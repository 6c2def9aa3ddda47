/* SPDX-License-Identifier: Apache-2.0
 * avx2_sample.c - the three loops over the vocabulary that choosing a token needs (draw.h). */
#include "kernel/avx2.h"
#include "kernel/draw.h"

/* Logits i .. i + 7, -inf beyond n. */
TG_INLINE __m256 load_logits(const float *logits, int32_t i, int32_t n)
{
    __m256 nothing = _mm256_set1_ps(-INFINITY);
    if (i >= n) return nothing;
    __m256 mask = _mm256_castsi256_ps(tg_mask8(n - i));
    return _mm256_blendv_ps(nothing, tg_load8(logits + i, n - i), mask);
}

static bool scan(const float *logits, int32_t n, float *block, float *max)
{
    const __m256 infinity = _mm256_set1_ps(INFINITY);
    float all = -INFINITY;
    __m256 is_bad = _mm256_setzero_ps();
    for (int32_t i = 0, b = 0; i < n; i += TG_SAMPLE_BLOCK, b++) {
        __m256 top = _mm256_set1_ps(-INFINITY);
        for (int32_t r = 0; r < TG_SAMPLE_BLOCK; r += 8) {
            __m256 l = load_logits(logits, i + r, n); /* +inf or NaN: not below infinity */
            is_bad = _mm256_or_ps(is_bad, _mm256_cmp_ps(l, infinity, _CMP_NLT_UQ));
            top = _mm256_max_ps(l, top);
        }
        block[b] = tg_fold_max(top, top);
        all = block[b] > all ? block[b] : all;
    }
    *max = all;
    return _mm256_movemask_ps(is_bad) == 0;
}

static int32_t gather(const float *logits, int32_t n, const float *block, float least,
                      uint64_t *keys)
{
    int32_t n_found = 0;
    for (int32_t i = 0, b = 0; i < n; i += TG_SAMPLE_BLOCK, b++) {
        if (block[b] < least) continue;
        for (int32_t r = 0; r < TG_SAMPLE_BLOCK && i + r < n; r += 8) {
            __m256 l = load_logits(logits, i + r, n);
            int m = _mm256_movemask_ps(_mm256_cmp_ps(l, _mm256_set1_ps(least), _CMP_GE_OQ));
            for (; m; m &= m - 1) {
                int32_t id = i + r + __builtin_ctz((uint32_t)m);
                if (id < n) keys[n_found++] = tg_sample_key(logits[id], id);
            }
        }
    }
    return n_found;
}

static void weigh(const float *logits, int32_t n, float max, const tg_sample_params *s, float *p,
                  float *block)
{
    const __m256 top = _mm256_set1_ps(max), temperature = _mm256_set1_ps(s->temperature);
    const __m256 min_p = _mm256_set1_ps(s->min_p);
    for (int32_t i = 0, b = 0; i < n; i += TG_SAMPLE_BLOCK, b++) {
        __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int32_t r = 0; r < TG_SAMPLE_BLOCK && i + r < n; r += 8) {
            __m256 z = _mm256_sub_ps(load_logits(logits, i + r, n), top);
            __m256 e = tg_exp8(_mm256_div_ps(z, temperature));
            e = _mm256_and_ps(e, _mm256_cmp_ps(e, min_p, _CMP_NLT_UQ));
            tg_store8(p + i + r, n - i - r, e);
            sum[r / 8 % 2] = _mm256_add_ps(sum[r / 8 % 2], e); /* beyond n: exp(-inf) = +0 */
        }
        block[b] = tg_fold_sum(sum[0], sum[1]);
    }
}

int32_t tg_avx2_sample_row(float *logits, int32_t n_vocab, const tg_sample_params *s,
                           const tg_sample_adjust *adjust, void *scratch)
{
    static const tg_sample_loops loops = {scan, gather, weigh};
    return tg_sample_fast(&loops, logits, n_vocab, s, adjust, scratch);
}
