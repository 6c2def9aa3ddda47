/* SPDX-License-Identifier: Apache-2.0
 * avx512_gemm.c - products of quantized weights with many tokens.
 *
 * A block of tokens is cut into sets of up to 8, and what its groups have one of for each token
 * (sums, scales) is interleaved once, so that a set's eight lie side by side. Then tile after tile:
 * a slab of columns is unpacked into bytes and float scales, which stay in the first-level cache
 * while all sets pass: 8 integer sums, 8 chains and 8 chains of minima are registers. The chains
 * wait in memory between slabs, so their order is the contract's, whatever SLAB_GROUPS is.
 *
 * The loop is bound by the units that multiply, one 512-bit operation a cycle (Zen 4), while as
 * many others only add. A group of a token takes 8 dot products, the scale and a step of each
 * chain: 11 multiplications. By pairs (kernel.h, tg_a8_top) 4 dot products and 8 additions take the
 * place of the 8: 7 multiplications, and 17 operations of any kind, two of them in a cycle.
 * G products a second of Q4_1 at 3.7 GHz: 170 and 223 if nothing else were in the way, 162 and 200
 * with slabs that stay. With 3 of 4 pairs, which would use all units alike, 190: an addition may go
 * to a unit that multiplies. A group of two planes is multiplied singly.
 *
 * All integer sums are exact, so only the chains have an order. acc never is -0 (it starts at +0,
 * and no step can underflow), so +0 and -0 as an addend are the same to it: per-16 sums may be
 * formed in float. */
#include "kernel/avx512_codes.h"

enum {
    OPERANDS = TG_AVX512_OPERANDS,
    SET = TG_AVX512_TOKENS,
    BLOCK_TOKENS = 128,    /* tokens whose codes and results stay in the second-level cache */
    BLOCK_BYTES = 1 << 19, /* of those codes */
    MAX_SETS = BLOCK_TOKENS / SET,
    SLAB_GROUPS = 32 /* 1,024 columns: 22 KB of codes and scales of a tile */
};

/* A group of a tile, unpacked: operands as they are or, for pairs, even ones + top and odd ones -
 * rest; then lines of 16 floats or int32. Parts that a layout lacks take no room. */
typedef enum line {
    LINE_D = OPERANDS,
    LINE_M,        /* layouts with a minimum */
    LINE_REST,     /* - the pairs' products where the input is 0 */
    LINE_SC,       /* two, where scales are per sixteenth */
    LINE_MN,       /* two */
    MAX_LINES = 14 /* q2_k: no rest */
} line;

/* Which numbers of a token are interleaved for each group. */
enum { NUMBER_SCALE, NUMBER_START, NUMBER_SSUM, N_NUMBERS };
/* The same places where scales are per sixteenth: code sums of both. */
enum { NUMBER_FIRST = NUMBER_START, NUMBER_SECOND = NUMBER_SSUM };

enum { GROUP_INTS = N_NUMBERS * SET, NUMBERS_BYTES = 440 * 1024 };

typedef struct gemm_scratch {
    uint8_t weights[SLAB_GROUPS * MAX_LINES * 64];
    float chains[MAX_SETS][2][SET][16];
    int32_t numbers[NUMBERS_BYTES / 4]; /* [set][group][N_NUMBERS][SET] */
} gemm_scratch;

_Static_assert(sizeof(gemm_scratch) <= TG_MATMUL_SCRATCH_BYTES, "the kernels' scratch");

/* How a layout is multiplied, a constant in every instance. */
typedef struct way {
    tg_layout l;
    bool by_pairs;
} way;

TG_INLINE int line_at(way y, line which)
{
    const tg_layout_form *f = &tg_layout_forms[y.l];
    int n = LINE_D + 1;
    if (which == LINE_D) return LINE_D;
    if (which > LINE_M && tg_form_has_min(y.l)) n++;
    if (which > LINE_REST && y.by_pairs) n++;
    if (which > LINE_SC && f->is_per16) n += 2;
    if (which > LINE_MN && f->is_per16 && f->mn >= 0) n += 2;
    return n;
}

TG_INLINE int group_bytes(way y)
{
    return 64 * line_at(y, MAX_LINES);
}

/* Loads do not move above it: gcc would make those that a rare path shares with the usual one
 * before the branch, all at once, and keep them on the stack. */
