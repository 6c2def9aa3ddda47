/* SPDX-License-Identifier: Apache-2.0
 * avx2_gemm.h - sums of many tokens with 256-bit registers: a set of six tokens over a slab of a
 * tile. avx2_gemm.c says how both are made; what it runs is compiled twice from here, for plain
 * AVX2 and (avx2_vnni_gemm.c) for AVX-VNNI, whose vpdpbusd adds four products to an int32 at once.
 *
 * Plain sums of a whole group stay in int16 (one vpmaddwd a group): codes are taken around a centre
 * c, and sum (q - c) x over the 16 columns that meet in one int16 is at most 16 x 16 x 127 = 32512
 * for 5-bit codes, and as much for 8 columns of 6-bit ones. vpmaddubsw itself sees the unsigned
 * codes (63 x 127 x 2 fits), vpaddw wraps, and -c sum(x), which the sum begins with, brings it
 * back. Second planes reach -128, where that fails by one: they take shorter runs. 8-bit codes are
 * widened to int16: vpmaddwd needs 16 instructions where two nibbles would need 18.
 *
 * With vpdpbusd a sum has room for any code: it begins with -zero sum(x), which takes the zero
 * away, and codes stay bytes. */
#ifndef TG_KERNEL_AVX2_GEMM_H
#define TG_KERNEL_AVX2_GEMM_H

#include "kernel/avx2_codes.h"

enum { TG_SET = 6 };

/* One group of one tile, unpacked. */
typedef struct tg_gemm_weights {
    float d[TG_AVX2_HALVES][8], m[TG_AVX2_HALVES][8];
    int16_t sc[2][TG_AVX2_HALVES][16];    /* by sixteenth, twice in every lane */
    int16_t pairs[2][TG_AVX2_HALVES][16]; /* both sixteenths' sc, mn */
    union {
        uint8_t u8[TG_AVX2_OPERANDS][TG_AVX2_HALVES][32];
        /* 8-bit codes, zero subtracted: two columns. */
        int16_t i16[2 * TG_AVX2_OPERANDS][TG_AVX2_HALVES][16];
    } code;
} tg_gemm_weights;

/* What six tokens bring to one group; tokens beyond the last repeat it. */
typedef struct tg_gemm_inputs {
    float scale[TG_SET], ssum[TG_SET];
    /* Narrow: what the sums begin with, two int16 or (tg_gemm_sums.is_dot) an int32; wide: code
     * sums. By sixteenth where scales are. */
    int32_t first[TG_SET], second[TG_SET];
    int32_t back[TG_SET]; /* (centre - zero) x code sum, or both sixteenths' as int16 */
    int32_t unused[2];
    int32_t x[]; /* [operand][set] four codes, or [pair][set] two int16; then the second plane */
} tg_gemm_inputs;

typedef struct tg_gemm_chains {
    float acc[TG_SET][TG_AVX2_HALVES][8], min[TG_SET][TG_AVX2_HALVES][8];
} tg_gemm_chains;

/* How a layout's sums are formed. */
typedef enum tg_sum_kind {
    TG_SUM_PLAIN,   /* codes as they are: no zero */
    TG_SUM_CENTRED, /* around their zero */
    TG_SUM_MOVED,   /* around a centre that is not their zero: int16 sums of 5 bits without zero */
    TG_SUM_PER16,   /* each sixteenth apart, around the zero */
    TG_SUM_WORDS,   /* int16 weights */
    TG_SUM_COUNT
} tg_sum_kind;

TG_INLINE size_t tg_gemm_plane_bytes(bool is_words)
{
    return (is_words ? 2 : 1) * sizeof(int32_t[TG_AVX2_OPERANDS][TG_SET]);
}

TG_INLINE const tg_gemm_inputs *tg_gemm_next(const tg_gemm_inputs *x, bool is_words,
                                             bool is_outlier)
{
    size_t n = sizeof *x + (is_outlier ? 2 : 1) * tg_gemm_plane_bytes(is_words);
    return (const tg_gemm_inputs *)(const void *)((const char *)x + n);
}

