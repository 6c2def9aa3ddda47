/* SPDX-License-Identifier: Apache-2.0
 * avx512_matmul.c - products of quantized weights with up to 8 tokens, and the table of all.
 *
 * A tile (16 rows) meets up to 8 tokens at a time: 8 integer sums, 8 chains and 8 chains of minima
 * stay in registers from the first group to the last. Codes become bytes by masks and shifts and
 * activations are broadcast by loads, on units that do not multiply; nothing is unpacked to memory.
 * Bits and pairs of bits are dearer: a mask register costs a multiplication's slot.
 *
 * Few tokens are bound by memory: one sequential stream of weights, prefetched where that helps.
 * Runs of 9 to 15 take each tile in turn, so that it comes from the first-level cache after the
 * first run. More are multiplied in avx512_many.c.
 *
 * Why +0 and -0 need no care in the chains is said there too. */
#include "kernel/avx512_codes.h"

enum {
    WIDTH = TG_AVX512_TOKENS,
    NEAR = 3072, /* bytes to prefetch where that helps: to the first-level cache */
    FAR = 8192   /* and to the second */
};

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
TG_INLINE void add_operand(tg_layout l, const uint8_t *part, int g, int v,
                           const int8_t *const *codes, int64_t at, int n, __m512i sum[WIDTH])
{
    __m512i w = tg_load_operand(l, part, g, v);
    for (int j = 0; j < n; j++)
        sum[j] = _mm512_dpbusd_epi32(sum[j], w, tg_load_x(codes[j] + TG_GROUP_COLS * at + 4 * v));
}

typedef enum columns { WHOLE, FIRST, SECOND } columns; /* of a group, and its halves */

/* The exact sums over columns of group g of a part, both planes. */
TG_INLINE void sum_columns(tg_layout l, const uint8_t *part, int g, columns which, const rows *x,
                           int64_t group, int n, __m512i sum[WIDTH])
{
    int64_t at[2] = {group, get_place(x, group)};
    for (int j = 0; j < n; j++)
        sum[j] = _mm512_setzero_si512();
    for (int plane = 0;; plane++) {
        const int8_t *const *codes = x->codes[plane];
        if (which != SECOND) { /* spelled out, for gcc would leave a loop as it is */
            add_operand(l, part, g, 0, codes, at[plane], n, sum);
            add_operand(l, part, g, 1, codes, at[plane], n, sum);
            add_operand(l, part, g, 2, codes, at[plane], n, sum);
            add_operand(l, part, g, 3, codes, at[plane], n, sum);
        }
        if (which != FIRST) {
            add_operand(l, part, g, 4, codes, at[plane], n, sum);
            add_operand(l, part, g, 5, codes, at[plane], n, sum);
            add_operand(l, part, g, 6, codes, at[plane], n, sum);
            add_operand(l, part, g, 7, codes, at[plane], n, sum);
        }
        if (plane == 1 || at[1] < 0) break;
        for (int j = 0; j < n; j++)
            sum[j] = _mm512_slli_epi32(sum[j], 8);
    }
}

/* A group's step of n chains (contract 6); g: which of the part's two it is. */
TG_INLINE void step(tg_layout l, const uint8_t *head, const uint8_t *part, int g, const rows *x,
                    int64_t group, int n, __m512 acc[WIDTH])
{
    __m512i i[WIDTH];
    sum_columns(l, part, g, WHOLE, x, group, n, i);
    __m512 d = tg_load_d(l, head, part, g);
    for (int j = 0; j < n; j++) {
        __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[j][group]));
        i[j] = tg_subtract_zero(l, i[j], _mm512_set1_epi32(x->sum[j][group]));
        acc[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i[j]), ds, acc[j]);
    }
}