#define TG_FENCE __asm__ volatile("" ::: "memory")

TG_INLINE bool is_outlier_group(const int16_t *wide, int64_t group)
{
    return __builtin_expect(wide != NULL && wide[group] >= 0, 0);
}

/* ---- unpacking a slab */

/* The operands of one group, and for pairs what they have beside the products wanted. */
TG_INLINE void unpack_codes(uint8_t *to, way y, const uint8_t *part, int g, int32_t top)
{
    const __m512i even = _mm512_set1_epi8((char)top), odd = _mm512_set1_epi8((char)(top - 128));
    __m512i rest = _mm512_setzero_si512();
    for (int v = 0; v < OPERANDS; v += 2) {
        __m512i a = tg_load_operand(y.l, part, g, v), b = tg_load_operand(y.l, part, g, v + 1);
        if (y.by_pairs) {
            a = _mm512_add_epi8(a, even);
            b = _mm512_add_epi8(b, odd);
            rest = _mm512_dpbusd_epi32(rest, a, b);
        }
        _mm512_store_si512(to + 64 * v, a);
        _mm512_store_si512(to + 64 * (v + 1), b);
    }
    if (y.by_pairs)
        _mm512_store_si512(to + 64 * line_at(y, LINE_REST),
                           _mm512_sub_epi32(_mm512_setzero_si512(), rest));
}

/* Groups [from, to) of a tile; both even. */
TG_INLINE void unpack(uint8_t *w, way y, const uint8_t *tile, int64_t from, int64_t to,
                      const tg_a8 *x)
{
    const tg_layout_form *f = &tg_layout_forms[y.l];
    const way as_is = {y.l, false};
    for (int64_t group = from; group < to; group++, w += group_bytes(y)) {
        int g = (int)(group % 2);
        const uint8_t *head, *part = tg_form_part(y.l, tile, group / 2, &head);
        if (is_outlier_group(x->outliers, group))
            unpack_codes(w, as_is, part, g, x->top);
        else
            unpack_codes(w, y, part, g, x->top);
        _mm512_store_ps(w + 64 * LINE_D, tg_load_d(y.l, head, part, g));
        if (tg_form_has_min(y.l))
            _mm512_store_ps(w + 64 * line_at(y, LINE_M), tg_load_m(y.l, head, part, g));
        for (int i = 0; i < 2 && f->is_per16; i++) {
            _mm512_store_ps(w + 64 * (line_at(y, LINE_SC) + i), tg_load_sc(y.l, part, 2 * g + i));
            if (f->mn >= 0)
                _mm512_store_si512(w + 64 * (line_at(y, LINE_MN) + i),
                                   tg_load_mn(y.l, part, 2 * g + i));
        }
    }
}

/* ---- weaving */

