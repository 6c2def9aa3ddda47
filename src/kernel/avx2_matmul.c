/* SPDX-License-Identifier: Apache-2.0
 * avx2_matmul.c - products of packed weights, 8 rows a register.
 *
 * Quantized: vpmaddubsw multiplies unsigned codes with signed ones and adds pairs in int16,
 * where it saturates. Codes up to 15 leave room for the whole group (8 operands x 2 x 15 x 128 =
 * 30720), up to 31 for four operands, up to 63 for two; 8-bit codes are split into two nibbles,
 * which is exact for every input, -128 too. A tile stays in the first-level cache while all
 * tokens pass, four at a time.
 *
 * Float: one chain per output; tiles and tokens are combined until 8 or more chains run, for a
 * chain takes a step every 4 cycles. */
#include "kernel/avx2.h"
#include "kernel/form.h"

#include <math.h>
#include <string.h>

enum { OPERANDS = 8, HALVES = 2, MAX_TOKENS = 4 };

/* ---- what follows the dot product (contract 8) */

/* Rows 8 half .. 8 half + 7 of a tile for one token. */
TG_INLINE void store_rows(const tg_matmul *m, int32_t tile, int half, int32_t token, __m256 dot)
{
    int32_t row = tile * TG_TILE_ROWS + 8 * half, n = m->n_rows - row;
    if (n <= 0) return;
    float *y = m->y + token * m->y_stride + row;
    if (m->bias) dot = _mm256_add_ps(dot, tg_load8(m->bias + row, n));
    if (m->is_add) dot = _mm256_add_ps(tg_load8(y, n), dot);
    tg_store8(y, n, dot);
}

/* ---- reading a quantized layout */

/* Codes of 8 rows of a group as unsigned bytes; `high` only for 8-bit codes: code = w + 16 high. */
typedef struct codes {
    __m256i w[OPERANDS], high[OPERANDS];
} codes;

TG_INLINE __m256i load32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* 16 in every byte whose bit is set. */
TG_INLINE __m256i spread_bits(const uint8_t *p)
{
    const __m256i which =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    __m256i b = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), which), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(b, bit), _mm256_set1_epi8(16));
}

/* By a constant: -4, -2, 0, 2, 4 or 6 bits. */
TG_INLINE __m256i shift_right(__m256i x, int n)
{
    switch (n) {
    case -4: return _mm256_slli_epi16(x, 4);
    case -2: return _mm256_slli_epi16(x, 2);
    case 2: return _mm256_srli_epi16(x, 2);
    case 4: return _mm256_srli_epi16(x, 4);
    case 6: return _mm256_srli_epi16(x, 6);
    default: return x;
    }
}

TG_INLINE void load_codes(tg_layout l, const uint8_t *part, int g, int half, codes *out)
{
    const tg_form *f = &tg_forms[l];
    const __m256i low = _mm256_set1_epi8(15), pair = _mm256_set1_epi8(f->nibbles >= 0 ? 0x30 : 3);
    for (int v = 0; v < OPERANDS; v++) {
        int o = g * OPERANDS + v;
        const uint8_t *p = part + 32 * half;
        if (f->bytes >= 0) {
            __m256i b = load32(p + f->bytes + 64 * o);
            out->w[v] = _mm256_and_si256(b, low);
            out->high[v] = _mm256_and_si256(_mm256_srli_epi16(b, 4), low);
        }
        if (f->nibbles >= 0) {
            __m256i line = load32(p + f->nibbles + 64 * (o / 2));
            out->w[v] = _mm256_and_si256(o % 2 ? _mm256_srli_epi16(line, 4) : line, low);
        }
        if (f->bits >= 0)
            out->w[v] = _mm256_or_si256(out->w[v], spread_bits(part + f->bits + 8 * o + 4 * half));
        if (f->pairs >= 0) {
            __m256i line = load32(p + f->pairs + 64 * (o / 4));
            line = shift_right(line, 2 * (o % 4) - (f->nibbles >= 0 ? 4 : 0));
            line = _mm256_and_si256(line, pair);
            out->w[v] = f->nibbles >= 0 ? _mm256_or_si256(out->w[v], line) : line;
        }
    }
}

TG_INLINE __m256 load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* D, and M (or -dmin where minima are per sixteenth), of contract 6. */
TG_INLINE __m256 load_d(tg_layout l, const uint8_t *head, const uint8_t *part, int g, int half)
{
    const tg_form *f = &tg_forms[l];
    int at = 16 * g + 8 * half;
    if (l == TG_LAYOUT_Q8_F)
        return _mm256_loadu_ps((const float *)(const void *)(part + f->d) + at);
    if (!f->is_k) return tg_load_f16x8(part + f->d + 2 * at);
    __m256 d = tg_load_f16x8(head + 16 * half);
    return f->is_per16 ? d : _mm256_mul_ps(d, load_u8(part + f->sc + at));
}

