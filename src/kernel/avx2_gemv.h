/* SPDX-License-Identifier: Apache-2.0
 * avx2_gemv.h - products of quantized weights with few tokens, compiled twice: for plain AVX2
 * (avx2_matmul.c) and for AVX-VNNI (avx2_vnni.c).
 *
 * vpmaddubsw multiplies unsigned codes with signed ones and adds pairs in int16, where it
 * saturates. Codes up to 15 leave room for the whole group (8 operands x 2 x 15 x 128 = 30720), up
 * to 31 for four operands, up to 63 for two; 8-bit codes are split into two nibbles, which is exact
 * for every input, -128 too. vpdpbusd adds four products to an int32, whatever the codes.
 *
 * A tile streams through the registers once, both halves side by side, and every token's sums ride
 * along: with one token it is bound by memory. The chains wait in memory between groups, where
 * their loads and stores hide behind the products; so a group with two planes is a function of its
 * own. From TG_GEMV_MANY tokens on avx2_gemm.c is faster. */
#ifndef TG_KERNEL_AVX2_GEMV_H
#define TG_KERNEL_AVX2_GEMV_H

#include "kernel/avx2_codes.h"

enum { TG_GEMV_MAX = 6, TG_GEMV_MANY = 7 };

/* Rows of activations: those of token i, or of the last token when the instance is wider. */
typedef struct tg_gemv_rows {
    tg_a8 x[TG_GEMV_MAX];
} tg_gemv_rows;

/* Both chains of a tile's rows for one token. */
typedef struct tg_gemv_chains {
    __m256 acc[TG_AVX2_HALVES], min[TG_AVX2_HALVES];
} tg_gemv_chains;

/* One group of a tile. */
typedef struct tg_gemv_group {
    const uint8_t *head, *part;
    int g;      /* in the part */
    int64_t at; /* in the row */
} tg_gemv_group;

/* The code sums of both sixteenths as a pair of int16. */
TG_INLINE __m256i tg_gemv_pair_sums(const tg_a8 *x, int64_t at)
{
    uint32_t first = (uint32_t)x->half[at], second = (uint32_t)(x->sum[at] - x->half[at]);
    return _mm256_set1_epi32((int32_t)((first & 0xffff) | second << 16));
}

TG_INLINE __m256i tg_gemv_subtract_zero(tg_layout l, __m256i i, int32_t code_sum)
{
    int zero = tg_layout_forms[l].zero;
    return zero ? _mm256_sub_epi32(i, _mm256_set1_epi32(zero * code_sum)) : i;
}

/* ---- integer sums */

#if defined(__AVXVNNI__)

/* The sums of n tokens over operands [first, first + count), zero not yet subtracted. x: each
 * token's codes of the group. */
TG_INLINE void tg_gemv_sum_plane(tg_layout l, const tg_gemv_group *k, const int8_t *const *x, int n,
                                 int first, int count, __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    for (int j = 0; j < n; j++)
        sum[0][j] = sum[1][j] = _mm256_setzero_si256();
    TG_UNROLL
    for (int v = first; v < first + count; v++) {
        __m256i w0 = tg_load_operand(l, k->part, k->g, v, 0);
        __m256i w1 = tg_load_operand(l, k->part, k->g, v, 1);
        for (int j = 0; j < n; j++) {
            __m256i b = tg_spread4(x[j] + 4 * v);
            sum[0][j] = tg_dot4(sum[0][j], w0, b);
            sum[1][j] = tg_dot4(sum[1][j], w1, b);
            TG_PIN(sum[0][j]);
            TG_PIN(sum[1][j]);
        }
    }
}

/* Sums with scales per sixteenth: below 2^24, so that floats hold them, and a multiplication and an
 * fma do what would take two of vpmulld. */
typedef __m256 tg_gemv_scaled;