/* Rows of 8 to columns. */
TG_INLINE void transpose8(__m256i r[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            b[i + 2 * k] = _mm256_unpacklo_epi64(a[i + k], a[i + k + 2]);
            b[i + 2 * k + 1] = _mm256_unpackhi_epi64(a[i + k], a[i + k + 2]);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

TG_INLINE __m256i load_ints(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* A number of 8 groups of one token. */
TG_INLINE __m256i load_numbers(way y, const tg_a8 *x, int64_t at, int which)
{
    const tg_layout_form *f = &tg_layout_forms[y.l];
    if (which == NUMBER_SCALE) return load_ints(x->scale + at);
    __m256i sum = load_ints(x->sum + at);
    if (f->is_per16) {
        __m256i half = load_ints(x->half + at);
        return which == NUMBER_FIRST ? half : _mm256_sub_epi32(sum, half);
    }
    if (which == NUMBER_SSUM) return load_ints(x->ssum + at);
    __m256i start = y.by_pairs ? load_ints(x->pair + at) : _mm256_setzero_si256();
    start = _mm256_add_epi32(start, _mm256_mullo_epi32(sum, _mm256_set1_epi32(f->zero)));
    return _mm256_sub_epi32(_mm256_setzero_si256(), start);
}

/* The numbers of n tokens from `token` on; rows hold whole eights of groups (kernel.h). */
TG_INLINE void interleave(int32_t *to, way y, const tg_a8 *x, int64_t n_groups, int32_t token,
                          int n)
{
    int64_t stride = x->padded / TG_GROUP_COLS;
    for (int64_t g = 0; g < n_groups; g += 8, to += 8 * GROUP_INTS)
        for (int which = 0; which < N_NUMBERS; which++) {
            if (which == NUMBER_SSUM && !tg_form_has_min(y.l) && !tg_layout_forms[y.l].is_per16)
                continue;
            __m256i v[8];
            for (int j = 0; j < 8; j++)
                v[j] = load_numbers(y, x, (token + TG_MIN(j, n - 1)) * stride + g, which);
            transpose8(v);
            for (int i = 0; i < 8; i++)
                _mm256_store_si256((__m256i *)(void *)(to + GROUP_INTS * i + SET * which), v[i]);
        }
}

/* ---- a tile's slab and a set */

typedef struct job {
    const tg_matmul *m;
    const uint8_t *w;       /* the slab, unpacked */
    const int32_t *numbers; /* of the set, from the slab's first group on */
    int64_t first, end;     /* groups of the slab */
    float (*chains)[SET][16];
    bool is_first, is_last; /* slab of the tile */
    int32_t tile, token;
} job;

TG_INLINE __m512i load_number(const int32_t *numbers, int which, int j)
{
    return _mm512_set1_epi32(numbers[SET * which + j]);
}

TG_INLINE __m512 load_factor(const int32_t *numbers, int which, int j)
{
    return _mm512_castsi512_ps(load_number(numbers, which, j));
}

/* Adds operands [from, to) times a plane's codes to the sums of n tokens. */
TG_INLINE void add_operands(const uint8_t *w, int from, int to, const int8_t *const *codes,
                            int64_t at, int n, __m512i sum[SET])
{
    TG_UNROLL
    for (int v = from; v < to; v++) {
        __m512i a = _mm512_load_si512(w + 64 * v);
        TG_UNROLL
        for (int j = 0; j < n; j++)
            sum[j] = _mm512_dpbusd_epi32(sum[j], a, tg_load_x(codes[j] + at + 4 * v));
    }
}

TG_INLINE void add_pairs(const uint8_t *w, const int8_t *const *codes, int64_t at, int n,
                         __m512i sum[SET])
{
    TG_UNROLL
    for (int v = 0; v < OPERANDS; v += 2) {
        __m512i a = _mm512_load_si512(w + 64 * v), b = _mm512_load_si512(w + 64 * (v + 1));
        TG_UNROLL
        for (int j = 0; j < n; j++) {
            __m512i even = tg_load_x(codes[j] + at + 4 * v);
            __m512i odd = tg_load_x(codes[j] + at + 4 * v + 4);
            sum[j] = _mm512_dpbusd_epi32(sum[j], _mm512_add_epi8(a, odd), _mm512_add_epi8(b, even));
        }
    }
}

/* The exact sums over operands [from, to) of a outlier group, both planes, zero not subtracted. */
TG_INLINE void sum_planes(const job *b, int64_t group, int from, int to, const uint8_t *w,
                          const int8_t *const *hi, int n, __m512i sum[SET])
{
    const tg_a8 *x = b->m->a8;
    const int8_t *lo[SET];
    TG_FENCE;
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        lo[j] = x->lo + (int64_t)(b->token + j) * x->n_outliers * TG_GROUP_COLS;
        sum[j] = _mm512_setzero_si512();
    }
    add_operands(w, from, to, hi, TG_GROUP_COLS * group, n, sum);
    TG_UNROLL
    for (int j = 0; j < n; j++)
        sum[j] = _mm512_slli_epi32(sum[j], 8);
    add_operands(w, from, to, lo, TG_GROUP_COLS * (int64_t)x->outliers[group], n, sum);
}

/* The exact sums of a group (contract 6). */
TG_INLINE void sum_group(way y, const job *b, int64_t group, const uint8_t *w, const int32_t *x,
                         const int8_t *const *codes, int n, __m512i sum[SET])
{
    if (is_outlier_group(b->m->a8->outliers, group)) {
        sum_planes(b, group, 0, OPERANDS, w, codes, n, sum);
        TG_UNROLL
        for (int j = 0; j < n; j++)
            sum[j] = _mm512_add_epi32(sum[j], load_number(x, NUMBER_START, j));
        return;
    }
    __m512i rest =
        y.by_pairs ? _mm512_load_si512(w + 64 * line_at(y, LINE_REST)) : _mm512_setzero_si512();
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        sum[j] = load_number(x, NUMBER_START, j);
        if (y.by_pairs) sum[j] = _mm512_add_epi32(rest, sum[j]);
    }
    if (y.by_pairs)
        add_pairs(w, codes, TG_GROUP_COLS * group, n, sum);
    else
        add_operands(w, 0, OPERANDS, codes, TG_GROUP_COLS * group, n, sum);
}

/* A group's step of n chains (contract 6). */
TG_INLINE void step(way y, const job *b, int64_t group, const uint8_t *w, const int32_t *x,
                    const int8_t *const *codes, int n, __m512 acc[SET])
{
    __m512i i[SET];
    sum_group(y, b, group, w, x, codes, n, i);
    __m512 d = _mm512_load_ps(w + 64 * LINE_D);
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        __m512 ds = _mm512_mul_ps(d, load_factor(x, NUMBER_SCALE, j));
        acc[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i[j]), ds, acc[j]);
    }
}

