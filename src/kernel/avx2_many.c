/* SPDX-License-Identifier: Apache-2.0
 * avx2_many.c - products of quantized weights with many tokens.
 *
 * A block of tokens is woven once into sets of six: for each group of columns what the six bring
 * to it (codes, scales, sums), in the order in which the inner loop reads it. Then tile after tile:
 * a slab of columns is unpacked into bytes and float scales, which stay in the first-level cache
 * while all sets pass; a set's 16 rows x 6 tokens are 12 sums in registers, with two registers of
 * weights and one of activations. The chains wait in memory, between slabs too, so that their order
 * is the contract's, whatever SLAB is.
 *
 * Sums of a whole group stay in int16 (one vpmaddwd a group): codes are taken around a centre c,
 * and sum (q - c) x over the 16 columns that meet in one int16 is at most 16 x 16 x 127 = 32512 for
 * 5-bit codes, and as much for 8 columns of 6-bit ones. vpmaddubsw itself sees the unsigned codes
 * (63 x 127 x 2 fits), vpaddw wraps, and -c sum(x), which the sum begins with, brings it back.
 * Second planes reach -128, where that fails by one: they take shorter runs. 8-bit codes are
 * widened to int16: vpmaddwd needs 16 instructions where two nibbles would need 18. */
#include "kernel/avx2_codes.h"

enum {
    OPERANDS = TG_AVX2_OPERANDS,
    HALVES = TG_AVX2_HALVES,
    SET = 6,
    MAX_SETS = 32,
    SLAB_PARTS = 12, /* 768 columns: codes and scales of a tile are 15 kB. A multiple of 4 */
    SLAB_GROUPS = 2 * SLAB_PARTS
};

/* One group of one tile, unpacked. */
typedef struct weights {
    float d[HALVES][8], m[HALVES][8];
    int16_t sc[2][HALVES][16];    /* by sixteenth, twice in every lane */
    int16_t pairs[2][HALVES][16]; /* both sixteenths' sc, mn */
    union {
        uint8_t u8[OPERANDS][HALVES][32];
        int16_t i16[2 * OPERANDS][HALVES][16]; /* 8-bit codes, zero subtracted: two columns */
    } code;
} weights;

/* What six tokens bring to one group; tokens beyond the last repeat it. */
typedef struct inputs {
    float scale[SET], ssum[SET];
    /* Narrow: what the int16 sums begin with; wide: code sums. By sixteenth where scales are. */
    int32_t first[SET], second[SET];
    int32_t back[SET]; /* (centre - zero) x code sum, or both sixteenths' as int16 */
    int32_t unused[2];
    int32_t x[]; /* [operand][SET] four codes, or [pair][SET] two int16; then the second plane */
} inputs;

typedef struct chains {
    float acc[SET][HALVES][8], min[SET][HALVES][8];
} chains;

enum { WEAVE_BYTES = 440 * 1024 };

typedef struct many_scratch {
    weights w[SLAB_GROUPS];
    chains c[MAX_SETS];
    _Alignas(64) char woven[WEAVE_BYTES];
} many_scratch;

_Static_assert(sizeof(many_scratch) <= TG_MATMUL_SCRATCH_BYTES,
               "the scratch of matmul is too small");

/* How a layout's sums are formed. */
typedef enum sum_kind {
    SUM_PLAIN,   /* codes as they are: 4 bits without zero */
    SUM_CENTRED, /* around their zero */
    SUM_MOVED,   /* around a centre that is not their zero: 5 bits without zero */
    SUM_PER16,   /* each sixteenth apart, around the zero */
    SUM_WORDS,   /* int16 weights */
    SUM_COUNT
} sum_kind;

static sum_kind get_kind(const tg_form *f)
{
    if (f->bytes >= 0) return SUM_WORDS;
    if (f->is_per16) return SUM_PER16;
    if (f->bits >= 0) return f->zero ? SUM_CENTRED : SUM_MOVED;
    return f->zero ? SUM_CENTRED : SUM_PLAIN;
}