/* ---- sums in registers */

TG_INLINE __m256i tg_gemm_load(const void *p)
{
    return _mm256_load_si256((const __m256i *)p);
}

#if defined(__AVXVNNI__)

/* Adds operands [first, last) of n tokens to the sums. */
TG_INLINE void tg_gemm_add(const tg_gemm_weights *w, const int32_t *x, int n, int first, int last,
                           __m256i a[TG_AVX2_HALVES][TG_SET])
{
    TG_UNROLL
    for (int v = first; v < last; v++) {
        __m256i w0 = tg_gemm_load(w->code.u8[v][0]), w1 = tg_gemm_load(w->code.u8[v][1]);
        for (int j = 0; j < n; j++) {
            __m256i b = _mm256_set1_epi32(x[TG_SET * v + j]);
            a[0][j] = tg_dot4(a[0][j], w0, b);
            a[1][j] = tg_dot4(a[1][j], w1, b);
            TG_PIN(a[0][j]);
            TG_PIN(a[1][j]);
        }
    }
}

TG_INLINE void tg_gemm_begin(const int32_t *start, int n, __m256i a[TG_AVX2_HALVES][TG_SET])
{
    for (int j = 0; j < n; j++)
        a[0][j] = a[1][j] = start ? _mm256_set1_epi32(start[j]) : _mm256_setzero_si256();
}

/* The exact sums of a group, per-16 scales included: below 2^24, so that floats hold them, and a
 * multiplication and an fma do what would take two of vpmulld. */
TG_INLINE void tg_gemm_sum_group(const tg_gemm_weights *w, const tg_gemm_inputs *x, int n,
                                 tg_sum_kind kind, __m256 sum[TG_AVX2_HALVES][TG_SET])
{
    bool is_per16 = kind == TG_SUM_PER16;
    int last = is_per16 ? TG_AVX2_OPERANDS / 2 : TG_AVX2_OPERANDS;
    __m256i a[TG_AVX2_HALVES][TG_SET];
    tg_gemm_begin(kind == TG_SUM_PLAIN ? NULL : x->first, n, a);
    tg_gemm_add(w, x->x, n, 0, last, a);
    for (int h = 0; h < TG_AVX2_HALVES; h++) {
        __m256 sc = _mm256_cvtepi32_ps(tg_get_second(tg_gemm_load(w->sc[0][h])));
        for (int j = 0; j < n; j++) {
            sum[h][j] = _mm256_cvtepi32_ps(a[h][j]);
            if (is_per16) sum[h][j] = _mm256_mul_ps(sum[h][j], sc);
        }
    }
    if (!is_per16) return;
    tg_gemm_begin(x->second, n, a);
    tg_gemm_add(w, x->x, n, last, TG_AVX2_OPERANDS, a);
    for (int h = 0; h < TG_AVX2_HALVES; h++) {
        __m256 sc = _mm256_cvtepi32_ps(tg_get_second(tg_gemm_load(w->sc[1][h])));
        for (int j = 0; j < n; j++)
            sum[h][j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(a[h][j]), sc, sum[h][j]);
    }
}

/* 256 hi + lo, minus the zero, over operands [first, last). */
TG_INLINE void tg_gemm_sum_planes(const tg_gemm_weights *w, const tg_gemm_inputs *x,
                                  const tg_layout_form *f, int first, int last,
                                  const int32_t *code_sum, __m256i sum[TG_AVX2_HALVES][TG_SET])
{
    tg_gemm_begin(NULL, TG_SET, sum);
    tg_gemm_add(w, x->x, TG_SET, first, last, sum);
    for (int j = 0; j < TG_SET; j++)
        for (int h = 0; h < TG_AVX2_HALVES; h++) {
            sum[h][j] = _mm256_slli_epi32(sum[h][j], 8);
            sum[h][j] = _mm256_sub_epi32(sum[h][j], _mm256_set1_epi32(f->zero * code_sum[j]));
        }
    tg_gemm_add(w, x->x + tg_gemm_plane_bytes(false) / sizeof *x->x, TG_SET, first, last, sum);
}