TG_INLINE __m256 load_m(tg_layout l, const uint8_t *head, const uint8_t *part, int g, int half)
{
    const tg_form *f = &tg_forms[l];
    int at = 16 * g + 8 * half;
    if (!f->is_k) return tg_load_f16x8(part + f->m + 2 * at);
    __m256 m = _mm256_xor_ps(tg_load_f16x8(head + 32 + 16 * half), _mm256_set1_ps(-0.0f));
    return f->is_per16 ? m : _mm256_mul_ps(m, load_u8(part + f->mn + at));
}

/* The integer scale of sixteenth s of group g, as a float. */
TG_INLINE __m256 load_sc(tg_layout l, const uint8_t *part, int g, int half, int s)
{
    const uint8_t *p = part + tg_forms[l].sc + 16 * (2 * g + s) + 8 * half;
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(l == TG_LAYOUT_Q6_K ? _mm256_cvtepi8_epi32(b)
                                                  : _mm256_cvtepu8_epi32(b));
}

TG_INLINE __m256i load_mn(tg_layout l, const uint8_t *part, int g, int half, int s)
{
    const uint8_t *p = part + tg_forms[l].mn + 16 * (2 * g + s) + 8 * half;
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* ---- integer sums */

/* Operands whose pairs fit int16 together. */
TG_INLINE int get_run(tg_layout l)
{
    const tg_form *f = &tg_forms[l];
    if (f->bits >= 0) return 4;
    return f->pairs >= 0 && f->nibbles >= 0 ? 2 : 8;
}

TG_INLINE __m256i multiply(__m256i w, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_maddubs_epi16(w, _mm256_set1_epi32(four));
}

/* Sums over operands [first, last) of one plane, zero not yet subtracted. */
TG_INLINE __m256i dot_plane(tg_layout l, const codes *c, const int8_t *x, int first, int last)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    int run = get_run(l);
    for (int v = first; v < last; v += run) {
        int end = TG_MIN(v + run, last);
        __m256i a = multiply(c->w[v], x + 4 * v);
        for (int i = v + 1; i < end; i++)
            a = _mm256_add_epi16(a, multiply(c->w[i], x + 4 * i));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, ones));
        if (tg_forms[l].bytes < 0) continue;
        a = multiply(c->high[v], x + 4 * v);
        for (int i = v + 1; i < end; i++)
            a = _mm256_add_epi16(a, multiply(c->high[i], x + 4 * i));
        sum = _mm256_add_epi32(sum, _mm256_slli_epi32(_mm256_madd_epi16(a, ones), 4));
    }
    return sum;
}

/* The exact sum of contract 6; `code_sum` is that of the same columns. */
TG_INLINE __m256i dot_planes(tg_layout l, const codes *c, const tg_a8 *x, int64_t at, bool is_wide,
                             int first, int last, int32_t code_sum)
{
    __m256i i = dot_plane(l, c, x->hi + 32 * at, first, last);
    if (is_wide)
        i = _mm256_add_epi32(_mm256_slli_epi32(i, 8),
                             dot_plane(l, c, x->lo + 32 * x->wide[at], first, last));
    int zero = tg_forms[l].zero;
    return zero ? _mm256_sub_epi32(i, _mm256_set1_epi32(zero * code_sum)) : i;
}

/* ---- the chains */

/* What the chains of 8 rows need of one group. */
typedef struct scales {
    __m256 d, m, sc[2];
    __m256i mn[2];
} scales;

TG_INLINE void load_scales(tg_layout l, const uint8_t *head, const uint8_t *part, int g, int half,
                           scales *s)
{
    s->d = load_d(l, head, part, g, half);
    if (tg_form_has_min(l)) s->m = load_m(l, head, part, g, half);
    for (int i = 0; i < 2 && tg_forms[l].is_per16; i++) {
        s->sc[i] = load_sc(l, part, g, half, i);
        if (tg_forms[l].mn >= 0) s->mn[i] = load_mn(l, part, g, half, i);
    }
}

/* One group's step of both chains of 8 rows and one token (contract 6). acc never is -0 (it
 * starts at +0 and no step underflows), so the sign of a zero addend does not matter and per-16
 * sums, below 2^24, may be formed in float. */