static int get_centre(const tg_form *f)
{
    return f->bits >= 0 ? 16 : f->zero;
}

TG_INLINE size_t plane_bytes(bool is_words)
{
    return (is_words ? 2 : 1) * sizeof(int32_t[OPERANDS][SET]);
}

TG_INLINE const inputs *next_inputs(const inputs *x, bool is_words, bool is_wide)
{
    size_t n = sizeof *x + (is_wide ? 2 : 1) * plane_bytes(is_words);
    return (const inputs *)(const void *)((const char *)x + n);
}

/* ---- weaving the tokens */

/* to[i][token] = the i-th int32 of the token's register. */
TG_INLINE void store_transposed(int32_t *to, const __m256i r[SET])
{
    __m256i t0 = _mm256_unpacklo_epi32(r[0], r[1]), t1 = _mm256_unpackhi_epi32(r[0], r[1]);
    __m256i t2 = _mm256_unpacklo_epi32(r[2], r[3]), t3 = _mm256_unpackhi_epi32(r[2], r[3]);
    __m256i last[2] = {_mm256_unpacklo_epi32(r[4], r[5]), _mm256_unpackhi_epi32(r[4], r[5])};
    __m256i four[4] = {_mm256_unpacklo_epi64(t0, t2), _mm256_unpackhi_epi64(t0, t2),
                       _mm256_unpacklo_epi64(t1, t3), _mm256_unpackhi_epi64(t1, t3)};
    for (int i = 0; i < 8; i++) {
        __m256i f = four[i % 4], s = last[i / 2 % 2];
        __m128i a = i < 4 ? _mm256_castsi256_si128(f) : _mm256_extracti128_si256(f, 1);
        __m128i b = i < 4 ? _mm256_castsi256_si128(s) : _mm256_extracti128_si256(s, 1);
        _mm_storeu_si128((__m128i *)(void *)(to + SET * i), a);
        if (i % 2 == 0) _mm_storel_epi64((__m128i *)(void *)(to + SET * i + 4), b);
        if (i % 2 == 1) _mm_storeh_pd((double *)(void *)(to + SET * i + 4), _mm_castsi128_pd(b));
    }
}

static void store_plane(int32_t *to, const int8_t *const rows[SET], bool is_words)
{
    __m256i r[SET], more[SET];
    for (int j = 0; j < SET; j++) {
        r[j] = tg_load32(rows[j]);
        if (!is_words) continue;
        more[j] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(r[j], 1));
        r[j] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(r[j]));
    }
    store_transposed(to, r);
    if (is_words) store_transposed(to + OPERANDS * SET, more);
}

/* -centre times the code sums of what meets in the two int16 of a lane, for four operands. */
TG_INLINE __m128i get_start(__m128i codes, int centre)
{
    __m128i s = _mm_maddubs_epi16(_mm_set1_epi8(1), codes);
    return _mm_mullo_epi16(s, _mm_set1_epi16((int16_t)-centre));
}

TG_INLINE int32_t fold_pairs(__m128i s)
{
    s = _mm_add_epi16(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi16(s, _mm_shuffle_epi32(s, 0xb1)));
}

static void weave_sums(inputs *to, int j, const tg_form *f, const int8_t *codes, int32_t sum,
                       int32_t half)
{
    int centre = get_centre(f);
    const __m128i *p = (const __m128i *)(const void *)codes;
    __m128i a = get_start(_mm_loadu_si128(p), centre),
            b = get_start(_mm_loadu_si128(p + 1), centre);
    to->first[j] = fold_pairs(f->is_per16 ? a : _mm_add_epi16(a, b));
    to->second[j] = f->is_per16 ? fold_pairs(b) : 0;
    to->back[j] = f->is_per16 ? (int32_t)(((uint32_t)half & 0xffff) | (uint32_t)(sum - half) << 16)
                              : (centre - f->zero) * sum;
}

