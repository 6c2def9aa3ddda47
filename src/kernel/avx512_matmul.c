/* SPDX-License-Identifier: Apache-2.0
 * avx512_matmul.c - products of quantized weights: one body for any number of tokens.
 *
 * A tile (16 rows) meets up to 8 tokens at a time: 8 integer sums, 8 chains and 8 chains of minima
 * stay in registers from the first group to the last. What bounds the loop are the units that
 * multiply, one 512-bit operation a cycle (Zen 4): 8 dot products, the scale and one or two chain
 * steps for each group and token. Codes become bytes by masks and shifts, and activations are
 * broadcast by loads, on units that are free beside them, so that nothing is unpacked to memory.
 * Bits and pairs are the exception: a mask register costs a multiplication's slot. From
 * PLAIN_TOKENS tokens on such a tile is unpacked once, into bytes and float scales, for all.
 *
 * Few tokens are bound by memory: one sequential stream of weights, prefetched where that helps.
 * Many tokens take each tile in turn, so that it comes from the first-level cache after the first
 * 8 of them.
 *
 * All integer sums are exact, so only the chains have an order. acc never is -0 (it starts at +0,
 * and no step can underflow), so +0 and -0 as an addend are the same to it: per-16 sums may be
 * formed in float. */
#include "kernel/avx512.h"
#include "kernel/form.h"

#include <string.h>

enum {
    OPERANDS = 8,          /* of 4 columns: one group */
    WIDTH = 8,             /* tokens that share a pass over a tile */
    BLOCK_TOKENS = 128,    /* tokens whose codes and results stay in the second-level cache */
    BLOCK_BYTES = 1 << 19, /* of those codes */
    NEAR = 3072,           /* bytes to prefetch where that helps: to the first-level cache */
    FAR = 8192,            /* and to the second */
    PLAIN_TOKENS = 16      /* so that runs of 5 to 8 tokens are all there are */
};

/* ---- reading a layout */

/* By a constant: -4, -2, 0, 2, 4 or 6 bits. */
TG_INLINE __m512i shift_right(__m512i x, int n)
{
    switch (n) {
    case -4: return _mm512_slli_epi16(x, 4);
    case -2: return _mm512_slli_epi16(x, 2);
    case 2: return _mm512_srli_epi16(x, 2);
    case 4: return _mm512_srli_epi16(x, 4);
    case 6: return _mm512_srli_epi16(x, 6);
    default: return x;
    }
}

/* A tile as the loops see it: as it lies in the artifact, or plain. A plain part: the codes of 64
 * columns as 16 operands of 64 bytes, then lines of 16 floats or int32: D and M of both groups,
 * and of each sixteenth sc and mn; what a layout has not takes no room. */
typedef struct shape {
    tg_layout l;
    bool is_plain;
} shape;

typedef enum piece { PIECE_D, PIECE_M, PIECE_SC, PIECE_MN, PIECE_END } piece;

/* Where a piece of a plain part begins; PIECE_END: the part's bytes. */
TG_INLINE int plain_at(tg_layout l, piece p)
{
    const tg_form *f = &tg_forms[l];
    int at = 2 * OPERANDS * 64;
    if (p > PIECE_D) at += 2 * 64;
    if (p > PIECE_M && tg_form_has_min(l)) at += 2 * 64;
    if (p > PIECE_SC && f->is_per16) at += 4 * 64;
    if (p > PIECE_MN && f->is_per16 && f->mn >= 0) at += 4 * 64;
    return at;
}

/* Operand v of group g (0, 1) of a part as unsigned bytes. */
TG_INLINE __m512i load_operand(shape s, const uint8_t *part, int g, int v)
{
    const tg_form *f = &tg_forms[s.l];
    if (s.is_plain) return _mm512_load_si512(part + 64 * OPERANDS * g + 64 * v);
    const __m512i low = _mm512_set1_epi8(15), pair = _mm512_set1_epi8(f->nibbles >= 0 ? 0x30 : 3);
    __m512i w = _mm512_setzero_si512();
    if (f->bytes >= 0) w = _mm512_loadu_si512(part + f->bytes + 64 * OPERANDS * g + 64 * v);
    if (f->nibbles >= 0) {
        __m512i line = _mm512_loadu_si512(part + f->nibbles + 32 * OPERANDS * g + 64 * (v / 2));
        w = _mm512_and_si512(v % 2 ? _mm512_srli_epi16(line, 4) : line, low);
    }
    if (f->bits >= 0) {
        uint64_t bits;
        memcpy(&bits, part + f->bits + 8 * OPERANDS * g + 8 * v, sizeof bits);
        w = _mm512_mask_add_epi8(w, (__mmask64)bits, w, _mm512_set1_epi8(16));
    }
    if (f->pairs >= 0) {
        __m512i line = _mm512_loadu_si512(part + f->pairs + 16 * OPERANDS * g + 64 * (v / 4));
        /* to bits 4..5, or 0..1 */
        __m512i moved = shift_right(line, 2 * (v % 4) - (f->nibbles >= 0 ? 4 : 0));
        w = f->nibbles >= 0 ? _mm512_ternarylogic_epi32(moved, pair, w, 0xea) /* a&b|c */
                            : _mm512_and_si512(moved, pair);
    }
    return w;
}