TG_INLINE void tg_gemv_sum_scaled(tg_layout l, const tg_gemv_group *k, const tg_gemv_rows *x,
                                  const int8_t *const *codes, int n,
                                  tg_gemv_scaled sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    __m256i i[TG_AVX2_HALVES][TG_GEMV_MAX];
    TG_UNROLL
    for (int s = 0; s < 2; s++) {
        tg_gemv_sum_plane(l, k, codes, n, 4 * s, 4, i);
        for (int h = 0; h < TG_AVX2_HALVES; h++) {
            __m256i pairs = tg_load_pairs(l, k->part + tg_layout_forms[l].sc, k->g, h, s, s);
            __m256 sc = _mm256_cvtepi32_ps(tg_get_second(pairs));
            for (int j = 0; j < n; j++) {
                int32_t half = x->x[j].half[k->at], rest = x->x[j].sum[k->at] - half;
                __m256 f = _mm256_cvtepi32_ps(tg_gemv_subtract_zero(l, i[h][j], s ? rest : half));
                sum[h][j] = s ? _mm256_fmadd_ps(f, sc, sum[h][j]) : _mm256_mul_ps(f, sc);
            }
        }
    }
}

TG_INLINE __m256 tg_gemv_take_scaled(tg_layout l, const tg_gemv_group *k, int h, const tg_a8 *x,
                                     tg_gemv_scaled sum)
{
    (void)l, (void)k, (void)h, (void)x;
    return sum;
}

#else

/* Operands whose pairs fit int16 together. */
TG_INLINE int tg_gemv_find_run(tg_layout l)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    if (f->bits >= 0) return 4;
    return f->pairs >= 0 && f->nibbles >= 0 ? 2 : 8;
}

/* Adds the products of a run of operands, each pair of int16 times `factor[h]`, to the sums of n
 * tokens. x: each token's codes of the group. */
TG_INLINE void tg_gemv_add_run(tg_layout l, const tg_gemv_group *k, const int8_t *const *x, int n,
                               int first, int run, const __m256i factor[TG_AVX2_HALVES],
                               __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    __m256i a[TG_AVX2_HALVES][TG_GEMV_MAX];
    TG_UNROLL
    for (int v = first; v < first + run; v++) {
        __m256i w0 = tg_load_operand(l, k->part, k->g, v, 0);
        __m256i w1 = tg_load_operand(l, k->part, k->g, v, 1);
        for (int j = 0; j < n; j++) {
            __m256i b = tg_spread4(x[j] + 4 * v);
            __m256i p0 = _mm256_maddubs_epi16(w0, b), p1 = _mm256_maddubs_epi16(w1, b);
            a[0][j] = v == first ? p0 : _mm256_add_epi16(a[0][j], p0);
            a[1][j] = v == first ? p1 : _mm256_add_epi16(a[1][j], p1);
            TG_PIN(a[0][j]);
            TG_PIN(a[1][j]);
        }
    }
    for (int j = 0; j < n; j++)
        for (int h = 0; h < TG_AVX2_HALVES; h++)
            sum[h][j] = _mm256_add_epi32(sum[h][j], _mm256_madd_epi16(a[h][j], factor[h]));
}

/* The same for 8-bit codes. One half after the other, for each token needs two sums. */
TG_INLINE void tg_gemv_add_bytes(tg_layout l, const tg_gemv_group *k, const int8_t *const *x, int n,
                                 __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    const __m256i sixteens = _mm256_set1_epi16(16);
    for (int h = 0; h < TG_AVX2_HALVES; h++) {
        __m256i a[TG_GEMV_MAX], b[TG_GEMV_MAX];
        TG_UNROLL
        for (int v = 0; v < TG_AVX2_OPERANDS; v++) {
            __m256i w = tg_load_operand(l, k->part, k->g, v, h);
            __m256i w0 = _mm256_and_si256(w, low);
            __m256i w1 = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
            for (int j = 0; j < n; j++) {
                __m256i c = tg_spread4(x[j] + 4 * v);
                __m256i p0 = _mm256_maddubs_epi16(w0, c), p1 = _mm256_maddubs_epi16(w1, c);
                a[j] = v == 0 ? p0 : _mm256_add_epi16(a[j], p0);
                b[j] = v == 0 ? p1 : _mm256_add_epi16(b[j], p1);
                TG_PIN(a[j]);
                TG_PIN(b[j]);
            }
        }
        for (int j = 0; j < n; j++) {
            sum[h][j] = _mm256_add_epi32(sum[h][j], _mm256_madd_epi16(a[j], ones));
            sum[h][j] = _mm256_add_epi32(sum[h][j], _mm256_madd_epi16(b[j], sixteens));
        }
    }
}

TG_INLINE void tg_gemv_clear(int n, __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    for (int j = 0; j < n; j++)
        sum[0][j] = sum[1][j] = _mm256_setzero_si256();
}