/* Tokens [token, token + n) of the row's n_groups groups. Returns what follows. */
static const inputs *weave_set(void *memory, const tg_form *f, const tg_a8 *a8, int32_t token,
                               int n, int64_t n_groups)
{
    bool is_words = f->bytes >= 0, needs_sums = !is_words && get_kind(f) != SUM_PLAIN;
    tg_a8 rows[SET];
    const inputs *at = memory;
    for (int j = 0; j < SET; j++)
        rows[j] = tg_a8_from(a8, token + TG_MIN(j, n - 1));
    for (int64_t g = 0; g < n_groups; g++) {
        inputs *to = (inputs *)((char *)memory + ((const char *)at - (const char *)memory));
        const int8_t *hi[SET], *lo[SET];
        for (int j = 0; j < SET; j++) {
            const tg_a8 *r = &rows[j];
            int32_t sum = r->sum[g], half = r->half[g];
            hi[j] = r->hi + TG_GROUP_COLS * g;
            lo[j] = tg_a8_low(r, g);
            to->scale[j] = r->scale[g];
            to->ssum[j] = r->ssum[g];
            to->first[j] = f->is_per16 ? half : sum;
            to->second[j] = sum - half;
            if (!lo[j] && needs_sums) weave_sums(to, j, f, hi[j], sum, half);
        }
        store_plane(to->x, hi, is_words);
        if (lo[0]) store_plane(to->x + plane_bytes(is_words) / sizeof *to->x, lo, is_words);
        at = next_inputs(at, is_words, lo[0] != NULL);
    }
    return at;
}

/* ---- unpacking the weights */

/* Two columns, `pair` 0 or 1 of an operand's four, as int16 without their zero. */
TG_INLINE __m256i widen(__m256i codes, int pair, int zero)
{
    const __m256i from = pair ? _mm256_set1_epi64x((int64_t)0x8007800680038002u)
                              : _mm256_set1_epi64x((int64_t)0x8005800480018000u);
    const __m256i next = _mm256_setr_epi64x(0, 0x0808080808080808, 0, 0x0808080808080808);
    __m256i w = _mm256_shuffle_epi8(codes, _mm256_or_si256(from, next));
    return _mm256_sub_epi16(w, _mm256_set1_epi16((int16_t)zero));
}

TG_INLINE void unpack_group(tg_layout l, const uint8_t *head, const uint8_t *part, int g,
                            weights *to)
{
    const tg_form *f = &tg_forms[l];
    for (int h = 0; h < HALVES; h++) {
        TG_UNROLL
        for (int v = 0; v < OPERANDS; v++) {
            __m256i w = tg_load_operand(l, part, g, v, h);
            if (f->bytes < 0) {
                _mm256_store_si256((__m256i *)(void *)to->code.u8[v][h], w);
                continue;
            }
            for (int i = 0; i < 2; i++)
                _mm256_store_si256((__m256i *)(void *)to->code.i16[2 * v + i][h],
                                   widen(w, i, f->zero));
        }
        _mm256_store_ps(to->d[h], tg_load_d(l, head, part, g, h));
        if (tg_form_has_min(l)) _mm256_store_ps(to->m[h], tg_load_m(l, head, part, g, h));
        for (int s = 0; s < 2 && f->is_per16; s++)
            _mm256_store_si256((__m256i *)(void *)to->sc[s][h],
                               tg_load_pairs(l, part + f->sc, g, h, s, s));
        if (f->is_per16)
            _mm256_store_si256((__m256i *)(void *)to->pairs[0][h],
                               tg_load_pairs(l, part + f->sc, g, h, 0, 1));
        if (f->is_per16 && f->mn >= 0)
            _mm256_store_si256((__m256i *)(void *)to->pairs[1][h],
                               tg_load_pairs(l, part + f->mn, g, h, 0, 1));
    }
}

