/* SPDX-License-Identifier: Apache-2.0
 * avx2_gemm.c - products of quantized weights with many tokens.
 *
 * A block of tokens is interleaved once into sets of six: for each group of columns what the six
 * bring to it (codes, scales, sums), in the order in which the inner loop reads it. Then tile after
 * tile: a slab of columns is unpacked into bytes and float scales, which stay in the first-level
 * cache while all sets pass; a set's 16 rows x 6 tokens are 12 sums in registers, with two
 * registers of weights and one of activations. The chains wait in memory, between slabs too, so
 * that their order is the contract's, whatever SLAB is.
 *
 * How the sums are formed, avx2_gemm.h says; the product takes them as a table (tg_gemm_sums), for
 * AVX-VNNI has its own. */
#include "kernel/avx2_gemm.h"

enum {
    OPERANDS = TG_AVX2_OPERANDS,
    HALVES = TG_AVX2_HALVES,
    SET = TG_SET,
    MAX_SETS = 32,
    SLAB_PARTS = 12, /* 768 columns: codes and scales of a tile are 15 kB. A multiple of 4 */
    SLAB_GROUPS = 2 * SLAB_PARTS
};

enum { WEAVE_BYTES = 440 * 1024 };

typedef struct gemm_scratch {
    tg_gemm_weights w[SLAB_GROUPS];
    tg_gemm_chains c[MAX_SETS];
    _Alignas(64) char interleaved[WEAVE_BYTES];
} gemm_scratch;

_Static_assert(sizeof(gemm_scratch) <= TG_MATMUL_SCRATCH_BYTES,
               "the scratch of matmul is too small");

static tg_sum_kind get_kind(const tg_layout_form *f, bool is_dot)
{
    if (f->bytes >= 0 && !is_dot) return TG_SUM_WORDS;
    if (f->is_per16) return TG_SUM_PER16;
    if (f->bits >= 0 && !f->zero && !is_dot) return TG_SUM_MOVED;
    return f->zero ? TG_SUM_CENTRED : TG_SUM_PLAIN;
}