/* The same where scales are per sixteenth. */
TG_INLINE void step16(tg_layout l, const uint8_t *head, const uint8_t *part, int g, const rows *x,
                      int64_t group, int n, __m512 acc[WIDTH])
{
    __m512i i[WIDTH];
    __m512 first[WIDTH], sc = tg_load_sc(l, part, 2 * g);
    sum_columns(l, part, g, FIRST, x, group, n, i);
    for (int j = 0; j < n; j++) {
        i[j] = tg_subtract_zero(l, i[j], _mm512_set1_epi32(x->half[j][group]));
        first[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(i[j]), sc);
    }
    sum_columns(l, part, g, SECOND, x, group, n, i);
    __m512 d = tg_load_d(l, head, part, g);
    sc = tg_load_sc(l, part, 2 * g + 1);
    for (int j = 0; j < n; j++) {
        __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[j][group]));
        i[j] = tg_subtract_zero(l, i[j],
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
TG_INLINE void step_min(tg_layout l, const uint8_t *head, const uint8_t *part, int g, const rows *x,
                        int64_t group, int n, __m512 min[WIDTH])
{
    __m512 m = tg_load_m(l, head, part, g);
    for (int j = 0; j < n; j++) {
        if (!tg_forms[l].is_per16) {
            min[j] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->ssum[j][group]), min[j]);
            continue;
        }
        __m512i first = _mm512_set1_epi32(x->half[j][group]);
        __m512i second = _mm512_sub_epi32(_mm512_set1_epi32(x->sum[j][group]), first);
        __m512i i = _mm512_add_epi32(_mm512_mullo_epi32(tg_load_mn(l, part, 2 * g), first),
                                     _mm512_mullo_epi32(tg_load_mn(l, part, 2 * g + 1), second));
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
TG_INLINE void multiply(const tg_matmul *m, tg_layout l, const uint8_t *w, int32_t tile,
                        int32_t end, int32_t token, int n)
{
    const tg_form *f = &tg_forms[l];
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    distance ahead = {0};
    if (token == 0) ahead = get_distance(m, l, n);
    rows x;
    get_rows(&x, m->a8, token, n);
    for (; tile < end; tile++, w += m->tile_stride) {
        __m512 acc[WIDTH], min[WIDTH];
        for (int j = 0; j < n; j++)
            acc[j] = min[j] = _mm512_setzero_ps();
        for (int64_t p = 0; p < n_parts; p++) {
            const uint8_t *head, *part = tg_form_part(l, w, p, &head);
            for (int g = 0; g < 2; g++) {
                prefetch(ahead, l, head, part, g);
                if (f->is_per16)
                    step16(l, head, part, g, &x, 2 * p + g, n, acc);
                else
                    step(l, head, part, g, &x, 2 * p + g, n, acc);
                if (tg_form_has_min(l)) step_min(l, head, part, g, &x, 2 * p + g, n, min);
            }
        }
        tg_target to = tg_get_target(m, tile, token);
        for (int j = 0; j < n; j++)
            tg_store_rows(&to, j, tg_form_has_min(l) ? _mm512_add_ps(acc[j], min[j]) : acc[j]);
    }
}

/* ---- any number of tokens */

typedef void multiply_fn(const tg_matmul *m, const uint8_t *w, int32_t tile, int32_t end,
                         int32_t token);

/* More tokens than a pass takes: tile by tile in runs of nearly equal length, all but the first
 * from the first-level cache. */
static void multiply_runs(const tg_matmul *m, multiply_fn *const run[WIDTH])
{
    int64_t n = m->n_tokens, n_runs = tg_div_up(n, WIDTH);
    for (int32_t tile = 0; tile < m->n_tiles; tile++)
        for (int64_t i = 0; i < n_runs; i++) {
            int32_t first = (int32_t)(n * i / n_runs), end = (int32_t)(n * (i + 1) / n_runs);
            run[end - first - 1](m, m->w + (size_t)tile * m->tile_stride, tile, tile + 1, first);
        }
}

static void matmul(const tg_matmul *m, tg_layout l, multiply_fn *const run[WIDTH])
{
    if (m->n_tokens <= WIDTH)
        run[m->n_tokens - 1](m, m->w, 0, m->n_tiles, 0);
    else if (m->n_tokens < TG_AVX512_MANY || m->n_cols > TG_AVX512_MANY_COLS)
        multiply_runs(m, run);
    else
        tg_avx512_matmul_many(m, l);
}

/* ---- the instances: multiply_q4_1_8 is q4_1 times 8 tokens */

#define INSTANCE(name, NAME, n)                                                                    \
    static TG_NOINLINE void multiply_##name##_##n(const tg_matmul *m, const uint8_t *w,            \
                                                  int32_t tile, int32_t end, int32_t token)        \
    {                                                                                              \
        multiply(m, TG_LAYOUT_##NAME, w, tile, end, token, n);                                     \
    }
#define ENTRY(name, NAME)                                                                          \
    INSTANCE(name, NAME, 1)                                                                        \
    INSTANCE(name, NAME, 2)                                                                        \
    INSTANCE(name, NAME, 3)                                                                        \
    INSTANCE(name, NAME, 4)                                                                        \
    INSTANCE(name, NAME, 5)                                                                        \
    INSTANCE(name, NAME, 6)                                                                        \
    INSTANCE(name, NAME, 7)                                                                        \
    INSTANCE(name, NAME, 8)                                                                        \
    static void matmul_##name(const tg_matmul *m)                                                  \
    {                                                                                              \
        static multiply_fn *const run[WIDTH] = {                                                   \
            multiply_##name##_1, multiply_##name##_2, multiply_##name##_3, multiply_##name##_4,    \
            multiply_##name##_5, multiply_##name##_6, multiply_##name##_7, multiply_##name##_8};   \
        matmul(m, TG_LAYOUT_##NAME, run);                                                          \
    }
#define POINTER(name, NAME) [TG_LAYOUT_##NAME] = matmul_##name,

TG_EACH_FORM(ENTRY)

tg_matmul_fn *const tg_avx512_matmul[TG_LAYOUT_COUNT] = {
    [TG_LAYOUT_F32] = tg_avx512_matmul_f32,
    [TG_LAYOUT_F16] = tg_avx512_matmul_f16,
    [TG_LAYOUT_BF16] = tg_avx512_matmul_bf16,
    TG_EACH_FORM(POINTER) /* keeps a row a line */
};