#else

/* int16 sums of operands [first, last) and n tokens; they begin with `start`, or nothing. */
TG_INLINE void tg_gemm_add(const tg_gemm_weights *w, const int32_t *x, int n, int first, int last,
                           const int32_t *start, __m256i a[TG_AVX2_HALVES][TG_SET])
{
    TG_UNROLL
    for (int v = first; v < last; v++) {
        __m256i w0 = tg_gemm_load(w->code.u8[v][0]), w1 = tg_gemm_load(w->code.u8[v][1]);
        for (int j = 0; j < n; j++) {
            __m256i b = _mm256_set1_epi32(x[TG_SET * v + j]);
            __m256i p0 = _mm256_maddubs_epi16(w0, b), p1 = _mm256_maddubs_epi16(w1, b);
            if (v > first) {
                a[0][j] = _mm256_add_epi16(a[0][j], p0);
                a[1][j] = _mm256_add_epi16(a[1][j], p1);
            } else if (start) {
                a[0][j] = _mm256_add_epi16(_mm256_set1_epi32(start[j]), p0);
                a[1][j] = _mm256_add_epi16(_mm256_set1_epi32(start[j]), p1);
            } else {
                a[0][j] = p0;
                a[1][j] = p1;
            }
            TG_PIN(a[0][j]);
            TG_PIN(a[1][j]);
        }
    }
}

/* int32 sums of int16 weights. */
TG_INLINE void tg_gemm_sum_words(const tg_gemm_weights *w, const int32_t *x, int n,
                                 __m256i a[TG_AVX2_HALVES][TG_SET])
{
    TG_UNROLL
    for (int v = 0; v < 2 * TG_AVX2_OPERANDS; v++) {
        __m256i w0 = tg_gemm_load(w->code.i16[v][0]), w1 = tg_gemm_load(w->code.i16[v][1]);
        for (int j = 0; j < n; j++) {
            __m256i b = _mm256_set1_epi32(x[TG_SET * v + j]);
            __m256i p0 = _mm256_madd_epi16(w0, b), p1 = _mm256_madd_epi16(w1, b);
            a[0][j] = v ? _mm256_add_epi32(a[0][j], p0) : p0;
            a[1][j] = v ? _mm256_add_epi32(a[1][j], p1) : p1;
            TG_PIN(a[0][j]);
            TG_PIN(a[1][j]);
        }
    }
}

/* The exact sums of a group, per-16 scales included. */
TG_INLINE void tg_gemm_sum_group(const tg_gemm_weights *w, const tg_gemm_inputs *x, int n,
                                 tg_sum_kind kind, __m256 sum[TG_AVX2_HALVES][TG_SET])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a[TG_AVX2_HALVES][TG_SET], b[TG_AVX2_HALVES][TG_SET];
    if (kind == TG_SUM_WORDS) {
        tg_gemm_sum_words(w, x->x, n, a);
    } else if (kind == TG_SUM_PER16) {
        tg_gemm_add(w, x->x, n, 0, TG_AVX2_OPERANDS / 2, x->first, b);
        for (int j = 0; j < n; j++)
            for (int h = 0; h < TG_AVX2_HALVES; h++)
                b[h][j] = _mm256_madd_epi16(b[h][j], tg_gemm_load(w->sc[0][h]));
        tg_gemm_add(w, x->x, n, TG_AVX2_OPERANDS / 2, TG_AVX2_OPERANDS, x->second, a);
        for (int j = 0; j < n; j++)
            for (int h = 0; h < TG_AVX2_HALVES; h++) {
                a[h][j] = _mm256_madd_epi16(a[h][j], tg_gemm_load(w->sc[1][h]));
                a[h][j] = _mm256_add_epi32(a[h][j], b[h][j]);
            }
    } else {
        tg_gemm_add(w, x->x, n, 0, TG_AVX2_OPERANDS, kind == TG_SUM_PLAIN ? NULL : x->first, a);
        for (int j = 0; j < n; j++)
            for (int h = 0; h < TG_AVX2_HALVES; h++) {
                a[h][j] = _mm256_madd_epi16(a[h][j], ones);
                if (kind == TG_SUM_MOVED)
                    a[h][j] = _mm256_add_epi32(a[h][j], _mm256_set1_epi32(x->back[j]));
            }
    }
    for (int j = 0; j < n; j++)
        for (int h = 0; h < TG_AVX2_HALVES; h++)
            sum[h][j] = _mm256_cvtepi32_ps(a[h][j]);
}