/* Adds what n tokens' planes give over operands [first, first + count), zero not yet subtracted. */
TG_INLINE void tg_gemv_add_plane(tg_layout l, const tg_gemv_group *k, const int8_t *const *x, int n,
                                 int first, int count, const __m256i factor[TG_AVX2_HALVES],
                                 __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    if (tg_layout_forms[l].bytes >= 0) {
        tg_gemv_add_bytes(l, k, x, n, sum);
        return;
    }
    int run = TG_MIN(tg_gemv_find_run(l), count);
    TG_UNROLL
    for (int v = first; v < first + count; v += run)
        tg_gemv_add_run(l, k, x, n, v, run, factor, sum);
}

TG_INLINE void tg_gemv_sum_plane(tg_layout l, const tg_gemv_group *k, const int8_t *const *x, int n,
                                 int first, int count, __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    const __m256i ones[TG_AVX2_HALVES] = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    tg_gemv_clear(n, sum);
    tg_gemv_add_plane(l, k, x, n, first, count, ones, sum);
}

/* Sums with scales per sixteenth: vpmaddwd multiplies them in. All are exact: below 2^25. */
typedef __m256i tg_gemv_scaled;

TG_INLINE void tg_gemv_sum_scaled(tg_layout l, const tg_gemv_group *k, const tg_gemv_rows *x,
                                  const int8_t *const *codes, int n,
                                  tg_gemv_scaled sum[TG_AVX2_HALVES][TG_GEMV_MAX])
{
    __m256i sc[TG_AVX2_HALVES];
    (void)x;
    tg_gemv_clear(n, sum);
    TG_UNROLL
    for (int s = 0; s < 2; s++) {
        for (int h = 0; h < TG_AVX2_HALVES; h++)
            sc[h] = tg_load_pairs(l, k->part + tg_layout_forms[l].sc, k->g, h, s, s);
        tg_gemv_add_plane(l, k, codes, n, 4 * s, 4, sc, sum);
    }
}

/* Takes the zero away, 32. */
TG_INLINE __m256 tg_gemv_take_scaled(tg_layout l, const tg_gemv_group *k, int h, const tg_a8 *x,
                                     tg_gemv_scaled sum)
{
    if (tg_layout_forms[l].zero) {
        __m256i both = tg_load_pairs(l, k->part + tg_layout_forms[l].sc, k->g, h, 0, 1);
        __m256i zeros = _mm256_madd_epi16(both, tg_gemv_pair_sums(x, k->at));
        sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(zeros, 5));
    }
    return _mm256_cvtepi32_ps(sum);
}

#endif

/* Both planes of operands [first, first + count) of one token, unpacked once as if they were two
 * tokens: 256 hi + lo, minus the zero. */
TG_INLINE void tg_gemv_sum_planes(tg_layout l, const tg_gemv_group *k, const tg_a8 *x, int first,
                                  int count, int32_t code_sum, __m256i out[TG_AVX2_HALVES])
{
    const int8_t *planes[2] = {x->hi + TG_GROUP_COLS * k->at, tg_a8_low(x, k->at)};
    __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX];
    tg_gemv_sum_plane(l, k, planes, 2, first, count, sum);
    for (int h = 0; h < TG_AVX2_HALVES; h++) {
        __m256i i = _mm256_add_epi32(_mm256_slli_epi32(sum[h][0], 8), sum[h][1]);
        out[h] = tg_gemv_subtract_zero(l, i, code_sum);
    }
}

/* ---- one group's step of both chains (contract 6). acc never is -0 (it starts at +0 and no step
 * underflows), so the sign of a zero addend does not matter. */