TG_INLINE __m512 load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

TG_INLINE __m512i load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* D of contract 6 for group g. */
TG_INLINE __m512 load_d(shape s, const uint8_t *head, const uint8_t *part, int g)
{
    const tg_form *f = &tg_forms[s.l];
    if (s.is_plain) return _mm512_load_ps(part + plain_at(s.l, PIECE_D) + 64 * g);
    if (s.l == TG_LAYOUT_Q8_F) return _mm512_loadu_ps(part + f->d + 64 * g);
    if (!f->is_k) return load_f16(part + f->d + 32 * g);
    __m512 d = load_f16(head);
    if (f->is_per16) return d;
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(load_u8(part + f->sc + 16 * g)));
}

/* M, or -dmin where minima are per sixteenth. */
TG_INLINE __m512 load_m(shape s, const uint8_t *head, const uint8_t *part, int g)
{
    const tg_form *f = &tg_forms[s.l];
    if (s.is_plain) return _mm512_load_ps(part + plain_at(s.l, PIECE_M) + 64 * g);
    if (!f->is_k) return load_f16(part + f->m + 32 * g);
    __m512 m = _mm512_xor_ps(load_f16(head + 32), _mm512_set1_ps(-0.0f));
    if (f->is_per16) return m;
    return _mm512_mul_ps(m, _mm512_cvtepi32_ps(load_u8(part + f->mn + 16 * g)));
}

/* The integer scale of sixteenth i of a part, as a float, and the integer minimum. */
TG_INLINE __m512 load_sc(shape s, const uint8_t *part, int i)
{
    if (s.is_plain) return _mm512_load_ps(part + plain_at(s.l, PIECE_SC) + 64 * i);
    const uint8_t *p = part + tg_forms[s.l].sc + 16 * i;
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(s.l == TG_LAYOUT_Q6_K ? _mm512_cvtepi8_epi32(b)
                                                    : _mm512_cvtepu8_epi32(b));
}

TG_INLINE __m512i load_mn(shape s, const uint8_t *part, int i)
{
    if (s.is_plain) return _mm512_load_si512(part + plain_at(s.l, PIECE_MN) + 64 * i);
    return load_u8(part + tg_forms[s.l].mn + 16 * i);
}

