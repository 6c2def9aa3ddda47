/* SPDX-License-Identifier: Apache-2.0
 * avx2_matmul.c - products of quantized weights with few tokens, and the tier's table of products.
 *
 * vpmaddubsw multiplies unsigned codes with signed ones and adds pairs in int16, where it
 * saturates. Codes up to 15 leave room for the whole group (8 operands x 2 x 15 x 128 = 30720), up
 * to 31 for four operands, up to 63 for two; 8-bit codes are split into two nibbles, which is exact
 * for every input, -128 too.
 *
 * A tile streams through the registers once, both halves side by side, and every token's sums ride
 * along: with one token it is bound by memory. The chains wait in memory between groups, where
 * their loads and stores hide behind the products; so a group with two planes is a function of its
 * own. From MANY tokens on avx2_many.c is faster. */
#include "kernel/avx2_codes.h"

enum { OPERANDS = TG_AVX2_OPERANDS, HALVES = TG_AVX2_HALVES, MAX_FEW = 6, MANY = 7 };

/* Rows of activations: those of token i, or of the last token when the instance is wider. */
typedef struct rows {
    tg_a8 x[MAX_FEW];
} rows;

/* Both chains of a tile's rows for one token. */
typedef struct chains {
    __m256 acc[HALVES], min[HALVES];
} chains;

/* One group of a tile. */
typedef struct group {
    const uint8_t *head, *part;
    int g;      /* in the part */
    int64_t at; /* in the row */
} group;

/* ---- integer sums */

/* Operands whose pairs fit int16 together. */
TG_INLINE int get_run(tg_layout l)
{
    const tg_form *f = &tg_forms[l];
    if (f->bits >= 0) return 4;
    return f->pairs >= 0 && f->nibbles >= 0 ? 2 : 8;
}

/* Adds the products of a run of operands, each pair of int16 times `factor[h]`, to the sums of n
 * tokens. x: each token's codes of the group. */
TG_INLINE void add_run(tg_layout l, const group *k, const int8_t *const *x, int n, int first,
                       int run, const __m256i factor[HALVES], __m256i sum[HALVES][MAX_FEW])
{
    __m256i a[HALVES][MAX_FEW];
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
        for (int h = 0; h < HALVES; h++)
            sum[h][j] = _mm256_add_epi32(sum[h][j], _mm256_madd_epi16(a[h][j], factor[h]));
}

