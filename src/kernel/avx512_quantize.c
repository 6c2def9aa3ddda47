/* SPDX-License-Identifier: Apache-2.0
 * avx512_quantize.c - activations into groups of integers (contract 5).
 *
 * 16 groups at a time, so that what a group has one of (its largest number, its scale, its sums) is
 * a lane of a register: 16 horizontal maxima are one transposition, and so are 16 sums. Nearly all
 * groups are narrow and finite. The others are quantized as if they were, and then done again one
 * by one. */
#include "kernel/avx512.h"

#include <string.h>

enum { BATCH = 16, GROUP = TG_GROUP_COLS };

typedef struct batch {
    _Alignas(64) float scale[BATCH];
    _Alignas(64) float inv[BATCH]; /* 0 where the group has no codes */
    __mmask16 is_number;
} batch;

/* 128-bit lanes (a0 + a2, a1 + a3, b0 + b2, b1 + b3) if `op` is +; and of two such results, lanes
 * whose four numbers belong together. */
#define FOLD_LANES(op, low, high, a, b)                                                            \
    op(_mm512_shuffle_i64x2(a, b, low), _mm512_shuffle_i64x2(a, b, high))
#define FOLD_HALVES(op, a, b)   FOLD_LANES(op, 0x44, 0xee, a, b)
#define FOLD_QUARTERS(op, a, b) FOLD_LANES(op, 0x88, 0xdd, a, b)

/* The largest number of each of 16 registers. */
TG_INLINE __m512i max_each(const __m512i m[BATCH])
{
    __m512i q[4], r[8];
    for (int i = 0; i < 8; i++)
        r[i] = FOLD_HALVES(_mm512_max_epi32, m[i], m[i + 8]);
    for (int i = 0; i < 4; i++) /* lanes: of m[i], m[i + 8], m[i + 4], m[i + 12] */
        q[i] = FOLD_QUARTERS(_mm512_max_epi32, r[i], r[i + 4]);
    __m512i u = _mm512_max_epi32(_mm512_unpacklo_epi32(q[0], q[1]), //
                                 _mm512_unpackhi_epi32(q[0], q[1]));
    __m512i v = _mm512_max_epi32(_mm512_unpacklo_epi32(q[2], q[3]), //
                                 _mm512_unpackhi_epi32(q[2], q[3]));
    u = _mm512_max_epi32(_mm512_unpacklo_epi64(u, v), _mm512_unpackhi_epi64(u, v));
    return _mm512_shuffle_i64x2(u, u, 0xd8);
}

/* Scales and reciprocals of n groups; t holds the largest code of each. */
static void scale_groups(batch *b, const float *x, int n, __m512 t)
{
    const __m512i abs = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
    __m512i m[BATCH];
    for (int g = 0; g < n; g++)
        m[g] = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x + GROUP * g), abs),
                                _mm512_and_si512(_mm512_loadu_si512(x + GROUP * g + 16), abs));
    for (int g = n; g < BATCH; g++)
        m[g] = _mm512_setzero_si512();
    __m512i bits = max_each(m);
    __m512 a = _mm512_castsi512_ps(bits), inv = _mm512_div_ps(t, a);
    b->is_number = _mm512_cmplt_epi32_mask(bits, infinity);
    __mmask16 is_tiny =
        _mm512_mask_cmpeq_epi32_mask(b->is_number, _mm512_castps_si512(inv), infinity);
    __mmask16 has_codes = b->is_number & (__mmask16)~is_tiny;
    __m512 scale = _mm512_mask_div_ps(a, has_codes, a, t);
    _mm512_store_ps(b->scale, _mm512_mask_mov_ps(scale, is_tiny, _mm512_setzero_ps()));
    _mm512_store_ps(b->inv, _mm512_maskz_mov_ps(has_codes, inv));
}

TG_INLINE __m512i to_ints(const float *x, __m512 inv)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inv));
}

