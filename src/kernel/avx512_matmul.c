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
 * first run. More are multiplied in avx512_gemm.c.
 *
 * Why +0 and -0 need no care in the chains is said there too. */
#include "kernel/avx512_codes.h"

enum {
    WIDTH = TG_AVX512_TOKENS,
    NEAR = 3072, /* bytes to prefetch where that helps: to the first-level cache */
    SOON = 2048, /* to the second */
    FAR = 8192,
    MOST_RUNS = TG_AVX512_GEMM / WIDTH
};

/* ---- activations side by side */

/* What up to 8 tokens' rows hold, group after group with the tokens side by side, so that a few
 * pointers and constant offsets reach all of it: pointers to every row do not fit into registers,
 * and the instructions that fetch them again crowd loads of weights out of the processor's window.
 * One token's rows are in that order as they are. */
typedef struct rows {
    const int16_t *outliers;   /* the map, NULL where all groups are narrow */
    const int8_t *codes[2];    /* hi [group][n][32], and lo [place][n][32] if there is a map */
    const float *scale, *ssum; /* [group][n] */
    const int32_t *sum, *half;
} rows;

static size_t get_row_bytes(const tg_a8 *x)
{
    size_t groups = (size_t)x->padded / TG_GROUP_COLS;
    return (groups + (size_t)x->n_outliers) * TG_GROUP_COLS + 4 * groups * sizeof(float);
}

static char *gather_codes(char *to, const int8_t *codes, int64_t n_groups, int n)
{
    int64_t stride = n_groups * TG_GROUP_COLS;
    for (int64_t g = 0; g < n_groups; g++)
        for (int j = 0; j < n; j++, to += TG_GROUP_COLS)
            memcpy(to, codes + j * stride + g * TG_GROUP_COLS, TG_GROUP_COLS);
    return to;
}

/* Of 4-byte numbers. */
static char *gather_numbers(char *to, const void *numbers, int64_t n_groups, int n)
{
    const char *from = numbers;
    for (int64_t g = 0; g < n_groups; g++)
        for (int j = 0; j < n; j++, to += 4)
            memcpy(to, from + 4 * (j * n_groups + g), 4);
    return to;
}

/* Rows of n tokens from `token` on, what the layout reads of them; into n get_row_bytes at `to`. */
static void get_rows(rows *r, char *to, tg_layout l, const tg_a8 *all, int64_t token, int n)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    const tg_a8 x = tg_a8_from(all, token);
    int64_t groups = x.padded / TG_GROUP_COLS;
    *r = (rows){x.outliers, {x.hi, x.lo}, x.scale, x.ssum, x.sum, x.half};
    if (n == 1) return;
    r->codes[0] = (const int8_t *)to;
    to = gather_codes(to, x.hi, groups, n);
    r->codes[1] = (const int8_t *)to;
    if (x.outliers) to = gather_codes(to, x.lo, x.n_outliers, n);
    r->scale = (const float *)(const void *)to;
    to = gather_numbers(to, x.scale, groups, n);
    r->ssum = (const float *)(const void *)to;
    if (tg_form_has_min(l) && !f->is_per16) to = gather_numbers(to, x.ssum, groups, n);
    r->sum = (const int32_t *)(const void *)to;
    if (f->zero || f->is_per16) to = gather_numbers(to, x.sum, groups, n);
    r->half = (const int32_t *)(const void *)to;
    if (f->is_per16) gather_numbers(to, x.half, groups, n);
}

/* ---- a tile and up to 8 tokens */

/* Place of a group's second plane, -1: it has none. */
TG_INLINE int64_t get_place(const rows *x, int64_t group)
{
    return x->outliers ? x->outliers[group] : -1;
}

/* Adds operand v times n tokens' codes of a group to their sums. */
TG_INLINE void add_operand(tg_layout l, const uint8_t *part, int g, int v, const int8_t *codes,
                           int n, __m512i sum[WIDTH])
{
    __m512i w = tg_load_operand(l, part, g, v);
    for (int j = 0; j < n; j++) {
        const int8_t *x = codes + TG_GROUP_COLS * j + 4 * v;
        /* Two tokens' loop would run into the lines it has just asked for, and be slower. */
        sum[j] =
            n <= 2 ? _mm512_dpbusd_epi32(sum[j], w, tg_load_x(x)) : tg_add_products(sum[j], w, x);
    }
}

typedef enum columns { WHOLE, FIRST, SECOND } columns; /* of a group, and its halves */

