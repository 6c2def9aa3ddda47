/* SPDX-License-Identifier: Apache-2.0
 * avx512_sample.c - the three loops over the vocabulary that choosing a token needs (draw.h). */
#include "kernel/avx512.h"
#include "kernel/draw.h"

/* Logits i .. i + 15, -inf beyond n. */
TG_INLINE __m512 load_logits(const float *logits, int32_t i, int32_t n)
{
    __m512 nothing = _mm512_set1_ps(-INFINITY);
    return i < n ? _mm512_mask_loadu_ps(nothing, tg_mask16(n - i), logits + i) : nothing;
}

static bool scan(const float *logits, int32_t n, float *block, float *max)
{
    const __m512 infinity = _mm512_set1_ps(INFINITY);
    __m512 all = _mm512_set1_ps(-INFINITY);
    __mmask16 is_bad = 0;
    for (int32_t i = 0, b = 0; i < n; i += TG_SAMPLE_BLOCK, b++) {
        __m512 top = _mm512_set1_ps(-INFINITY);
        for (int32_t r = 0; r < TG_SAMPLE_BLOCK; r += 16) {
            __m512 l = load_logits(logits, i + r, n);
            is_bad |= _mm512_cmp_ps_mask(l, infinity, _CMP_NLT_UQ); /* +inf or NaN */
            top = _mm512_max_ps(l, top);
        }
        block[b] = _mm512_reduce_max_ps(top);
        all = _mm512_max_ps(all, top);
    }
    *max = _mm512_reduce_max_ps(all);
    return !is_bad;
}

static int32_t gather(const float *logits, int32_t n, const float *block, float least,
                      uint64_t *keys)
{
    int32_t n_found = 0;
    for (int32_t i = 0, b = 0; i < n; i += TG_SAMPLE_BLOCK, b++) {
        if (block[b] < least) continue;
        for (int32_t r = 0; r < TG_SAMPLE_BLOCK && i + r < n; r += 16) {
            __mmask16 m = tg_mask16(n - i - r);
            __m512 l = _mm512_maskz_loadu_ps(m, logits + i + r);
            m = _mm512_mask_cmp_ps_mask(m, l, _mm512_set1_ps(least), _CMP_GE_OQ);
            for (; m; m &= (__mmask16)(m - 1)) {
                int32_t id = i + r + __builtin_ctz(m);
                keys[n_found++] = tg_sample_key(logits[id], id);
            }
        }
    }
    return n_found;
}

static void weigh(const float *logits, int32_t n, float max, const tg_sample_params *s, float *p,
                  float *block)
{
    const __m512 top = _mm512_set1_ps(max), temperature = _mm512_set1_ps(s->temperature);
    const __m512 min_p = _mm512_set1_ps(s->min_p);
    for (int32_t i = 0, b = 0; i < n; i += TG_SAMPLE_BLOCK, b++) {
        __m512 sum = _mm512_setzero_ps();
        for (int32_t r = 0; r < TG_SAMPLE_BLOCK && i + r < n; r += 16) {
            __m512 z = _mm512_sub_ps(load_logits(logits, i + r, n), top);
            __m512 e = tg_exp16(_mm512_div_ps(z, temperature));
            e = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(e, min_p, _CMP_NLT_UQ), e);
            _mm512_mask_storeu_ps(p + i + r, tg_mask16(n - i - r), e);
            sum = _mm512_add_ps(sum, e); /* beyond n: exp(-inf) = +0 */
        }
        block[b] = tg_fold_sum(sum);
    }
}

int32_t tg_avx512_sample_row(float *logits, int32_t n_vocab, const tg_sample_params *s,
                             const tg_sample_adjust *adjust, void *scratch)
{
    static const tg_sample_loops loops = {scan, gather, weigh};
    return tg_sample_fast(&loops, logits, n_vocab, s, adjust, scratch);
}