TG_INLINE void unpack_parts(tg_layout l, weights *to, const uint8_t *tile, int64_t from, int n,
                            int32_t ahead)
{
    for (int p = 0; p < n; p++) {
        const uint8_t *head, *part = tg_form_part(l, tile, from + p, &head);
        for (int i = 0; i < tg_forms[l].part_bytes && ahead; i += 64)
            _mm_prefetch((const char *)part + ahead + i, _MM_HINT_T0);
        for (int g = 0; g < 2; g++)
            unpack_group(l, head, part, g, to + 2 * p + g);
    }
}

typedef void unpack_fn(weights *to, const uint8_t *tile, int64_t from, int n, int32_t ahead);

#define UNPACKER(name, NAME)                                                                       \
    static void unpack_##name(weights *to, const uint8_t *tile, int64_t from, int n,               \
                              int32_t ahead)                                                       \
    {                                                                                              \
        unpack_parts(TG_LAYOUT_##NAME, to, tile, from, n, ahead);                                  \
    }
#define UNPACKER_OF(name, NAME) [TG_LAYOUT_##NAME] = unpack_##name,

TG_EACH_FORM(UNPACKER)

static unpack_fn *const unpackers[TG_LAYOUT_COUNT] = {TG_EACH_FORM(UNPACKER_OF)};

/* ---- sums in registers */

TG_INLINE __m256i load_w(const void *p)
{
    return _mm256_load_si256((const __m256i *)p);
}

/* int16 sums of operands [first, last) and n tokens; they begin with `start`, or nothing. */
TG_INLINE void sum_operands(const weights *w, const int32_t *x, int n, int first, int last,
                            const int32_t *start, __m256i a[HALVES][SET])
{
    TG_UNROLL
    for (int v = first; v < last; v++) {
        __m256i w0 = load_w(w->code.u8[v][0]), w1 = load_w(w->code.u8[v][1]);
        for (int j = 0; j < n; j++) {
            __m256i b = _mm256_set1_epi32(x[SET * v + j]);
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
TG_INLINE void sum_words(const weights *w, const int32_t *x, int n, __m256i a[HALVES][SET])
{
    TG_UNROLL
    for (int v = 0; v < 2 * OPERANDS; v++) {
        __m256i w0 = load_w(w->code.i16[v][0]), w1 = load_w(w->code.i16[v][1]);
        for (int j = 0; j < n; j++) {
            __m256i b = _mm256_set1_epi32(x[SET * v + j]);
            __m256i p0 = _mm256_madd_epi16(w0, b), p1 = _mm256_madd_epi16(w1, b);
            a[0][j] = v ? _mm256_add_epi32(a[0][j], p0) : p0;
            a[1][j] = v ? _mm256_add_epi32(a[1][j], p1) : p1;
            TG_PIN(a[0][j]);
            TG_PIN(a[1][j]);
        }
    }
}

/* The exact int32 sums of a group, per-16 scales included. */
TG_INLINE void sum_group(const weights *w, const inputs *x, int n, sum_kind kind,
                         __m256i a[HALVES][SET])
{
    const __m256i ones = _mm256_set1_epi16(1);
    if (kind == SUM_WORDS) {
        sum_words(w, x->x, n, a);
        return;
    }
    if (kind == SUM_PER16) {
        __m256i b[HALVES][SET];
        sum_operands(w, x->x, n, 0, OPERANDS / 2, x->first, b);
        for (int j = 0; j < n; j++)
            for (int h = 0; h < HALVES; h++)
                b[h][j] = _mm256_madd_epi16(b[h][j], load_w(w->sc[0][h]));
        sum_operands(w, x->x, n, OPERANDS / 2, OPERANDS, x->second, a);
        for (int j = 0; j < n; j++)
            for (int h = 0; h < HALVES; h++)
                a[h][j] =
                    _mm256_add_epi32(_mm256_madd_epi16(a[h][j], load_w(w->sc[1][h])), b[h][j]);
        return;
    }
    sum_operands(w, x->x, n, 0, OPERANDS, kind == SUM_PLAIN ? NULL : x->first, a);
    for (int j = 0; j < n; j++)
        for (int h = 0; h < HALVES; h++) {
            a[h][j] = _mm256_madd_epi16(a[h][j], ones);
            if (kind == SUM_MOVED)
                a[h][j] = _mm256_add_epi32(a[h][j], _mm256_set1_epi32(x->back[j]));
        }
}

TG_INLINE void step_narrow(const weights *w, const inputs *x, int n, sum_kind kind, chains *c)
{
    __m256i a[HALVES][SET];
    sum_group(w, x, n, kind, a);
    for (int j = 0; j < n; j++) {
        __m256 scale = _mm256_set1_ps(x->scale[j]);
        for (int h = 0; h < HALVES; h++) {
            __m256 ds = _mm256_mul_ps(_mm256_load_ps(w->d[h]), scale);
            __m256 acc = _mm256_load_ps(c->acc[j][h]);
            _mm256_store_ps(c->acc[j][h], _mm256_fmadd_ps(_mm256_cvtepi32_ps(a[h][j]), ds, acc));
        }
    }
}

/* ---- wide groups */

/* One plane's exact sums over operands [first, last): int16 in runs that fit. */
TG_INLINE void sum_plane(const weights *w, const int32_t *x, int first, int last, int run,
                         __m256i sum[HALVES][SET])
{
    const __m256i ones = _mm256_set1_epi16(1);
    for (int v = first; v < last; v += run) {
        __m256i a[HALVES][SET];
        sum_operands(w, x, SET, v, v + run, NULL, a);
        for (int j = 0; j < SET; j++)
            for (int h = 0; h < HALVES; h++) {
                __m256i s = _mm256_madd_epi16(a[h][j], ones);
                sum[h][j] = v > first ? _mm256_add_epi32(sum[h][j], s) : s;
            }
    }
}

/* 256 hi + lo, minus the zero, over operands [first, last). */
TG_INLINE void sum_planes(const weights *w, const inputs *x, const tg_form *f, int first, int last,
                          const int32_t *code_sum, __m256i sum[HALVES][SET])
{
    bool is_words = f->bytes >= 0;
    __m256i low[HALVES][SET];
    for (int plane = 0; plane < 2; plane++) {
        const int32_t *codes = x->x + (size_t)plane * plane_bytes(is_words) / sizeof *x->x;
        __m256i(*to)[SET] = plane ? low : sum;
        if (is_words)
            sum_words(w, codes, SET, to);
        else if (f->is_per16)
            sum_plane(w, codes, first, last, 2, to);
        else if (f->bits >= 0)
            sum_plane(w, codes, 0, OPERANDS, 4, to);
        else
            sum_plane(w, codes, 0, OPERANDS, 8, to);
    }
    for (int j = 0; j < SET; j++) {
        __m256i zero = _mm256_set1_epi32(is_words ? 0 : f->zero * code_sum[j]);
        for (int h = 0; h < HALVES; h++) {
            sum[h][j] = _mm256_add_epi32(_mm256_slli_epi32(sum[h][j], 8), low[h][j]);
            sum[h][j] = _mm256_sub_epi32(sum[h][j], zero);
        }
    }
}

/* The chain of the scaled sums; all six tokens, for absent ones repeat the last. */
static TG_NOINLINE void step_wide(const weights *w, const inputs *x, const tg_form *f, chains *c)
{
    __m256i first[HALVES][SET], second[HALVES][SET];
    if (f->is_per16) {
        sum_planes(w, x, f, 0, OPERANDS / 2, x->first, first);
        sum_planes(w, x, f, OPERANDS / 2, OPERANDS, x->second, second);
    } else {
        sum_planes(w, x, f, 0, OPERANDS, x->first, first);
    }
    for (int j = 0; j < SET; j++) {
        __m256 scale = _mm256_set1_ps(x->scale[j]);
        for (int h = 0; h < HALVES; h++) {
            __m256 ds = _mm256_mul_ps(_mm256_load_ps(w->d[h]), scale);
            __m256 acc = _mm256_load_ps(c->acc[j][h]);
            if (f->is_per16)
                acc = tg_step_wide16(first[h][j], second[h][j], load_w(w->pairs[0][h]), ds, acc);
            else
                acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(first[h][j]), ds, acc);
            _mm256_store_ps(c->acc[j][h], acc);
        }
    }
}

/* ---- a set of tokens over a slab */

typedef struct work {
    const weights *w;
    const tg_form *form;
    const tg_a8 *x; /* says which groups are wide */
    int64_t group;  /* the slab's first */
    int n_groups;
} work;

TG_INLINE const inputs *multiply_set(const work *k, const inputs *x, int n, sum_kind kind,
                                     chains *c)
{
    for (int g = 0; g < k->n_groups; g++) {
        bool is_wide = tg_a8_low(k->x, k->group + g) != NULL;
        if (is_wide)
            step_wide(k->w + g, x, k->form, c);
        else
            step_narrow(k->w + g, x, n, kind, c);
        x = next_inputs(x, kind == SUM_WORDS, is_wide);
    }
    return x;
}

/* The chain of the minima, in registers. */
static void add_minima(const work *k, const inputs *x, chains *c)
{
    __m256 min[SET][HALVES];
    for (int j = 0; j < SET; j++)
        for (int h = 0; h < HALVES; h++)
            min[j][h] = _mm256_load_ps(c->min[j][h]);
    for (int g = 0; g < k->n_groups; g++) {
        __m256 m0 = _mm256_load_ps(k->w[g].m[0]), m1 = _mm256_load_ps(k->w[g].m[1]);
        for (int j = 0; j < SET; j++) {
            __m256 s = _mm256_set1_ps(x->ssum[j]);
            min[j][0] = _mm256_fmadd_ps(m0, s, min[j][0]);
            min[j][1] = _mm256_fmadd_ps(m1, s, min[j][1]);
        }
        x = next_inputs(x, false, tg_a8_low(k->x, k->group + g) != NULL);
    }
    for (int j = 0; j < SET; j++)
        for (int h = 0; h < HALVES; h++)
            _mm256_store_ps(c->min[j][h], min[j][h]);
}

/* The same where minima are per sixteenth. */
static void add_minima16(const work *k, const inputs *x, chains *c)
{
    for (int g = 0; g < k->n_groups; g++) {
        bool is_wide = tg_a8_low(k->x, k->group + g) != NULL;
        for (int h = 0; h < HALVES; h++) {
            __m256 m = _mm256_load_ps(k->w[g].m[h]);
            __m256i mn = load_w(k->w[g].pairs[1][h]);
            for (int j = 0; j < SET; j++) {
                __m256 ms = _mm256_mul_ps(m, _mm256_set1_ps(x->scale[j]));
                __m256 min = _mm256_load_ps(c->min[j][h]);
                if (is_wide) {
                    min = tg_min_wide16(mn, x->first[j], x->second[j], ms, min);
                } else {
                    __m256i i = _mm256_madd_epi16(mn, _mm256_set1_epi32(x->back[j]));
                    min = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ms, min);
                }
                _mm256_store_ps(c->min[j][h], min);
            }
        }
        x = next_inputs(x, false, is_wide);
    }
}

/* The instances: how sums are formed, and how many tokens in registers. */
typedef const inputs *work_fn(const work *k, const inputs *x, chains *c);

#define INSTANCE(name, NAME, n)                                                                    \
    static TG_NOINLINE const inputs *name##_##n(const work *k, const inputs *x, chains *c)         \
    {                                                                                              \
        return multiply_set(k, x, n, SUM_##NAME, c);                                               \
    }
#define INSTANCES(name, NAME)                                                                      \
    INSTANCE(name, NAME, 6)                                                                        \
    INSTANCE(name, NAME, 3)

INSTANCES(plain, PLAIN)
INSTANCES(centred, CENTRED)
INSTANCES(moved, MOVED)
INSTANCES(per16, PER16)
INSTANCES(words, WORDS)

/* By [kind][more than half a set]. */
static work_fn *const instances[SUM_COUNT][2] = {
    [SUM_PLAIN] = {plain_3, plain_6}, [SUM_CENTRED] = {centred_3, centred_6},
    [SUM_MOVED] = {moved_3, moved_6}, [SUM_PER16] = {per16_3, per16_6},
    [SUM_WORDS] = {words_3, words_6},
};

/* ---- the whole product */

/* Sets of a block, and where each is in its row. */
typedef struct block {
    int32_t from, n_tokens, n_sets;
    const inputs *start[MAX_SETS], *at[MAX_SETS];
} block;

/* One set's dot products over a tile: contract 8. */
static void store_set(const tg_matmul *m, bool has_min, const chains *c, int32_t tile,
                      int32_t token, int32_t n)
{
    for (int32_t j = 0; j < n; j++)
        for (int h = 0; h < HALVES; h++) {
            __m256 dot = _mm256_load_ps(c->acc[j][h]);
            if (has_min) dot = _mm256_add_ps(dot, _mm256_load_ps(c->min[j][h]));
            tg_store_rows(m, tile, h, token + j, dot);
        }
}

/* A set is stored as soon as its last slab is done, so that the stores, which miss, drain behind
 * the next set's products. */
static void multiply_tile(const tg_matmul *m, tg_layout l, many_scratch *s, block *b, int32_t tile)
{
    const tg_form *f = &tg_forms[l];
    const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    bool has_min = tg_form_has_min(l), is_single = n_parts <= SLAB_PARTS;
    sum_kind kind = get_kind(f);
    memcpy(b->at, b->start, sizeof b->at);
    for (int64_t p = 0; p < n_parts; p += SLAB_PARTS) {
        int n = (int)TG_MIN(n_parts - p, SLAB_PARTS);
        work k = {.w = s->w, .form = f, .x = m->a8, .group = 2 * p, .n_groups = 2 * n};
        unpackers[l](s->w, w, p, n, m->prefetch_bytes);
        for (int32_t i = 0; i < b->n_sets; i++) {
            int32_t n_left = b->n_tokens - SET * i;
            chains *c = &s->c[is_single ? 0 : i];
            const inputs *x = b->at[i];
            if (p == 0) *c = (chains){0};
            b->at[i] = instances[kind][n_left > SET / 2](&k, x, c);
            if (has_min && f->is_per16) add_minima16(&k, x, c);
            if (has_min && !f->is_per16) add_minima(&k, x, c);
            if (p + n == n_parts)
                store_set(m, has_min, c, tile, b->from + SET * i, TG_MIN(n_left, (int32_t)SET));
        }
    }
}

bool tg_avx2_matmul_many(const tg_matmul *m, tg_layout l)
{
    const tg_form *f = &tg_forms[l];
    many_scratch *s = m->scratch;
    int64_t n_groups = tg_layout_padded_cols(l, m->n_cols) / TG_GROUP_COLS;
    int64_t n_planes = n_groups + TG_MIN(m->a8->n_wide, n_groups);
    int64_t set_bytes =
        n_groups * (int64_t)sizeof(inputs) + n_planes * (int64_t)plane_bytes(f->bytes >= 0);
    int32_t most = (int32_t)TG_MIN(WEAVE_BYTES / set_bytes, MAX_SETS);
    if (most == 0) return false;
    for (block b = {0}; b.from < m->n_tokens; b.from += b.n_tokens) {
        void *at = s->woven;
        b.n_tokens = TG_MIN(m->n_tokens - b.from, most * SET);
        b.n_sets = (b.n_tokens + SET - 1) / SET;
        for (int32_t i = 0; i < b.n_sets; i++) {
            int n = TG_MIN(b.n_tokens - SET * i, (int32_t)SET);
            b.start[i] = at;
            const inputs *end = weave_set(at, f, m->a8, b.from + SET * i, n, n_groups);
            at = (char *)at + ((const char *)end - (const char *)at);
        }
        for (int32_t tile = 0; tile < m->n_tiles; tile++)
            multiply_tile(m, l, s, &b, tile);
    }
    return true;
}