/* The step of the chains of minima. */
TG_INLINE void step_min(way y, const uint8_t *w, const int32_t *x, int n, __m512 min[SET])
{
    __m512 m = _mm512_load_ps(w + 64 * line_at(y, LINE_M));
    TG_UNROLL
    for (int j = 0; j < n; j++)
        min[j] = _mm512_fmadd_ps(m, load_factor(x, NUMBER_SSUM, j), min[j]);
}

/* The same where scales are per sixteenth. */
TG_INLINE void step16(way y, const job *b, int64_t group, const uint8_t *w, const int32_t *x,
                      const int8_t *const *codes, int n, __m512 acc[SET])
{
    bool is_outlier = is_outlier_group(b->m->a8->outliers, group);
    __m512i i[SET];
    __m512 part[2][SET];
    TG_UNROLL
    for (int half = 0; half < 2; half++) {
        int from = half * OPERANDS / 2, to = from + OPERANDS / 2;
        __m512 sc = _mm512_load_ps(w + 64 * (line_at(y, LINE_SC) + half));
        if (is_outlier) {
            sum_planes(b, group, from, to, w, codes, n, i);
        } else {
            TG_UNROLL
            for (int j = 0; j < n; j++)
                i[j] = _mm512_setzero_si512();
            add_operands(w, from, to, codes, TG_GROUP_COLS * group, n, i);
        }
        TG_UNROLL
        for (int j = 0; j < n; j++) {
            i[j] = tg_subtract_zero(y.l, i[j], load_number(x, NUMBER_FIRST + half, j));
            part[half][j] = _mm512_mul_ps(_mm512_cvtepi32_ps(i[j]), sc);
        }
    }
    __m512 d = _mm512_load_ps(w + 64 * LINE_D);
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        __m512 ds = _mm512_mul_ps(d, load_factor(x, NUMBER_SCALE, j));
        if (is_outlier) {
            acc[j] = _mm512_fmadd_ps(part[0][j], ds, acc[j]);
            acc[j] = _mm512_fmadd_ps(part[1][j], ds, acc[j]);
        } else { /* below 2^24: exact in float */
            acc[j] = _mm512_fmadd_ps(_mm512_add_ps(part[0][j], part[1][j]), ds, acc[j]);
        }
    }
}

/* The step of the chains of minima where those are per sixteenth (q2_k). */
TG_INLINE void step_min16(way y, const uint8_t *w, const int32_t *x, int n, __m512 min[SET])
{
    __m512 m = _mm512_load_ps(w + 64 * line_at(y, LINE_M));
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        __m512i i = _mm512_setzero_si512();
        TG_UNROLL
        for (int half = 0; half < 2; half++) {
            __m512i mn = _mm512_load_si512(w + 64 * (line_at(y, LINE_MN) + half));
            __m512i sum = load_number(x, NUMBER_FIRST + half, j);
            i = _mm512_add_epi32(i, _mm512_mullo_epi32(mn, sum));
        }
        __m512 scale = _mm512_mul_ps(m, load_factor(x, NUMBER_SCALE, j));
        min[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), scale, min[j]);
    }
}