/* Four codes of one token beside every row. */
TG_INLINE __m512i load_x(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

/* ---- what follows the dot product (contract 8) */

typedef struct target {
    const float *bias; /* of the tile's first row, or NULL */
    float *y;          /* token 0, the tile's first row */
    int64_t y_stride;
    __mmask16 rows;
    bool is_add;
} target;

TG_INLINE target get_target(const tg_matmul *m, int32_t tile, int32_t token)
{
    int32_t row = tile * TG_TILE_ROWS;
    return (target){
        .bias = m->bias ? m->bias + row : NULL,
        .y = m->y + token * m->y_stride + row,
        .y_stride = m->y_stride,
        .rows = m->n_rows > row ? tg_mask16(m->n_rows - row) : (__mmask16)0,
        .is_add = m->is_add,
    };
}

TG_INLINE void store_rows(const target *t, int32_t token, __m512 dot)
{
    float *y = t->y + token * t->y_stride;
    if (t->bias) dot = _mm512_add_ps(dot, _mm512_maskz_loadu_ps(t->rows, t->bias));
    if (t->is_add) dot = _mm512_add_ps(_mm512_maskz_loadu_ps(t->rows, y), dot);
    _mm512_mask_storeu_ps(y, t->rows, dot);
}

/* ---- a tile and up to 8 tokens */

/* Rows of activations of n tokens. */
typedef struct rows {
    const int16_t *wide;           /* the map, NULL where all groups are narrow */
    const int8_t *codes[2][WIDTH]; /* hi, and lo if there is a map */
    const float *scale[WIDTH], *ssum[WIDTH];
    const int32_t *sum[WIDTH], *half[WIDTH];
} rows;

TG_INLINE void get_rows(rows *r, const tg_a8 *x, int32_t token, int n)
{
    int64_t groups = x->padded / TG_GROUP_COLS;
    r->wide = x->wide;
    for (int j = 0; j < n; j++) {
        int64_t row = token + j, at = row * groups;
        r->codes[0][j] = x->hi + TG_GROUP_COLS * at;
        if (x->wide) r->codes[1][j] = x->lo + TG_GROUP_COLS * row * x->n_wide;
        r->scale[j] = x->scale + at;
        r->ssum[j] = x->ssum + at;
        r->sum[j] = x->sum + at;
        r->half[j] = x->half + at;
    }
}

/* Place of a group's second plane, -1: it has none. */
TG_INLINE int64_t get_place(const rows *x, int64_t group)
{
    return x->wide ? x->wide[group] : -1;
}

/* Adds operand v times n tokens' codes of a group, the plane's `at`th, to their sums. */
TG_INLINE void add_operand(shape s, const uint8_t *part, int g, int v, const int8_t *const *codes,
                           int64_t at, int n, __m512i sum[WIDTH])
{
    __m512i w = load_operand(s, part, g, v);
    for (int j = 0; j < n; j++)
        sum[j] = _mm512_dpbusd_epi32(sum[j], w, load_x(codes[j] + TG_GROUP_COLS * at + 4 * v));
}

typedef enum columns { WHOLE, FIRST, SECOND } columns; /* of a group, and its halves */

/* The exact sums over columns of group g of a part, both planes. */
TG_INLINE void sum_columns(shape s, const uint8_t *part, int g, columns which, const rows *x,
                           int64_t group, int n, __m512i sum[WIDTH])
{
    int64_t at[2] = {group, get_place(x, group)};
    for (int j = 0; j < n; j++)
        sum[j] = _mm512_setzero_si512();
    for (int plane = 0;; plane++) {
        const int8_t *const *codes = x->codes[plane];
        if (which != SECOND) { /* spelled out, for gcc would leave a loop as it is */
            add_operand(s, part, g, 0, codes, at[plane], n, sum);
            add_operand(s, part, g, 1, codes, at[plane], n, sum);
            add_operand(s, part, g, 2, codes, at[plane], n, sum);
            add_operand(s, part, g, 3, codes, at[plane], n, sum);
        }
        if (which != FIRST) {
            add_operand(s, part, g, 4, codes, at[plane], n, sum);
            add_operand(s, part, g, 5, codes, at[plane], n, sum);
            add_operand(s, part, g, 6, codes, at[plane], n, sum);
            add_operand(s, part, g, 7, codes, at[plane], n, sum);
        }
        if (plane == 1 || at[1] < 0) break;
        for (int j = 0; j < n; j++)
            sum[j] = _mm512_slli_epi32(sum[j], 8);
    }
}

/* zero (a power of two) x code sum less. */
TG_INLINE __m512i subtract_zero(shape s, __m512i sum, __m512i codes)
{
    switch (tg_forms[s.l].zero) {
    case 8: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 3));
    case 16: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 4));
    case 32: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 5));
    case 128: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 7));
    default: return sum;
    }
}

/* A group's step of n chains (contract 6); g: which of the part's two it is. */
TG_INLINE void step(shape s, const uint8_t *head, const uint8_t *part, int g, const rows *x,
                    int64_t group, int n, __m512 acc[WIDTH])
{
    __m512i i[WIDTH];
    sum_columns(s, part, g, WHOLE, x, group, n, i);
    __m512 d = load_d(s, head, part, g);
    for (int j = 0; j < n; j++) {
        __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[j][group]));
        i[j] = subtract_zero(s, i[j], _mm512_set1_epi32(x->sum[j][group]));
        acc[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i[j]), ds, acc[j]);
    }
}