TG_INLINE void tg_gemv_step_narrow(tg_layout l, const tg_gemv_group *k, const tg_gemv_rows *x,
                                   int n, tg_gemv_chains *c)
{
    const int8_t *codes[TG_GEMV_MAX];
    __m256i sum[TG_AVX2_HALVES][TG_GEMV_MAX];
    for (int j = 0; j < n; j++)
        codes[j] = x->x[j].hi + TG_GROUP_COLS * k->at;
    tg_gemv_sum_plane(l, k, codes, n, 0, TG_AVX2_OPERANDS, sum);
    for (int h = 0; h < TG_AVX2_HALVES; h++) {
        __m256 d = tg_load_d(l, k->head, k->part, k->g, h);
        for (int j = 0; j < n; j++) {
            __m256i i = tg_gemv_subtract_zero(l, sum[h][j], x->x[j].sum[k->at]);
            __m256 ds = _mm256_mul_ps(d, _mm256_set1_ps(x->x[j].scale[k->at]));
            c[j].acc[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ds, c[j].acc[h]);
        }
        if (!tg_form_has_min(l)) continue;
        __m256 m = tg_load_m(l, k->head, k->part, k->g, h);
        for (int j = 0; j < n; j++)
            c[j].min[h] = _mm256_fmadd_ps(m, _mm256_set1_ps(x->x[j].ssum[k->at]), c[j].min[h]);
    }
}

/* The same with scales per sixteenth. */
TG_INLINE void tg_gemv_step_narrow16(tg_layout l, const tg_gemv_group *k, const tg_gemv_rows *x,
                                     int n, tg_gemv_chains *c)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    const int8_t *codes[TG_GEMV_MAX];
    tg_gemv_scaled sum[TG_AVX2_HALVES][TG_GEMV_MAX];
    for (int j = 0; j < n; j++)
        codes[j] = x->x[j].hi + TG_GROUP_COLS * k->at;
    tg_gemv_sum_scaled(l, k, x, codes, n, sum);
    for (int h = 0; h < TG_AVX2_HALVES; h++) {
        __m256 d = tg_load_d(l, k->head, k->part, k->g, h);
        for (int j = 0; j < n; j++) {
            __m256 ds = _mm256_mul_ps(d, _mm256_set1_ps(x->x[j].scale[k->at]));
            __m256 i = tg_gemv_take_scaled(l, k, h, &x->x[j], sum[h][j]);
            c[j].acc[h] = _mm256_fmadd_ps(i, ds, c[j].acc[h]);
        }
        if (f->mn < 0) continue;
        __m256 m = tg_load_m(l, k->head, k->part, k->g, h);
        __m256i mn = tg_load_pairs(l, k->part + f->mn, k->g, h, 0, 1);
        for (int j = 0; j < n; j++) {
            __m256 ms = _mm256_mul_ps(m, _mm256_set1_ps(x->x[j].scale[k->at]));
            __m256i i = _mm256_madd_epi16(mn, tg_gemv_pair_sums(&x->x[j], k->at));
            c[j].min[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ms, c[j].min[h]);
        }
    }
}

/* A group with two planes, token after token. */
TG_INLINE void tg_gemv_step_outlier(tg_layout l, const tg_gemv_group *k, const tg_gemv_rows *x,
                                    int n, tg_gemv_chains *c)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    for (int j = 0; j < n; j++) {
        const tg_a8 *r = &x->x[j];
        int32_t sum = r->sum[k->at], half = r->half[k->at];
        __m256 scale = _mm256_set1_ps(r->scale[k->at]), ssum = _mm256_set1_ps(r->ssum[k->at]);
        __m256i first[TG_AVX2_HALVES], second[TG_AVX2_HALVES];
        if (!f->is_per16) tg_gemv_sum_planes(l, k, r, 0, TG_AVX2_OPERANDS, sum, first);
        if (f->is_per16) tg_gemv_sum_planes(l, k, r, 0, 4, half, first);
        if (f->is_per16) tg_gemv_sum_planes(l, k, r, 4, 4, sum - half, second);
        for (int h = 0; h < TG_AVX2_HALVES; h++) {
            __m256 d = tg_load_d(l, k->head, k->part, k->g, h), ds = _mm256_mul_ps(d, scale);
            if (!f->is_per16) {
                c[j].acc[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(first[h]), ds, c[j].acc[h]);
            } else {
                __m256i sc = tg_load_pairs(l, k->part + f->sc, k->g, h, 0, 1);
                c[j].acc[h] = tg_step_outlier16(first[h], second[h], sc, ds, c[j].acc[h]);
            }
            if (!tg_form_has_min(l)) continue;
            __m256 m = tg_load_m(l, k->head, k->part, k->g, h);
            if (!f->is_per16) {
                c[j].min[h] = _mm256_fmadd_ps(m, ssum, c[j].min[h]);
            } else {
                __m256i mn = tg_load_pairs(l, k->part + f->mn, k->g, h, 0, 1);
                __m256 ms = _mm256_mul_ps(m, scale);
                c[j].min[h] = tg_min_outlier16(mn, half, sum - half, ms, c[j].min[h]);
            }
        }
    }
}