/* One plane's exact sums over operands [first, last): int16 in runs that fit. */
TG_INLINE void tg_gemm_sum_plane(const tg_gemm_weights *w, const int32_t *x, int first, int last,
                                 int run, __m256i sum[TG_AVX2_HALVES][TG_SET])
{
    const __m256i ones = _mm256_set1_epi16(1);
    for (int v = first; v < last; v += run) {
        __m256i a[TG_AVX2_HALVES][TG_SET];
        tg_gemm_add(w, x, TG_SET, v, v + run, NULL, a);
        for (int j = 0; j < TG_SET; j++)
            for (int h = 0; h < TG_AVX2_HALVES; h++) {
                __m256i s = _mm256_madd_epi16(a[h][j], ones);
                sum[h][j] = v > first ? _mm256_add_epi32(sum[h][j], s) : s;
            }
    }
}

/* 256 hi + lo, minus the zero, over operands [first, last). */
TG_INLINE void tg_gemm_sum_planes(const tg_gemm_weights *w, const tg_gemm_inputs *x,
                                  const tg_layout_form *f, int first, int last,
                                  const int32_t *code_sum, __m256i sum[TG_AVX2_HALVES][TG_SET])
{
    bool is_words = f->bytes >= 0;
    __m256i low[TG_AVX2_HALVES][TG_SET];
    for (int plane = 0; plane < 2; plane++) {
        const int32_t *codes = x->x + (size_t)plane * tg_gemm_plane_bytes(is_words) / sizeof *x->x;
        __m256i(*to)[TG_SET] = plane ? low : sum;
        if (is_words)
            tg_gemm_sum_words(w, codes, TG_SET, to);
        else if (f->is_per16)
            tg_gemm_sum_plane(w, codes, first, last, 2, to);
        else if (f->bits >= 0)
            tg_gemm_sum_plane(w, codes, 0, TG_AVX2_OPERANDS, 4, to);
        else
            tg_gemm_sum_plane(w, codes, 0, TG_AVX2_OPERANDS, 8, to);
    }
    for (int j = 0; j < TG_SET; j++) {
        __m256i zero = _mm256_set1_epi32(is_words ? 0 : f->zero * code_sum[j]);
        for (int h = 0; h < TG_AVX2_HALVES; h++) {
            sum[h][j] = _mm256_add_epi32(_mm256_slli_epi32(sum[h][j], 8), low[h][j]);
            sum[h][j] = _mm256_sub_epi32(sum[h][j], zero);
        }
    }
}

#endif

/* ---- steps of the chains */

TG_INLINE void tg_gemm_step_narrow(const tg_gemm_weights *w, const tg_gemm_inputs *x, int n,
                                   tg_sum_kind kind, tg_gemm_chains *c)
{
    __m256 sum[TG_AVX2_HALVES][TG_SET];
    tg_gemm_sum_group(w, x, n, kind, sum);
    for (int j = 0; j < n; j++) {
        __m256 scale = _mm256_set1_ps(x->scale[j]);
        for (int h = 0; h < TG_AVX2_HALVES; h++) {
            __m256 ds = _mm256_mul_ps(_mm256_load_ps(w->d[h]), scale);
            __m256 acc = _mm256_load_ps(c->acc[j][h]);
            _mm256_store_ps(c->acc[j][h], _mm256_fmadd_ps(sum[h][j], ds, acc));
        }
    }
}