/* The same where scales are per sixteenth. */
TG_INLINE void step16(shape s, const uint8_t *head, const uint8_t *part, int g, const rows *x,
                      int64_t group, int n, __m512 acc[WIDTH])
{
    __m512i i[WIDTH];
    __m512 first[WIDTH], sc = load_sc(s, part, 2 * g);
    sum_columns(s, part, g, FIRST, x, group, n, i);
    for (int j = 0; j < n; j++) {
        i[j] = subtract_zero(s, i[j], _mm512_set1_epi32(x->half[j][group]));
        first[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(i[j]), sc);
    }
    sum_columns(s, part, g, SECOND, x, group, n, i);
    __m512 d = load_d(s, head, part, g);
    sc = load_sc(s, part, 2 * g + 1);
    for (int j = 0; j < n; j++) {
        __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[j][group]));
        i[j] = subtract_zero(s, i[j],
                             _mm512_sub_epi32(_mm512_set1_epi32(x->sum[j][group]),
                                              _mm512_set1_epi32(x->half[j][group])));
        __m512 second = _mm512_cvtepi32_ps(i[j]);
        if (get_place(x, group) >= 0) {
            acc[j] = _mm512_fmadd_ps(first[j], ds, acc[j]);
            acc[j] = _mm512_fmadd_ps(_mm512_mul_ps(second, sc), ds, acc[j]);
        } else { /* below 2^24: exact in float */
            acc[j] = _mm512_fmadd_ps(_mm512_fmadd_ps(second, sc, first[j]), ds, acc[j]);
        }
    }
}

/* The step of the chains of the minima. */
TG_INLINE void step_min(shape s, const uint8_t *head, const uint8_t *part, int g, const rows *x,
                        int64_t group, int n, __m512 min[WIDTH])
{
    __m512 m = load_m(s, head, part, g);
    for (int j = 0; j < n; j++) {
        if (!tg_forms[s.l].is_per16) {
            min[j] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->ssum[j][group]), min[j]);
            continue;
        }
        __m512i first = _mm512_set1_epi32(x->half[j][group]);
        __m512i second = _mm512_sub_epi32(_mm512_set1_epi32(x->sum[j][group]), first);
        __m512i i = _mm512_add_epi32(_mm512_mullo_epi32(load_mn(s, part, 2 * g), first),
                                     _mm512_mullo_epi32(load_mn(s, part, 2 * g + 1), second));
        __m512 scale = _mm512_mul_ps(m, _mm512_set1_ps(x->scale[j][group]));
        min[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), scale, min[j]);
    }
}

/* Where the lines to be asked for lie, from those in use on; 0: nowhere. */
typedef struct distance {
    int32_t near, far;
} distance;

/* The processor's window of instructions spans fewer bytes the more work there is for each line,
 * and the hardware's prefetchers then fall behind; where the window spans enough, they do better
 * alone. Asking near into the first level makes the loads in use wait for a place among the misses
 * (Zen 4): for several tokens the second level it is. G products a second from memory without,
 * near, far: q8_0 4 tokens 112, 92, 91; 5: 107, 121, 143; 8: 110, 96, 167; q4_1 4: 85, 134, 147;
 * 8: 110, 148, 156; q4_k 2: 58, 86, 118; q6_k 8: 53, 112, 116. Distances of 4 KB are too short,
 * 6 to 12 KB alike. */
TG_INLINE distance get_distance(const tg_matmul *m, tg_layout l, int n)
{
    const tg_form *f = &tg_forms[l];
    if (m->prefetch_bytes) return (distance){.near = m->prefetch_bytes};
    if (n == 1) return (distance){.near = f->is_k || f->bits >= 0 ? NEAR : 0};
    return (distance){.far = f->bytes < 0 || n >= 5 ? FAR : 0};
}

/* Asks for the lines at some distance from half g of a part. Each line of the stream once and in
 * order: a second request for a line on its way costs as much as one for another. */
TG_INLINE void prefetch(distance to, tg_layout l, const uint8_t *head, const uint8_t *part, int g)
{
    int n = tg_forms[l].part_bytes / 64, from = g * (n / 2), end = g ? n : n / 2;
    if (tg_forms[l].is_k && g == 0 && part == head + 64) from = -1;
    for (int i = from; i < end && to.near; i++)
        _mm_prefetch((const char *)part + to.near + 64 * i, _MM_HINT_T0);
    for (int i = from; i < end && to.far; i++)
        _mm_prefetch((const char *)part + to.far + 64 * i, _MM_HINT_T1);
}