/* The exact sums over columns of group g of a part, both planes. */
TG_INLINE void sum_columns(tg_layout l, const uint8_t *part, int g, columns which, const rows *x,
                           int64_t group, int n, __m512i sum[WIDTH])
{
    int64_t place = get_place(x, group);
    const int8_t *codes = x->codes[0] + TG_GROUP_COLS * n * group;
    for (int j = 0; j < n; j++)
        sum[j] = _mm512_setzero_si512();
    for (;;) {
        if (which != SECOND) { /* spelled out, for gcc would leave a loop as it is */
            add_operand(l, part, g, 0, codes, n, sum);
            add_operand(l, part, g, 1, codes, n, sum);
            add_operand(l, part, g, 2, codes, n, sum);
            add_operand(l, part, g, 3, codes, n, sum);
        }
        if (which != FIRST) {
            add_operand(l, part, g, 4, codes, n, sum);
            add_operand(l, part, g, 5, codes, n, sum);
            add_operand(l, part, g, 6, codes, n, sum);
            add_operand(l, part, g, 7, codes, n, sum);
        }
        if (place < 0) break;
        codes = x->codes[1] + TG_GROUP_COLS * n * place;
        place = -1;
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
        __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[group * n + j]));
        i[j] = tg_subtract_zero(l, i[j], _mm512_set1_epi32(x->sum[group * n + j]));
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
        i[j] = tg_subtract_zero(l, i[j], _mm512_set1_epi32(x->half[group * n + j]));
        first[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(i[j]), sc);
    }
    sum_columns(l, part, g, SECOND, x, group, n, i);
    __m512 d = tg_load_d(l, head, part, g);
    sc = tg_load_sc(l, part, 2 * g + 1);
    for (int j = 0; j < n; j++) {
        __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[group * n + j]));
        i[j] = tg_subtract_zero(l, i[j],
                                _mm512_sub_epi32(_mm512_set1_epi32(x->sum[group * n + j]),
                                                 _mm512_set1_epi32(x->half[group * n + j])));
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
        int64_t at = group * n + j;
        if (!tg_layout_forms[l].is_per16) {
            min[j] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->ssum[at]), min[j]);
            continue;
        }
        __m512i first = _mm512_set1_epi32(x->half[at]);
        __m512i second = _mm512_sub_epi32(_mm512_set1_epi32(x->sum[at]), first);
        __m512i i = _mm512_add_epi32(_mm512_mullo_epi32(tg_load_mn(l, part, 2 * g), first),
                                     _mm512_mullo_epi32(tg_load_mn(l, part, 2 * g + 1), second));
        __m512 scale = _mm512_mul_ps(m, _mm512_set1_ps(x->scale[at]));
        min[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), scale, min[j]);
    }
}

/* The processor's window of instructions spans fewer bytes the more work there is for each line,
 * and the hardware's prefetchers then fall behind; where the window spans enough, they do better
 * alone. Asking near into the first level makes the loads in use wait for a place among the misses
 * (Zen 4): for several tokens the second level it is. G products a second from memory without,
 * near, far: q8_0 4 tokens 112, 92, 91; 5: 107, 121, 143; 8: 110, 96, 167; q4_1 4: 85, 134, 147;
 * 8: 110, 148, 156; q4_k 2: 58, 86, 118; q6_k 8: 53, 112, 116. Distances of 4 KB are too short,
 * 6 to 12 KB alike. One token and 8 bits: 2 KB into the second level is 4 % faster than none. */
TG_INLINE int32_t get_distance(const tg_matmul *m, tg_layout l, int n)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    if (m->prefetch_bytes) return m->prefetch_bytes;
    if (n == 1 && f->bytes >= 0) return SOON;
    if (n == 1) return f->is_k || f->bits >= 0 ? NEAR : 0;
    return f->bytes < 0 || n >= 5 ? FAR : 0;
}

/* Asks for the lines at some distance from half g of a part. Each line of the stream once and in
 * order: a second request for a line on its way costs as much as one for another. */
TG_INLINE void prefetch(int32_t to, tg_layout l, const uint8_t *head, const uint8_t *part, int g,
                        int n)
{
    int lines = tg_layout_forms[l].part_bytes / 64, from = g * (lines / 2),
        end = g ? lines : lines / 2;
    const char *p = (const char *)part + to;
    if (tg_layout_forms[l].is_k && g == 0 && part == head + 64) from = -1;
    for (int i = from; i < end; i++)
        if (n == 1 && tg_layout_forms[l].bytes < 0)
            _mm_prefetch(p + 64 * i, _MM_HINT_T0);
        else
            _mm_prefetch(p + 64 * i, _MM_HINT_T1);
}