/* The same for 8-bit codes. One half after the other, for each token needs two sums. */
TG_INLINE void add_bytes(tg_layout l, const group *k, const int8_t *const *x, int n,
                         __m256i sum[HALVES][MAX_FEW])
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    const __m256i sixteens = _mm256_set1_epi16(16);
    for (int h = 0; h < HALVES; h++) {
        __m256i a[MAX_FEW], b[MAX_FEW];
        TG_UNROLL
        for (int v = 0; v < OPERANDS; v++) {
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

TG_INLINE void clear_sums(int n, __m256i sum[HALVES][MAX_FEW])
{
    for (int j = 0; j < n; j++)
        sum[0][j] = sum[1][j] = _mm256_setzero_si256();
}

/* The sums of n tokens' planes over operands [first, first + count), zero not yet subtracted. */
TG_INLINE void add_plane(tg_layout l, const group *k, const int8_t *const *x, int n, int first,
                         int count, const __m256i factor[HALVES], __m256i sum[HALVES][MAX_FEW])
{
    if (tg_forms[l].bytes >= 0) {
        add_bytes(l, k, x, n, sum);
        return;
    }
    int run = TG_MIN(get_run(l), count);
    TG_UNROLL
    for (int v = first; v < first + count; v += run)
        add_run(l, k, x, n, v, run, factor, sum);
}

TG_INLINE __m256i subtract_zero(tg_layout l, __m256i i, int32_t code_sum)
{
    int zero = tg_forms[l].zero;
    return zero ? _mm256_sub_epi32(i, _mm256_set1_epi32(zero * code_sum)) : i;
}

/* ---- one group's step of both chains (contract 6). acc never is -0 (it starts at +0 and no step
 * underflows), so the sign of a zero addend does not matter. */

TG_INLINE void step_narrow(tg_layout l, const group *k, const rows *x, int n, chains *c)
{
    const __m256i ones[HALVES] = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    const int8_t *codes[MAX_FEW];
    __m256i sum[HALVES][MAX_FEW];
    for (int j = 0; j < n; j++)
        codes[j] = x->x[j].hi + TG_GROUP_COLS * k->at;
    clear_sums(n, sum);
    add_plane(l, k, codes, n, 0, OPERANDS, ones, sum);
    for (int h = 0; h < HALVES; h++) {
        __m256 d = tg_load_d(l, k->head, k->part, k->g, h);
        for (int j = 0; j < n; j++) {
            __m256i i = subtract_zero(l, sum[h][j], x->x[j].sum[k->at]);
            __m256 ds = _mm256_mul_ps(d, _mm256_set1_ps(x->x[j].scale[k->at]));
            c[j].acc[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ds, c[j].acc[h]);
        }
        if (!tg_form_has_min(l)) continue;
        __m256 m = tg_load_m(l, k->head, k->part, k->g, h);
        for (int j = 0; j < n; j++)
            c[j].min[h] = _mm256_fmadd_ps(m, _mm256_set1_ps(x->x[j].ssum[k->at]), c[j].min[h]);
    }
}

/* The code sums of both sixteenths as a pair of int16. */
TG_INLINE __m256i pair_sums(const tg_a8 *x, int64_t at)
{
    uint32_t first = (uint32_t)x->half[at], second = (uint32_t)(x->sum[at] - x->half[at]);
    return _mm256_set1_epi32((int32_t)((first & 0xffff) | second << 16));
}

/* Scales per sixteenth: vpmaddwd multiplies them in. All sums are exact: below 2^25. */
TG_INLINE void step_narrow16(tg_layout l, const group *k, const rows *x, int n, chains *c)
{
    const tg_form *f = &tg_forms[l];
    const int8_t *codes[MAX_FEW];
    __m256i sum[HALVES][MAX_FEW], sc[HALVES];
    for (int j = 0; j < n; j++)
        codes[j] = x->x[j].hi + TG_GROUP_COLS * k->at;
    clear_sums(n, sum);
    for (int s = 0; s < 2; s++) {
        for (int h = 0; h < HALVES; h++)
            sc[h] = tg_load_pairs(l, k->part + f->sc, k->g, h, s, s);
        add_plane(l, k, codes, n, 4 * s, 4, sc, sum);
    }
    for (int h = 0; h < HALVES; h++) {
        __m256 d = tg_load_d(l, k->head, k->part, k->g, h);
        __m256i both = tg_load_pairs(l, k->part + f->sc, k->g, h, 0, 1);
        for (int j = 0; j < n; j++) {
            __m256 ds = _mm256_mul_ps(d, _mm256_set1_ps(x->x[j].scale[k->at]));
            __m256i i = sum[h][j], s = pair_sums(&x->x[j], k->at);
            if (f->zero) /* 32 */
                i = _mm256_sub_epi32(i, _mm256_slli_epi32(_mm256_madd_epi16(both, s), 5));
            c[j].acc[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ds, c[j].acc[h]);
        }
        if (f->mn < 0) continue;
        __m256 m = tg_load_m(l, k->head, k->part, k->g, h);
        __m256i mn = tg_load_pairs(l, k->part + f->mn, k->g, h, 0, 1);
        for (int j = 0; j < n; j++) {
            __m256 ms = _mm256_mul_ps(m, _mm256_set1_ps(x->x[j].scale[k->at]));
            __m256i i = _mm256_madd_epi16(mn, pair_sums(&x->x[j], k->at));
            c[j].min[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ms, c[j].min[h]);
        }
    }
}

/* Both planes of operands [first, first + count) of one token, unpacked once as if they were two
 * tokens: 256 hi + lo, minus the zero. */
TG_INLINE void sum_planes(tg_layout l, const group *k, const tg_a8 *x, int first, int count,
                          int32_t code_sum, __m256i out[HALVES])
{
    const __m256i ones[HALVES] = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    const int8_t *planes[2] = {x->hi + TG_GROUP_COLS * k->at, tg_a8_low(x, k->at)};
    __m256i sum[HALVES][MAX_FEW];
    clear_sums(2, sum);
    add_plane(l, k, planes, 2, first, count, ones, sum);
    for (int h = 0; h < HALVES; h++) {
        __m256i i = _mm256_add_epi32(_mm256_slli_epi32(sum[h][0], 8), sum[h][1]);
        out[h] = subtract_zero(l, i, code_sum);
    }
}

/* A group with two planes, token after token. */
TG_INLINE void step_wide(tg_layout l, const group *k, const rows *x, int n, chains *c)
{
    const tg_form *f = &tg_forms[l];
    for (int j = 0; j < n; j++) {
        const tg_a8 *r = &x->x[j];
        int32_t sum = r->sum[k->at], half = r->half[k->at];
        __m256 scale = _mm256_set1_ps(r->scale[k->at]), ssum = _mm256_set1_ps(r->ssum[k->at]);
        __m256i first[HALVES], second[HALVES];
        if (!f->is_per16) sum_planes(l, k, r, 0, OPERANDS, sum, first);
        if (f->is_per16) sum_planes(l, k, r, 0, 4, half, first);
        if (f->is_per16) sum_planes(l, k, r, 4, 4, sum - half, second);
        for (int h = 0; h < HALVES; h++) {
            __m256 d = tg_load_d(l, k->head, k->part, k->g, h), ds = _mm256_mul_ps(d, scale);
            if (!f->is_per16) {
                c[j].acc[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(first[h]), ds, c[j].acc[h]);
            } else {
                __m256i sc = tg_load_pairs(l, k->part + f->sc, k->g, h, 0, 1);
                c[j].acc[h] = tg_step_wide16(first[h], second[h], sc, ds, c[j].acc[h]);
            }
            if (!tg_form_has_min(l)) continue;
            __m256 m = tg_load_m(l, k->head, k->part, k->g, h);
            if (!f->is_per16) {
                c[j].min[h] = _mm256_fmadd_ps(m, ssum, c[j].min[h]);
            } else {
                __m256i mn = tg_load_pairs(l, k->part + f->mn, k->g, h, 0, 1);
                __m256 ms = _mm256_mul_ps(m, scale);
                c[j].min[h] = tg_min_wide16(mn, half, sum - half, ms, c[j].min[h]);
            }
        }
    }
}

/* ---- tiles */

/* The group by value: what is pointed to would have to be in memory for the other steps too. */
typedef void wide_fn(group k, const rows *x, int n, chains *c);

TG_INLINE void multiply_tile(const tg_matmul *m, tg_layout l, wide_fn *wide, int32_t tile,
                             const rows *x, int n, chains *c)
{
    const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    memset(c, 0, (size_t)n * sizeof *c);
    for (int64_t p = 0; p < n_parts; p++) {
        const uint8_t *head, *part = tg_form_part(l, w, p, &head);
        for (int i = 0; i < tg_forms[l].part_bytes && m->prefetch_bytes; i += 64)
            _mm_prefetch((const char *)part + m->prefetch_bytes + i, _MM_HINT_T0);
        for (int g = 0; g < 2; g++) {
            const group k = {.head = head, .part = part, .g = g, .at = 2 * p + g};
            if (tg_a8_low(&x->x[0], k.at))
                wide(k, x, n, c);
            else if (tg_forms[l].is_per16)
                step_narrow16(l, &k, x, n, c);
            else
                step_narrow(l, &k, x, n, c);
        }
    }
}

/* `n` is the instance's width, at least n_tokens. */
TG_INLINE void few_tokens(const tg_matmul *m, tg_layout l, wide_fn *wide, int32_t token, int32_t n,
                          int width)
{
    rows x;
    chains c[MAX_FEW];
    for (int32_t j = 0; j < width; j++)
        x.x[j] = tg_a8_from(m->a8, token + TG_MIN(j, n - 1));
    for (int32_t tile = 0; tile < m->n_tiles; tile++) {
        multiply_tile(m, l, wide, tile, &x, width, c);
        for (int32_t j = 0; j < width && j < n; j++)
            for (int h = 0; h < HALVES; h++) {
                __m256 dot = c[j].acc[h];
                if (tg_form_has_min(l)) dot = _mm256_add_ps(dot, c[j].min[h]);
                tg_store_rows(m, tile, h, token + j, dot);
            }
    }
}

TG_INLINE void matmul(const tg_matmul *m, tg_layout l, wide_fn *wide)
{
    if (m->n_tokens >= MANY && tg_avx2_matmul_many(m, l)) return;
    for (int32_t t = 0; t < m->n_tokens; t += MAX_FEW) {
        int32_t n = TG_MIN(m->n_tokens - t, (int32_t)MAX_FEW);
        switch (n) {
        case 1: few_tokens(m, l, wide, t, n, 1); break;
        case 2: few_tokens(m, l, wide, t, n, 2); break;
        case 3: few_tokens(m, l, wide, t, n, 3); break;
        case 4: few_tokens(m, l, wide, t, n, 4); break;
        default: few_tokens(m, l, wide, t, n, 6); break;
        }
    }
}

/* ---- one entry per layout */

#define ENTRY(name, NAME)                                                                          \
    static TG_NOINLINE void wide_##name(group k, const rows *x, int n, chains *c)                  \
    {                                                                                              \
        step_wide(TG_LAYOUT_##NAME, &k, x, n, c);                                                  \
    }                                                                                              \
    static void matmul_##name(const tg_matmul *m)                                                  \
    {                                                                                              \
        matmul(m, TG_LAYOUT_##NAME, wide_##name);                                                  \
    }
#define POINTER(name, NAME) [TG_LAYOUT_##NAME] = matmul_##name,

TG_EACH_FORM(ENTRY)

tg_matmul_fn *const tg_avx2_matmul[TG_LAYOUT_COUNT] = {[TG_LAYOUT_F32] = tg_avx2_matmul_f32,
                                                       [TG_LAYOUT_F16] = tg_avx2_matmul_f16,
                                                       [TG_LAYOUT_BF16] = tg_avx2_matmul_bf16,
                                                       TG_EACH_FORM(POINTER)};