/* Tiles [tile, end), the first at w, times n tokens from `token` on. */
TG_INLINE void multiply(const tg_matmul *m, shape s, const uint8_t *w, int32_t tile, int32_t end,
                        int32_t token, int n)
{
    const tg_form *f = &tg_forms[s.l];
    int64_t n_parts = tg_layout_padded_cols(s.l, m->n_cols) / TG_PART_COLS;
    distance ahead = {0};
    if (token == 0 && !s.is_plain) ahead = get_distance(m, s.l, n);
    rows x;
    get_rows(&x, m->a8, token, n);
    for (; tile < end; tile++, w += m->tile_stride) {
        __m512 acc[WIDTH], min[WIDTH];
        for (int j = 0; j < n; j++)
            acc[j] = min[j] = _mm512_setzero_ps();
        for (int64_t p = 0; p < n_parts; p++) {
            const uint8_t *head = NULL, *part = w + p * plain_at(s.l, PIECE_END);
            if (!s.is_plain) part = tg_form_part(s.l, w, p, &head);
            for (int g = 0; g < 2; g++) {
                if (!s.is_plain) prefetch(ahead, s.l, head, part, g);
                if (f->is_per16)
                    step16(s, head, part, g, &x, 2 * p + g, n, acc);
                else
                    step(s, head, part, g, &x, 2 * p + g, n, acc);
                if (tg_form_has_min(s.l)) step_min(s, head, part, g, &x, 2 * p + g, n, min);
            }
        }
        target to = get_target(m, tile, token);
        for (int j = 0; j < n; j++)
            store_rows(&to, j, tg_form_has_min(s.l) ? _mm512_add_ps(acc[j], min[j]) : acc[j]);
    }
}

/* ---- any number of tokens */

typedef void multiply_fn(const tg_matmul *m, const uint8_t *w, int32_t tile, int32_t end,
                         int32_t token);
typedef void unpack_fn(uint8_t *to, const uint8_t *tile, int64_t n_parts);

/* The instances of one layout. */
typedef struct instances {
    tg_layout layout;
    multiply_fn *packed[WIDTH]; /* by tokens - 1 */
    multiply_fn *plain[WIDTH];  /* from MIN_RUN tokens on; NULL: packed serves as well */
    unpack_fn *unpack;
} instances;

/* Lays a tile out plainly. */
TG_INLINE void unpack(uint8_t *to, tg_layout l, const uint8_t *tile, int64_t n_parts)
{
    const tg_form *f = &tg_forms[l];
    const shape packed = {l, false};
    for (int64_t p = 0; p < n_parts; p++, to += plain_at(l, PIECE_END)) {
        const uint8_t *head, *part = tg_form_part(l, tile, p, &head);
        for (int g = 0; g < 2; g++) {
            for (int v = 0; v < OPERANDS; v++)
                _mm512_store_si512(to + 64 * (OPERANDS * g + v), load_operand(packed, part, g, v));
            _mm512_store_ps(to + plain_at(l, PIECE_D) + 64 * g, load_d(packed, head, part, g));
            if (tg_form_has_min(l))
                _mm512_store_ps(to + plain_at(l, PIECE_M) + 64 * g, load_m(packed, head, part, g));
        }
        for (int i = 0; i < 4 && f->is_per16; i++) {
            _mm512_store_ps(to + plain_at(l, PIECE_SC) + 64 * i, load_sc(packed, part, i));
            if (f->mn >= 0)
                _mm512_store_si512(to + plain_at(l, PIECE_MN) + 64 * i, load_mn(packed, part, i));
        }
    }
}

/* One tile times tokens [from, to), in runs of nearly equal length. */
static void multiply_runs(const tg_matmul *m, multiply_fn *const *run, const uint8_t *w,
                          int32_t tile, int32_t from, int32_t to)
{
    int32_t n = to - from, runs = (n + WIDTH - 1) / WIDTH;
    for (int32_t i = 0; i < runs; i++) {
        int32_t first = from + n * i / runs, last = from + n * (i + 1) / runs;
        run[last - first - 1](m, w, tile, tile + 1, first);
    }
}

/* Tile by tile for blocks of tokens. */
static void multiply_blocks(const tg_matmul *m, const instances *of)
{
    tg_layout l = of->layout;
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    bool is_plain = of->unpack && m->n_tokens >= PLAIN_TOKENS &&
                    n_parts * plain_at(l, PIECE_END) <= TG_MATMUL_SCRATCH_BYTES;
    int32_t block = (int32_t)TG_MIN(BLOCK_TOKENS, BLOCK_BYTES / m->a8->padded);
    block = TG_MAX(block, PLAIN_TOKENS);
    int32_t n_blocks = (m->n_tokens + block - 1) / block;
    for (int32_t i = 0; i < n_blocks; i++) {
        int32_t from = (int32_t)((int64_t)m->n_tokens * i / n_blocks);
        int32_t to = (int32_t)((int64_t)m->n_tokens * (i + 1) / n_blocks);
        for (int32_t tile = 0; tile < m->n_tiles; tile++) {
            const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
            if (is_plain) of->unpack(m->scratch, w, n_parts);
            multiply_runs(m, is_plain ? of->plain : of->packed, is_plain ? m->scratch : w, tile,
                          from, to);
        }
    }
}