/* tg_a8_sum_pairs of n groups, whose codes lie two groups a register. */
static void store_pairs(const tg_a8 *out, int64_t at, const __m512i codes[BATCH / 2], int n)
{
    const int32_t top = out->top, rest = 128 - top;
    const __m512i bias = _mm512_mask_mov_epi8(_mm512_set1_epi8((char)-rest), 0xf0f0f0f0f0f0f0f0u,
                                              _mm512_set1_epi8((char)top));
    const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15);
    __m512i s[BATCH / 2], q[2];
    for (int p = 0; p < BATCH / 2; p++) { /* even lanes: (a[c] - rest) (a[c+4] + top) */
        __m512i x = _mm512_add_epi8(codes[p], bias);
        s[p] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_srli_epi64(x, 32), x);
    }
    for (int p = 0; p < BATCH / 4; p++) /* odd lanes: 8 groups further */
        s[p] = _mm512_or_si512(s[p], _mm512_slli_epi64(s[p + BATCH / 4], 32));
    for (int i = 0; i < 2; i++)
        q[i] = FOLD_QUARTERS(_mm512_add_epi32, s[2 * i], s[2 * i + 1]);
    __m512i sum =
        _mm512_add_epi32(_mm512_unpacklo_epi64(q[0], q[1]), _mm512_unpackhi_epi64(q[0], q[1]));
    sum = _mm512_add_epi32(sum, _mm512_set1_epi32(GROUP / 2 * rest * top));
    _mm512_mask_storeu_epi32(out->pair + at, tg_mask16(n), _mm512_permutexvar_epi32(places, sum));
}

/* Codes of n groups, an even number, as if all were narrow, and their sums. */
static void code_groups(const tg_a8 *out, int64_t at, const batch *b, const float *x, int n)
{
    /* Packing leaves the first 16 codes of a group and the others by dwords in the four lanes. */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i s[BATCH / 2], r[4], q[2]; /* s: lanes of (first, second) sums of both groups */
    __m512i codes[BATCH / 2];
    for (int p = 0; p < BATCH / 2; p++)
        s[p] = codes[p] = _mm512_setzero_si512();
    for (int p = 0; p < n / 2; p++) {
        const float *y = x + 2 * GROUP * p;
        __m512 u = _mm512_set1_ps(b->inv[2 * p]), v = _mm512_set1_ps(b->inv[2 * p + 1]);
        __m512i c = _mm512_packs_epi16(_mm512_packs_epi32(to_ints(y, u), to_ints(y + 16, u)),
                                       _mm512_packs_epi32(to_ints(y + 32, v), to_ints(y + 48, v)));
        s[p] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, c);
        codes[p] = _mm512_permutexvar_epi32(order, c);
        _mm512_storeu_si512(out->hi + GROUP * (at + 2 * p), codes[p]);
    }
    if (out->pair) store_pairs(out, at, codes, n);
    for (int i = 0; i < 4; i++)
        r[i] = FOLD_HALVES(_mm512_add_epi32, s[i], s[i + 4]);
    for (int i = 0; i < 2; i++) /* lanes: pairs i, i + 4, i + 2, i + 6 */
        q[i] = FOLD_QUARTERS(_mm512_add_epi32, r[i], r[i + 2]);
    const __m512i places =
        _mm512_setr_epi32(0, 2, 16, 18, 8, 10, 24, 26, 4, 6, 20, 22, 12, 14, 28, 30);
    __m512i first = _mm512_permutex2var_epi32(q[0], places, q[1]);
    __m512i second =
        _mm512_permutex2var_epi32(q[0], _mm512_add_epi32(places, _mm512_set1_epi32(1)), q[1]);
    __m512i sum = _mm512_add_epi32(first, second);
    __m512 scale = _mm512_load_ps(b->scale);
    __mmask16 there = tg_mask16(n);
    _mm512_mask_storeu_ps(out->scale + at, there, scale);
    _mm512_mask_storeu_epi32(out->half + at, there, first);
    _mm512_mask_storeu_epi32(out->sum + at, there, sum);
    _mm512_mask_storeu_ps(out->ssum + at, there, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
}