TG_INLINE void step(tg_layout l, const codes *c, const scales *s, const tg_a8 *x, int64_t at,
                    bool is_wide, __m256 *acc, __m256 *min)
{
    const tg_form *f = &tg_forms[l];
    __m256 scale = _mm256_set1_ps(x->scale[at]), ds = _mm256_mul_ps(s->d, scale);
    int32_t sum = x->sum[at], first = x->half[at];
    if (!f->is_per16) {
        __m256i i = dot_planes(l, c, x, at, is_wide, 0, OPERANDS, sum);
        *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ds, *acc);
        if (tg_form_has_min(l)) *min = _mm256_fmadd_ps(s->m, _mm256_set1_ps(x->ssum[at]), *min);
        return;
    }
    __m256 i0 = _mm256_cvtepi32_ps(dot_planes(l, c, x, at, is_wide, 0, 4, first));
    __m256 i1 = _mm256_cvtepi32_ps(dot_planes(l, c, x, at, is_wide, 4, OPERANDS, sum - first));
    i0 = _mm256_mul_ps(i0, s->sc[0]);
    if (is_wide) {
        *acc = _mm256_fmadd_ps(i0, ds, *acc);
        *acc = _mm256_fmadd_ps(_mm256_mul_ps(i1, s->sc[1]), ds, *acc);
    } else {
        *acc = _mm256_fmadd_ps(_mm256_fmadd_ps(i1, s->sc[1], i0), ds, *acc);
    }
    if (f->mn < 0) return;
    __m256i i = _mm256_mullo_epi32(s->mn[0], _mm256_set1_epi32(first));
    i = _mm256_add_epi32(i, _mm256_mullo_epi32(s->mn[1], _mm256_set1_epi32(sum - first)));
    *min = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_mul_ps(s->m, scale), *min);
}

/* n tokens from `token` on over 8 rows of one tile. The halves of a tile go one after the other:
 * side by side, gcc keeps every broadcast of the activations for the second half, on the stack. */
TG_INLINE void multiply_half(const tg_matmul *m, tg_layout l, int32_t tile, int half, int32_t token,
                             int n, bool is_mixed)
{
    const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    __m256 acc[MAX_TOKENS], min[MAX_TOKENS];
    tg_a8 x[MAX_TOKENS];
    for (int j = 0; j < n; j++) {
        x[j] = tg_a8_from(m->a8, token + j);
        acc[j] = min[j] = _mm256_setzero_ps();
    }
    for (int64_t p = 0; p < n_parts; p++) {
        const uint8_t *head, *part = tg_form_part(l, w, p, &head);
        int ahead = half == 0 ? m->prefetch_bytes : 0; /* the second half finds it there */
        for (int i = 0; i < tg_forms[l].part_bytes && ahead; i += 64)
            _mm_prefetch((const char *)part + ahead + i, _MM_HINT_T0);
        for (int g = 0; g < 2; g++) {
            codes c;
            scales s;
            load_codes(l, part, g, half, &c);
            load_scales(l, head, part, g, half, &s);
            int64_t at = 2 * p + g;
            bool is_wide = is_mixed && m->a8->wide[at] >= 0;
            for (int j = 0; j < n && is_wide; j++)
                step(l, &c, &s, &x[j], at, true, &acc[j], &min[j]);
            for (int j = 0; j < n && !is_wide; j++)
                step(l, &c, &s, &x[j], at, false, &acc[j], &min[j]);
        }
    }
    for (int j = 0; j < n; j++) {
        __m256 dot = tg_form_has_min(l) ? _mm256_add_ps(acc[j], min[j]) : acc[j];
        store_rows(m, tile, half, token + j, dot);
    }
}

TG_INLINE void multiply_tile(const tg_matmul *m, tg_layout l, int32_t tile, int32_t token, int n,
                             bool is_mixed)
{
    for (int half = 0; half < HALVES; half++)
        multiply_half(m, l, tile, half, token, n, is_mixed);
}

/* is_mixed: some groups are wide. */
TG_INLINE void matmul_planes(const tg_matmul *m, tg_layout l, bool is_mixed)
{
    for (int32_t tile = 0; tile < m->n_tiles; tile++) {
        int32_t t = 0;
        for (; t + 4 <= m->n_tokens; t += 4)
            multiply_tile(m, l, tile, t, 4, is_mixed);
        for (; t + 2 <= m->n_tokens; t += 2)
            multiply_tile(m, l, tile, t, 2, is_mixed);
        for (; t < m->n_tokens; t++)
            multiply_tile(m, l, tile, t, 1, is_mixed);
    }
}

TG_INLINE void matmul(const tg_matmul *m, tg_layout l)
{
    if (m->a8->wide)
        matmul_planes(m, l, true);
    else
        matmul_planes(m, l, false);
}

/* ---- float weights */