static int get_centre(const tg_layout_form *f)
{
    return f->bits >= 0 ? 16 : f->zero;
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

static void interleave_sums(tg_gemm_inputs *to, int j, const tg_layout_form *f, bool is_dot,
                            const int8_t *codes, int32_t sum, int32_t half)
{
    int centre = get_centre(f);
    uint32_t both = ((uint32_t)half & 0xffff) | (uint32_t)(sum - half) << 16;
    to->back[j] = f->is_per16 ? (int32_t)both : (centre - f->zero) * sum;
    if (is_dot) {
        to->first[j] = -f->zero * (f->is_per16 ? half : sum);
        to->second[j] = -f->zero * (sum - half);
        return;
    }
    const __m128i *p = (const __m128i *)(const void *)codes;
    __m128i a = get_start(_mm_loadu_si128(p), centre),
            b = get_start(_mm_loadu_si128(p + 1), centre);
    to->first[j] = fold_pairs(f->is_per16 ? a : _mm_add_epi16(a, b));
    to->second[j] = f->is_per16 ? fold_pairs(b) : 0;
}

/* The tokens of a block as the sums want them. */
typedef struct interleave {
    const tg_layout_form *form;
    const tg_a8 *x;
    int64_t n_groups;
    bool is_dot, is_words, needs_sums;
} interleave;

/* Tokens [token, token + n). Returns what follows. */
static const tg_gemm_inputs *interleave_set(void *memory, const interleave *k, int32_t token, int n)
{
    const tg_layout_form *f = k->form;
    tg_a8 rows[SET];
    const tg_gemm_inputs *at = memory;
    for (int j = 0; j < SET; j++)
        rows[j] = tg_a8_from(k->x, token + TG_MIN(j, n - 1));
    for (int64_t g = 0; g < k->n_groups; g++) {
        tg_gemm_inputs *to =
            (tg_gemm_inputs *)((char *)memory + ((const char *)at - (const char *)memory));
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
            if (!lo[j] && k->needs_sums) interleave_sums(to, j, f, k->is_dot, hi[j], sum, half);
        }
        store_plane(to->x, hi, k->is_words);
        if (lo[0])
            store_plane(to->x + tg_gemm_plane_bytes(k->is_words) / sizeof *to->x, lo, k->is_words);
        at = tg_gemm_next(at, k->is_words, lo[0] != NULL);
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
                            bool is_words, tg_gemm_weights *to)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    for (int h = 0; h < HALVES; h++) {
        TG_UNROLL
        for (int v = 0; v < OPERANDS; v++) {
            __m256i w = tg_load_operand(l, part, g, v, h);
            if (!is_words) {
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

/* Parts [from, from + n). */
TG_INLINE void unpack_parts(tg_layout l, tg_gemm_weights *to, const uint8_t *tile, int64_t from,
                            int n, bool is_words, int32_t ahead)
{
    for (int p = 0; p < n; p++) {
        const uint8_t *head, *part = tg_form_part(l, tile, from + p, &head);
        for (int i = 0; i < tg_layout_forms[l].part_bytes && ahead; i += 64)
            _mm_prefetch((const char *)part + ahead + i, _MM_HINT_T0);
        for (int g = 0; g < 2; g++)
            unpack_group(l, head, part, g, is_words, to + 2 * p + g);
    }
}

typedef void unpack_fn(tg_gemm_weights *to, const uint8_t *tile, int64_t from, int n, bool is_words,
                       int32_t ahead);

#define UNPACKER(name, NAME)                                                                       \
    static void unpack_##name(tg_gemm_weights *to, const uint8_t *tile, int64_t from, int n,       \
                              bool is_words, int32_t ahead)                                        \
    {                                                                                              \
        if (tg_layout_forms[TG_LAYOUT_##NAME].bytes >= 0 && is_words)                              \
            unpack_parts(TG_LAYOUT_##NAME, to, tile, from, n, true, ahead);                        \
        else                                                                                       \
            unpack_parts(TG_LAYOUT_##NAME, to, tile, from, n, false, ahead);                       \
    }
#define UNPACKER_OF(name, NAME) [TG_LAYOUT_##NAME] = unpack_##name,

TG_EACH_FORM(UNPACKER)

static unpack_fn *const unpackers[TG_LAYOUT_COUNT] = {TG_EACH_FORM(UNPACKER_OF)};

/* ---- the minima */

/* The chain of the minima, in registers. */
static void add_minima(const tg_gemm_work *k, const tg_gemm_inputs *x, tg_gemm_chains *c)
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
        x = tg_gemm_next(x, false, tg_a8_low(k->x, k->group + g) != NULL);
    }
    for (int j = 0; j < SET; j++)
        for (int h = 0; h < HALVES; h++)
            _mm256_store_ps(c->min[j][h], min[j][h]);
}

/* The same where minima are per sixteenth. */
static void add_minima16(const tg_gemm_work *k, const tg_gemm_inputs *x, tg_gemm_chains *c)
{
    for (int g = 0; g < k->n_groups; g++) {
        bool is_outlier = tg_a8_low(k->x, k->group + g) != NULL;
        for (int h = 0; h < HALVES; h++) {
            __m256 m = _mm256_load_ps(k->w[g].m[h]);
            __m256i mn = tg_gemm_load(k->w[g].pairs[1][h]);
            for (int j = 0; j < SET; j++) {
                __m256 ms = _mm256_mul_ps(m, _mm256_set1_ps(x->scale[j]));
                __m256 min = _mm256_load_ps(c->min[j][h]);
                if (is_outlier) {
                    min = tg_min_outlier16(mn, x->first[j], x->second[j], ms, min);
                } else {
                    __m256i i = _mm256_madd_epi16(mn, _mm256_set1_epi32(x->back[j]));
                    min = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ms, min);
                }
                _mm256_store_ps(c->min[j][h], min);
            }
        }
        x = tg_gemm_next(x, false, is_outlier);
    }
}

/* ---- plain sums */

TG_GEMM_INSTANCES(plain, PLAIN)
TG_GEMM_INSTANCES(centred, CENTRED)
TG_GEMM_INSTANCES(moved, MOVED)
TG_GEMM_INSTANCES(per16, PER16)
TG_GEMM_INSTANCES(words, WORDS)

const tg_gemm_sums tg_avx2_gemm_sums = {
    .multiply = {[TG_SUM_PLAIN] = {plain_3, plain_6},
                 [TG_SUM_CENTRED] = {centred_3, centred_6},
                 [TG_SUM_MOVED] = {moved_3, moved_6},
                 [TG_SUM_PER16] = {per16_3, per16_6},
                 [TG_SUM_WORDS] = {words_3, words_6}},
};

/* ---- the whole product */

/* Sets of a block, and where each is in its row. */
typedef struct block {
    int32_t from, n_tokens, n_sets;
    const tg_gemm_inputs *start[MAX_SETS], *at[MAX_SETS];
} block;

/* One set's dot products over a tile: contract 8. */
static void store_set(const tg_matmul *m, bool has_min, const tg_gemm_chains *c, int32_t tile,
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
static void multiply_tile(const tg_matmul *m, tg_layout l, const tg_gemm_sums *sums,
                          gemm_scratch *s, block *b, int32_t tile)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    bool has_min = tg_form_has_min(l), is_single = n_parts <= SLAB_PARTS;
    tg_sum_kind kind = get_kind(f, sums->is_dot);
    memcpy(b->at, b->start, sizeof b->at);
    for (int64_t p = 0; p < n_parts; p += SLAB_PARTS) {
        int n = (int)TG_MIN(n_parts - p, SLAB_PARTS);
        tg_gemm_work k = {.w = s->w, .form = f, .x = m->a8, .group = 2 * p, .n_groups = 2 * n};
        unpackers[l](s->w, w, p, n, kind == TG_SUM_WORDS, m->prefetch_bytes);
        for (int32_t i = 0; i < b->n_sets; i++) {
            int32_t n_left = b->n_tokens - SET * i;
            tg_gemm_chains *c = &s->c[is_single ? 0 : i];
            const tg_gemm_inputs *x = b->at[i];
            if (p == 0) *c = (tg_gemm_chains){0};
            b->at[i] = sums->multiply[kind][n_left > SET / 2](&k, x, c);
            if (has_min && f->is_per16) add_minima16(&k, x, c);
            if (has_min && !f->is_per16) add_minima(&k, x, c);
            if (p + n == n_parts)
                store_set(m, has_min, c, tile, b->from + SET * i, TG_MIN(n_left, (int32_t)SET));
        }
    }
}

bool tg_avx2_matmul_gemm(const tg_matmul *m, tg_layout l, const tg_gemm_sums *sums)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    gemm_scratch *s = m->scratch;
    interleave k = {.form = f, .x = m->a8, .is_dot = sums->is_dot};
    k.is_words = get_kind(f, k.is_dot) == TG_SUM_WORDS;
    k.needs_sums = !k.is_words && get_kind(f, k.is_dot) != TG_SUM_PLAIN;
    k.n_groups = tg_layout_padded_cols(l, m->n_cols) / TG_GROUP_COLS;
    int64_t n_planes = k.n_groups + TG_MIN(m->a8->n_outliers, k.n_groups);
    int64_t set_bytes = k.n_groups * (int64_t)sizeof(tg_gemm_inputs) +
                        n_planes * (int64_t)tg_gemm_plane_bytes(k.is_words);
    int32_t most = (int32_t)TG_MIN(WEAVE_BYTES / set_bytes, MAX_SETS);
    if (most == 0) return false;
    for (block b = {0}; b.from < m->n_tokens; b.from += b.n_tokens) {
        void *at = s->interleaved;
        b.n_tokens = TG_MIN(m->n_tokens - b.from, most * SET);
        b.n_sets = (b.n_tokens + SET - 1) / SET;
        for (int32_t i = 0; i < b.n_sets; i++) {
            int n = TG_MIN(b.n_tokens - SET * i, (int32_t)SET);
            b.start[i] = at;
            const tg_gemm_inputs *end = interleave_set(at, &k, b.from + SET * i, n);
            at = (char *)at + ((const char *)end - (const char *)at);
        }
        for (int32_t tile = 0; tile < m->n_tiles; tile++)
            multiply_tile(m, l, sums, s, &b, tile);
    }
    return true;
}