TG_INLINE void multiply(way y, const job *b, int n)
{
    bool has_min = tg_form_has_min(y.l);
    const int8_t *codes[SET];
    const uint8_t *w = b->w;
    const int32_t *x = b->numbers;
    __m512 acc[SET], min[SET];
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        codes[j] = b->m->a8->hi + (b->token + j) * b->m->a8->padded;
        acc[j] = b->is_first ? _mm512_setzero_ps() : _mm512_load_ps(b->chains[0][j]);
        if (has_min) min[j] = b->is_first ? _mm512_setzero_ps() : _mm512_load_ps(b->chains[1][j]);
    }
    for (int64_t g = b->first; g < b->end; g++, w += group_bytes(y), x += GROUP_INTS) {
        if (tg_layout_forms[y.l].is_per16) {
            step16(y, b, g, w, x, codes, n, acc);
            if (has_min) step_min16(y, w, x, n, min);
        } else {
            step(y, b, g, w, x, codes, n, acc);
            if (has_min) step_min(y, w, x, n, min);
        }
    }
    tg_target to = tg_get_target(b->m, b->tile, b->token);
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        if (b->is_last) {
            tg_store_rows(&to, j, has_min ? _mm512_add_ps(acc[j], min[j]) : acc[j]);
            continue;
        }
        _mm512_store_ps(b->chains[0][j], acc[j]);
        if (has_min) _mm512_store_ps(b->chains[1][j], min[j]);
    }
}

/* ---- all tokens */

/* The instances of one way. */
typedef void multiply_fn(const job *b);
typedef struct instances {
    way way;
    multiply_fn *multiply[SET + 1]; /* by tokens, from 5 on */
    void (*unpack)(uint8_t *w, const uint8_t *tile, int64_t from, int64_t to, const tg_a8 *x);
    void (*interleave)(int32_t *to, const tg_a8 *x, int64_t n_groups, int32_t token, int n);
} instances;

/* Set `set` of all tokens begins here; sets are of nearly equal size. */
static int32_t first_of(const tg_matmul *m, int64_t set)
{
    return (int32_t)(m->n_tokens * set / tg_div_up(m->n_tokens, SET));
}

/* Asks for a slab of a tile: the hardware's prefetchers lose the stream while one is multiplied. */
static void ask_for_slab(const tg_matmul *m, tg_layout l, int32_t tile, int64_t slab,
                         int64_t n_slabs)
{
    const char *w = (const char *)m->w + (size_t)tile * m->tile_stride;
    int64_t n_lines = (int64_t)tg_layout_tile_bytes(l, m->n_cols) / 64;
    for (int64_t i = n_lines * slab / n_slabs; i < n_lines * (slab + 1) / n_slabs; i++)
        _mm_prefetch(w + 64 * i, _MM_HINT_T1);
}

/* All tiles times the tokens of sets [from, to). */
static void multiply_block(const tg_matmul *m, const instances *of, int64_t from, int64_t to)
{
    gemm_scratch *s = m->scratch;
    int64_t n_groups = tg_layout_padded_cols(of->way.l, m->n_cols) / TG_GROUP_COLS;
    int64_t set_ints = (int64_t)tg_align_up((size_t)n_groups, 8) * GROUP_INTS;
    int64_t n_parts = n_groups / 2, n_slabs = tg_div_up(n_groups, SLAB_GROUPS);
    for (int64_t i = from; i < to; i++)
        of->interleave(s->numbers + (i - from) * set_ints, m->a8, n_groups, first_of(m, i),
                       first_of(m, i + 1) - first_of(m, i));
    for (int32_t tile = 0; tile < m->n_tiles; tile++)
        for (int64_t slab = 0; slab < n_slabs; slab++) {
            job b = {.m = m,
                     .w = s->weights,
                     .first = n_parts * slab / n_slabs * 2,
                     .end = n_parts * (slab + 1) / n_slabs * 2,
                     .is_first = slab == 0,
                     .is_last = slab == n_slabs - 1,
                     .tile = tile};
            of->unpack(s->weights, m->w + (size_t)tile * m->tile_stride, b.first, b.end, m->a8);
            if (tile + 1 < m->n_tiles) ask_for_slab(m, of->way.l, tile + 1, slab, n_slabs);
            for (int64_t i = from; i < to; i++) {
                b.token = first_of(m, i);
                b.numbers = s->numbers + (i - from) * set_ints + b.first * GROUP_INTS;
                b.chains = s->chains[i - from];
                of->multiply[first_of(m, i + 1) - b.token](&b);
            }
        }
}