static __m128i high_bytes(__m512i v)
{
    __m512i round = _mm512_set1_epi32(128);
    return _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_add_epi32(v, round), 8));
}

static int32_t sum_ints(__m512i v, __mmask16 has_codes)
{
    return _mm512_mask_reduce_add_epi32(has_codes, v);
}

/* A outlier group, or one whose numbers are not finite. */
static void code_one(const tg_a8 *out, int64_t g, const batch *b, const float *x, int i)
{
    bool is_outlier = out->n_outliers > 0 && out->outliers[g] >= 0;
    __mmask16 keep = b->is_number >> i & 1 ? 0xffff : 0;
    __m512 inv = _mm512_set1_ps(b->inv[i]);
    __m512i u = _mm512_maskz_mov_epi32(keep, to_ints(x + GROUP * i, inv));
    __m512i v = _mm512_maskz_mov_epi32(keep, to_ints(x + GROUP * i + 16, inv));
    int32_t first = sum_ints(u, keep), sum = first + sum_ints(v, keep);
    __m128i *hi = (__m128i *)(void *)(out->hi + GROUP * g);
    if (is_outlier) { /* v - 256 hi in -128..127 is the low byte of v, read as signed */
        __m128i *lo = (__m128i *)(void *)(out->lo + GROUP * (int64_t)out->outliers[g]);
        _mm_storeu_si128(lo, _mm512_cvtepi32_epi8(u));
        _mm_storeu_si128(lo + 1, _mm512_cvtepi32_epi8(v));
    }
    _mm_storeu_si128(hi, is_outlier ? high_bytes(u) : _mm512_cvtepi32_epi8(u));
    _mm_storeu_si128(hi + 1, is_outlier ? high_bytes(v) : _mm512_cvtepi32_epi8(v));
    if (out->pair) out->pair[g] = 0;
    out->half[g] = first;
    out->sum[g] = sum;
    out->ssum[g] = b->scale[i] * (float)sum;
}

/* Which of the n groups from `at` on are wide. */
static __mmask16 find_outliers(const tg_a8 *out, int64_t at, int n)
{
    if (out->n_outliers == 0) return 0;
    __mmask16 there = tg_mask16(n);
    __m256i place = _mm256_mask_loadu_epi16(_mm256_set1_epi16(-1), there, out->outliers + at);
    return (__mmask16)~_mm256_movepi16_mask(place);
}

static void quantize_batch(const tg_a8 *out, int64_t at, const float *x, int n)
{
    batch b;
    __mmask16 wide = find_outliers(out, at, n);
    scale_groups(
        &b, x, n,
        _mm512_mask_mov_ps(_mm512_set1_ps((float)out->top), wide, _mm512_set1_ps(32512.0f)));
    code_groups(out, at, &b, x, n);
    uint32_t again = (uint32_t)(wide | (__mmask16)~b.is_number);
    for (; again; again &= again - 1) {
        int i = __builtin_ctz(again);
        code_one(out, at + i, &b, x, i);
    }
}

void tg_avx512_quantize(const tg_a8 *out, const float *x, int32_t n)
{
    int64_t n_groups = out->padded / GROUP;
    for (int64_t g = 0; g < n_groups; g += BATCH) {
        int64_t left = n - GROUP * g, in_batch = TG_MIN(n_groups - g, (int64_t)BATCH);
        _Alignas(64) float tail[BATCH * GROUP];
        if (left >= GROUP * in_batch) {
            quantize_batch(out, g, x + GROUP * g, (int)in_batch);
            continue;
        }
        memset(tail, 0, (size_t)in_batch * GROUP * sizeof *tail);
        if (left > 0) memcpy(tail, x + GROUP * g, (size_t)left * sizeof *tail);
        quantize_batch(out, g, tail, (int)in_batch);
    }
}