static void matmul(const tg_matmul *m, const instances *of)
{
    if (m->n_tokens <= WIDTH)
        of->packed[m->n_tokens - 1](m, m->w, 0, m->n_tiles, 0);
    else
        multiply_blocks(m, of);
}

/* ---- the instances
 *
 * X(name, NAME) for each quantized layout: cheap ones, whose codes are a mask and a shift away,
 * and costly ones, whose codes lie in more than one piece. */
#define CHEAP(X)  X(q4_0, Q4_0) X(q4_1, Q4_1) X(q8_0, Q8_0) X(q8_f, Q8_F) X(q4_k, Q4_K)
#define COSTLY(X) X(q5_0, Q5_0) X(q5_1, Q5_1) X(q5_k, Q5_K) X(q6_k, Q6_K) X(q2_k, Q2_K)

/* A function for n tokens: packed_q4_1_8, plain_q5_0_6 ... */
#define INSTANCE(kind, is_plain, name, NAME, n)                                                    \
    static TG_NOINLINE void kind##_##name##_##n(const tg_matmul *m, const uint8_t *w,              \
                                                int32_t tile, int32_t end, int32_t token)          \
    {                                                                                              \
        multiply(m, (shape){TG_LAYOUT_##NAME, is_plain}, w, tile, end, token, n);                  \
    }
#define PACKED(name, NAME)                                                                         \
    INSTANCE(packed, false, name, NAME, 1)                                                         \
    INSTANCE(packed, false, name, NAME, 2)                                                         \
    INSTANCE(packed, false, name, NAME, 3)                                                         \
    INSTANCE(packed, false, name, NAME, 4)                                                         \
    INSTANCE(packed, false, name, NAME, 5)                                                         \
    INSTANCE(packed, false, name, NAME, 6)                                                         \
    INSTANCE(packed, false, name, NAME, 7)                                                         \
    INSTANCE(packed, false, name, NAME, 8)
#define PLAIN(name, NAME)                                                                          \
    INSTANCE(plain, true, name, NAME, 5)                                                           \
    INSTANCE(plain, true, name, NAME, 6)                                                           \
    INSTANCE(plain, true, name, NAME, 7)                                                           \
    INSTANCE(plain, true, name, NAME, 8)                                                           \
    static void unpack_##name(uint8_t *to, const uint8_t *tile, int64_t n_parts)                   \
    {                                                                                              \
        unpack(to, TG_LAYOUT_##NAME, tile, n_parts);                                               \
    }

#define PACKED_ROW(name)                                                                           \
    {                                                                                              \
        packed_##name##_1, packed_##name##_2, packed_##name##_3, packed_##name##_4,                \
            packed_##name##_5, packed_##name##_6, packed_##name##_7, packed_##name##_8             \
    }
#define PLAIN_ROW(name)                                                                            \
    {                                                                                              \
        [4] = plain_##name##_5, plain_##name##_6, plain_##name##_7, plain_##name##_8               \
    }
#define ENTRY(name, NAME, ...)                                                                     \
    static void matmul_##name(const tg_matmul *m)                                                  \
    {                                                                                              \
        static const instances of = {TG_LAYOUT_##NAME, PACKED_ROW(name), __VA_ARGS__};             \
        matmul(m, &of);                                                                            \
    }
#define CHEAP_ENTRY(name, NAME)  ENTRY(name, NAME, {NULL}, NULL)
#define COSTLY_ENTRY(name, NAME) ENTRY(name, NAME, PLAIN_ROW(name), unpack_##name)
#define POINTER(name, NAME)      [TG_LAYOUT_##NAME] = matmul_##name,

CHEAP(PACKED)
COSTLY(PACKED)
COSTLY(PLAIN)
CHEAP(CHEAP_ENTRY)
COSTLY(COSTLY_ENTRY)

tg_matmul_fn *const tg_avx512_matmul[TG_LAYOUT_COUNT] = {
    [TG_LAYOUT_F32] = tg_avx512_matmul_f32,
    [TG_LAYOUT_F16] = tg_avx512_matmul_f16,
    [TG_LAYOUT_BF16] = tg_avx512_matmul_bf16,
    CHEAP(POINTER) COSTLY(POINTER) /* keeps a row a line */
};