/* As many sets at a time as their codes and numbers have room for. */
static void multiply_blocks(const tg_matmul *m, const instances *of)
{
    int64_t numbers = m->a8->padded / TG_GROUP_COLS * GROUP_INTS * (int64_t)sizeof(int32_t);
    int64_t most = TG_MIN(NUMBERS_BYTES / numbers, BLOCK_BYTES / (SET * m->a8->padded));
    most = TG_MIN(TG_MAX(most, 1), MAX_SETS);
    int64_t n_sets = tg_div_up(m->n_tokens, SET), n_blocks = tg_div_up(n_sets, most);
    for (int64_t i = 0; i < n_blocks; i++)
        multiply_block(m, of, n_sets * i / n_blocks, n_sets * (i + 1) / n_blocks);
}

/* ---- the instances
 *
 * SHORT(X): X(name, NAME) for each layout whose codes leave room for pairs. */
#define SHORT(X) X(q4_0, Q4_0) X(q4_1, Q4_1) X(q5_0, Q5_0) X(q5_1, Q5_1) X(q4_k, Q4_K) X(q5_k, Q5_K)

#define MULTIPLY(kind, by_pairs, name, NAME, n)                                                    \
    static TG_NOINLINE void kind##_##name##_##n(const job *b)                                      \
    {                                                                                              \
        multiply((way){TG_LAYOUT_##NAME, by_pairs}, b, n);                                         \
    }
#define INSTANCES(kind, by_pairs, name, NAME)                                                      \
    MULTIPLY(kind, by_pairs, name, NAME, 5)                                                        \
    MULTIPLY(kind, by_pairs, name, NAME, 6)                                                        \
    MULTIPLY(kind, by_pairs, name, NAME, 7)                                                        \
    MULTIPLY(kind, by_pairs, name, NAME, 8)                                                        \
    static void unpack_##kind##_##name(uint8_t *w, const uint8_t *tile, int64_t from, int64_t to,  \
                                       const tg_a8 *x)                                             \
    {                                                                                              \
        unpack(w, (way){TG_LAYOUT_##NAME, by_pairs}, tile, from, to, x);                           \
    }                                                                                              \
    static void interleave_##kind##_##name(int32_t *to, const tg_a8 *x, int64_t n_groups,          \
                                           int32_t token, int n)                                   \
    {                                                                                              \
        interleave(to, (way){TG_LAYOUT_##NAME, by_pairs}, x, n_groups, token, n);                  \
    }                                                                                              \
    static void gemm_##kind##_##name(const tg_matmul *m)                                           \
    {                                                                                              \
        static const instances of = {                                                              \
            {TG_LAYOUT_##NAME, by_pairs},                                                          \
            {[5] = kind##_##name##_5, kind##_##name##_6, kind##_##name##_7, kind##_##name##_8},    \
            unpack_##kind##_##name,                                                                \
            interleave_##kind##_##name};                                                           \
        multiply_blocks(m, &of);                                                                   \
    }
#define SINGLY(name, NAME)       INSTANCES(singly, false, name, NAME)
#define BY_PAIRS(name, NAME)     INSTANCES(by_pairs, true, name, NAME)
#define SINGLY_ROW(name, NAME)   [TG_LAYOUT_##NAME] = gemm_singly_##name,
#define BY_PAIRS_ROW(name, NAME) [TG_LAYOUT_##NAME] = gemm_by_pairs_##name,

TG_EACH_FORM(SINGLY)
SHORT(BY_PAIRS)

static tg_matmul_fn *const singly[TG_LAYOUT_COUNT] = {TG_EACH_FORM(SINGLY_ROW)};
static tg_matmul_fn *const by_pairs[TG_LAYOUT_COUNT] = {SHORT(BY_PAIRS_ROW)};

void tg_avx512_matmul_gemm(const tg_matmul *m, tg_layout l)
{
    bool has_room = m->a8->pair && m->a8->top <= tg_a8_top(l);
    (has_room && by_pairs[l] ? by_pairs : singly)[l](m);
}