/* 8 weights of column c; c is even or odd as it says (bf16 lies in pairs). */
TG_INLINE __m256 load_column(tg_layout l, const uint8_t *tile, int64_t c, int half)
{
    if (l == TG_LAYOUT_F32)
        return _mm256_loadu_ps((const float *)(const void *)(tile + 64 * c) + 8 * half);
    if (l == TG_LAYOUT_F16) return tg_load_f16x8(tile + 32 * c + 16 * half);
    __m256i pair = load32(tile + 64 * (c / 2) + 32 * half);
    __m256i high = _mm256_set1_epi32((int32_t)0xffff0000u);
    return _mm256_castsi256_ps(c % 2 ? _mm256_and_si256(pair, high) : _mm256_slli_epi32(pair, 16));
}

/* n_tiles tiles with n tokens; absent ones repeat the last. */
TG_INLINE void multiply_float(const tg_matmul *m, tg_layout l, int32_t tile, int n_tiles,
                              int32_t token, int n)
{
    const uint8_t *w[4];
    const float *x[MAX_TOKENS];
    __m256 acc[4][MAX_TOKENS][HALVES];
    for (int i = 0; i < n_tiles; i++)
        w[i] = m->w + (size_t)TG_MIN(tile + i, m->n_tiles - 1) * m->tile_stride;
    for (int j = 0; j < n; j++)
        x[j] = m->x + TG_MIN(token + j, m->n_tokens - 1) * m->x_stride;
    for (int i = 0; i < n_tiles; i++)
        for (int j = 0; j < n; j++)
            acc[i][j][0] = acc[i][j][1] = _mm256_setzero_ps();
    for (int64_t c = 0; c < m->n_cols; c++) {
        for (int i = 0; i < n_tiles; i++) {
            __m256 lo = load_column(l, w[i], c, 0), hi = load_column(l, w[i], c, 1);
            for (int j = 0; j < n; j++) {
                __m256 b = _mm256_set1_ps(x[j][c]);
                acc[i][j][0] = _mm256_fmadd_ps(lo, b, acc[i][j][0]);
                acc[i][j][1] = _mm256_fmadd_ps(hi, b, acc[i][j][1]);
            }
        }
    }
    for (int i = 0; i < n_tiles && tile + i < m->n_tiles; i++)
        for (int j = 0; j < n && token + j < m->n_tokens; j++) {
            store_rows(m, tile + i, 0, token + j, acc[i][j][0]);
            store_rows(m, tile + i, 1, token + j, acc[i][j][1]);
        }
}

TG_INLINE void matmul_float(const tg_matmul *m, tg_layout l)
{
    int32_t step = m->n_tokens == 1 ? 4 : m->n_tokens == 2 ? 2 : 1;
    for (int32_t tile = 0; tile < m->n_tiles; tile += step) {
        if (m->n_tokens == 1) multiply_float(m, l, tile, 4, 0, 1);
        if (m->n_tokens == 2) multiply_float(m, l, tile, 2, 0, 2);
        for (int32_t t = 0; t < m->n_tokens && m->n_tokens > 2; t += MAX_TOKENS)
            multiply_float(m, l, tile, 1, t, MAX_TOKENS);
    }
}

/* ---- one entry per layout */

static void matmul_f32(const tg_matmul *m)
{
    matmul_float(m, TG_LAYOUT_F32);
}

static void matmul_f16(const tg_matmul *m)
{
    matmul_float(m, TG_LAYOUT_F16);
}

static void matmul_bf16(const tg_matmul *m)
{
    matmul_float(m, TG_LAYOUT_BF16);
}

static void matmul_q4_0(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q4_0);
}

static void matmul_q4_1(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q4_1);
}

static void matmul_q5_0(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q5_0);
}

static void matmul_q5_1(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q5_1);
}

static void matmul_q8_0(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q8_0);
}

static void matmul_q8_f(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q8_F);
}

static void matmul_q4_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q4_K);
}

static void matmul_q5_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q5_K);
}

static void matmul_q6_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q6_K);
}

static void matmul_q2_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q2_K);
}

tg_matmul_fn *const tg_avx2_matmul[TG_LAYOUT_COUNT] = {
    [TG_LAYOUT_F32] = matmul_f32,   [TG_LAYOUT_F16] = matmul_f16,   [TG_LAYOUT_BF16] = matmul_bf16,
    [TG_LAYOUT_Q4_0] = matmul_q4_0, [TG_LAYOUT_Q4_1] = matmul_q4_1, [TG_LAYOUT_Q5_0] = matmul_q5_0,
    [TG_LAYOUT_Q5_1] = matmul_q5_1, [TG_LAYOUT_Q8_0] = matmul_q8_0, [TG_LAYOUT_Q8_F] = matmul_q8_f,
    [TG_LAYOUT_Q4_K] = matmul_q4_k, [TG_LAYOUT_Q5_K] = matmul_q5_k, [TG_LAYOUT_Q6_K] = matmul_q6_k,
    [TG_LAYOUT_Q2_K] = matmul_q2_k,
};