/* ---- tiles */

/* The group by value: what is pointed to would have to be in memory for the other steps too. */
typedef void tg_gemv_outlier_fn(tg_gemv_group k, const tg_gemv_rows *x, int n, tg_gemv_chains *c);

TG_INLINE void tg_gemv_multiply_tile(const tg_matmul *m, tg_layout l, tg_gemv_outlier_fn *outlier,
                                     int32_t tile, const tg_gemv_rows *x, int n, tg_gemv_chains *c)
{
    const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    memset(c, 0, (size_t)n * sizeof *c);
    for (int64_t p = 0; p < n_parts; p++) {
        const uint8_t *head, *part = tg_form_part(l, w, p, &head);
        for (int i = 0; i < tg_layout_forms[l].part_bytes && m->prefetch_bytes; i += 64)
            _mm_prefetch((const char *)part + m->prefetch_bytes + i, _MM_HINT_T0);
        for (int g = 0; g < 2; g++) {
            const tg_gemv_group k = {.head = head, .part = part, .g = g, .at = 2 * p + g};
            if (tg_a8_low(&x->x[0], k.at))
                outlier(k, x, n, c);
            else if (tg_layout_forms[l].is_per16)
                tg_gemv_step_narrow16(l, &k, x, n, c);
            else
                tg_gemv_step_narrow(l, &k, x, n, c);
        }
    }
}

/* `n` is the instance's width, at least n_tokens. */
TG_INLINE void tg_gemv_multiply(const tg_matmul *m, tg_layout l, tg_gemv_outlier_fn *outlier,
                                int32_t token, int32_t n, int width)
{
    tg_gemv_rows x;
    tg_gemv_chains c[TG_GEMV_MAX];
    for (int32_t j = 0; j < width; j++)
        x.x[j] = tg_a8_from(m->a8, token + TG_MIN(j, n - 1));
    for (int32_t tile = 0; tile < m->n_tiles; tile++) {
        tg_gemv_multiply_tile(m, l, outlier, tile, &x, width, c);
        for (int32_t j = 0; j < width && j < n; j++)
            for (int h = 0; h < TG_AVX2_HALVES; h++) {
                __m256 dot = c[j].acc[h];
                if (tg_form_has_min(l)) dot = _mm256_add_ps(dot, c[j].min[h]);
                tg_store_rows(m, tile, h, token + j, dot);
            }
    }
}

TG_INLINE void tg_gemv_matmul(const tg_matmul *m, tg_layout l, tg_gemv_outlier_fn *outlier,
                              const tg_gemm_sums *gemm)
{
    if (m->n_tokens >= TG_GEMV_MANY && tg_avx2_matmul_gemm(m, l, gemm)) return;
    for (int32_t t = 0; t < m->n_tokens; t += TG_GEMV_MAX) {
        int32_t n = TG_MIN(m->n_tokens - t, (int32_t)TG_GEMV_MAX);
        switch (n) {
        case 1: tg_gemv_multiply(m, l, outlier, t, n, 1); break;
        case 2: tg_gemv_multiply(m, l, outlier, t, n, 2); break;
        case 3: tg_gemv_multiply(m, l, outlier, t, n, 3); break;
        case 4: tg_gemv_multiply(m, l, outlier, t, n, 4); break;
        default: tg_gemv_multiply(m, l, outlier, t, n, 6); break;
        }
    }
}

/* ---- one entry per layout */

#define TG_GEMV_ENTRY(name, NAME, many)                                                            \
    static TG_NOINLINE void outlier_##name(tg_gemv_group k, const tg_gemv_rows *x, int n,          \
                                           tg_gemv_chains *c)                                      \
    {                                                                                              \
        tg_gemv_step_outlier(TG_LAYOUT_##NAME, &k, x, n, c);                                       \
    }                                                                                              \
    static void matmul_##name(const tg_matmul *m)                                                  \
    {                                                                                              \
        tg_gemv_matmul(m, TG_LAYOUT_##NAME, outlier_##name, many);                                 \
    }
#define TG_GEMV_POINTER(name, NAME) [TG_LAYOUT_##NAME] = matmul_##name,

#endif