/* Group g of a part: all chains of n tokens. */
TG_INLINE void add_group(tg_layout l, const uint8_t *head, const uint8_t *part, int g,
                         const rows *x, int64_t group, int n, __m512 acc[2][WIDTH])
{
    if (tg_layout_forms[l].is_per16)
        step16(l, head, part, g, x, group, n, acc[0]);
    else
        step(l, head, part, g, x, group, n, acc[0]);
    if (tg_form_has_min(l)) step_min(l, head, part, g, x, group, n, acc[1]);
}

/* Tiles [tile, end), the first at w, times n tokens from `token` on. */
TG_INLINE void multiply(const tg_matmul *m, tg_layout l, const rows *all, const uint8_t *w,
                        int32_t tile, int32_t end, int32_t token, int n)
{
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    int32_t ahead = token == 0 ? get_distance(m, l, n) : 0;
    const rows x = *all;
    for (; tile < end; tile++, w += m->tile_stride) {
        __m512 acc[2][WIDTH]; /* and the minima's chains */
        for (int j = 0; j < n; j++)
            acc[0][j] = acc[1][j] = _mm512_setzero_ps();
        for (int64_t p = 0; p < n_parts; p++) {
            const uint8_t *head, *part = tg_form_part(l, w, p, &head);
            if (ahead) prefetch(ahead, l, head, part, 0, n);
            add_group(l, head, part, 0, &x, 2 * p, n, acc);
            if (ahead) prefetch(ahead, l, head, part, 1, n);
            add_group(l, head, part, 1, &x, 2 * p + 1, n, acc);
        }
        tg_target to = tg_get_target(m, tile, token);
        for (int j = 0; j < n; j++)
            tg_store_rows(&to, j,
                          tg_form_has_min(l) ? _mm512_add_ps(acc[0][j], acc[1][j]) : acc[0][j]);
    }
}

/* ---- any number of tokens */

typedef void multiply_fn(const tg_matmul *m, const rows *x, const uint8_t *w, int32_t tile,
                         int32_t end, int32_t token);

/* Tokens [first, end) in runs of nearly equal length, all of whose rows fit into scratch: tile by
 * tile, for all runs but the first from the first-level cache. */
static void multiply_runs(const tg_matmul *m, tg_layout l, multiply_fn *const run[WIDTH],
                          int32_t first, int32_t end)
{
    rows x[MOST_RUNS];
    int32_t at[MOST_RUNS + 1], n_tokens = end - first;
    int32_t n_runs = (int32_t)tg_div_up(n_tokens, WIDTH);
    char *to = m->scratch;
    for (int32_t i = 0; i <= n_runs; i++)
        at[i] = first + n_tokens * i / n_runs;
    for (int32_t i = 0; i < n_runs; i++) {
        get_rows(&x[i], to, l, m->a8, at[i], at[i + 1] - at[i]);
        to += (size_t)(at[i + 1] - at[i]) * get_row_bytes(m->a8);
    }
    if (n_runs == 1) {
        run[n_tokens - 1](m, &x[0], m->w, 0, m->n_tiles, first);
        return;
    }
    for (int32_t tile = 0; tile < m->n_tiles; tile++)
        for (int32_t i = 0; i < n_runs; i++)
            run[at[i + 1] - at[i] - 1](m, &x[i], m->w + (size_t)tile * m->tile_stride, tile,
                                       tile + 1, at[i]);
}

static void matmul(const tg_matmul *m, tg_layout l, multiply_fn *const run[WIDTH])
{
    if (m->n_tokens >= TG_AVX512_GEMM && m->n_cols <= TG_AVX512_GEMM_COLS) {
        tg_avx512_matmul_gemm(m, l);
        return;
    }
    /* One token needs no scratch. */
    int64_t fit = TG_MATMUL_SCRATCH_BYTES / (int64_t)get_row_bytes(m->a8);
    int32_t most = (int32_t)TG_MIN(TG_MAX(fit, 1), MOST_RUNS * WIDTH);
    for (int32_t i = 0; i < m->n_tokens; i += most)
        multiply_runs(m, l, run, i, TG_MIN(i + most, m->n_tokens));
}

/* ---- the instances: multiply_q4_1_8 is q4_1 times 8 tokens */

#define INSTANCE(name, NAME, n)                                                                    \
    static TG_NOINLINE void multiply_##name##_##n(const tg_matmul *m, const rows *x,               \
                                                  const uint8_t *w, int32_t tile, int32_t end,     \
                                                  int32_t token)                                   \
    {                                                                                              \
        multiply(m, TG_LAYOUT_##NAME, x, w, tile, end, token, n);                                  \
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