/* The chain of the scaled sums; all six tokens, for absent ones repeat the last. */
static TG_NOINLINE void tg_gemm_step_outlier(const tg_gemm_weights *w, const tg_gemm_inputs *x,
                                             const tg_layout_form *f, tg_gemm_chains *c)
{
    __m256i first[TG_AVX2_HALVES][TG_SET], second[TG_AVX2_HALVES][TG_SET];
    if (f->is_per16) {
        tg_gemm_sum_planes(w, x, f, 0, TG_AVX2_OPERANDS / 2, x->first, first);
        tg_gemm_sum_planes(w, x, f, TG_AVX2_OPERANDS / 2, TG_AVX2_OPERANDS, x->second, second);
    } else {
        tg_gemm_sum_planes(w, x, f, 0, TG_AVX2_OPERANDS, x->first, first);
    }
    for (int j = 0; j < TG_SET; j++) {
        __m256 scale = _mm256_set1_ps(x->scale[j]);
        for (int h = 0; h < TG_AVX2_HALVES; h++) {
            __m256 ds = _mm256_mul_ps(_mm256_load_ps(w->d[h]), scale);
            __m256 acc = _mm256_load_ps(c->acc[j][h]);
            if (f->is_per16)
                acc = tg_step_outlier16(first[h][j], second[h][j], tg_gemm_load(w->pairs[0][h]), ds,
                                        acc);
            else
                acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(first[h][j]), ds, acc);
            _mm256_store_ps(c->acc[j][h], acc);
        }
    }
}

/* ---- a set of tokens over a slab */

typedef struct tg_gemm_work {
    const tg_gemm_weights *w;
    const tg_layout_form *form;
    const tg_a8 *x; /* says which groups are wide */
    int64_t group;  /* the slab's first */
    int n_groups;
} tg_gemm_work;

TG_INLINE const tg_gemm_inputs *tg_gemm_multiply(const tg_gemm_work *k, const tg_gemm_inputs *x,
                                                 int n, tg_sum_kind kind, tg_gemm_chains *c)
{
    for (int g = 0; g < k->n_groups; g++) {
        bool is_outlier = tg_a8_low(k->x, k->group + g) != NULL;
        if (is_outlier)
            tg_gemm_step_outlier(k->w + g, x, k->form, c);
        else
            tg_gemm_step_narrow(k->w + g, x, n, kind, c);
        x = tg_gemm_next(x, kind == TG_SUM_WORDS, is_outlier);
    }
    return x;
}

/* What is compiled twice. */
typedef const tg_gemm_inputs *tg_gemm_fn(const tg_gemm_work *k, const tg_gemm_inputs *x,
                                         tg_gemm_chains *c);

struct tg_gemm_sums {
    bool is_dot; /* vpdpbusd: sums are int32, and 8-bit codes need not become int16 */
    tg_gemm_fn *multiply[TG_SUM_COUNT][2]; /* by [kind][more than half a set] */
};

#define TG_GEMM_INSTANCE(name, NAME, n)                                                            \
    static TG_NOINLINE const tg_gemm_inputs *name##_##n(                                           \
        const tg_gemm_work *k, const tg_gemm_inputs *x, tg_gemm_chains *c)                         \
    {                                                                                              \
        return tg_gemm_multiply(k, x, n, TG_SUM_##NAME, c);                                        \
    }
#define TG_GEMM_INSTANCES(name, NAME)                                                              \
    TG_GEMM_INSTANCE(name, NAME, 6)                                                                \
    TG_GEMM_INSTANCE(name, NAME, 3)

#endif
