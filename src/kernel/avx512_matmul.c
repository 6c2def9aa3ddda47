/* SPDX-License-Identifier: Apache-2.0
 * avx512_matmul.c - products of quantized weights: one body for few tokens, one for many.
 *
 * Few (n_tokens x planes <= 8): a tile streams through registers once, every token's sums ride
 * along. It is bound by memory, so it reads one sequential stream and prefetches ahead where
 * that helps.
 *
 * Many: the codes of 32 rows x SLAB columns are unpacked once into bytes, with their scales as
 * floats, and reused by a block of tokens, 6 at a time in registers (12 integer sums and 12
 * chains; the minimum's chain runs over the slab on its own). Chains wait in the scratch between
 * slabs, so that their order is the contract's, whatever SLAB is.
 *
 * Both are inlined with the layout as a constant. All integer sums are exact, so only the chains
 * have an order. acc never is -0 (it starts at +0, and no step can underflow), so +0 and -0 as
 * an addend are the same to it: per-16 sums may be formed in float. */
#include "kernel/avx512.h"
#include "kernel/form.h"

#include <math.h>
#include <string.h>

/* SLAB_PARTS: 1536 columns, so that the codes of 32 rows are 48 kB and stream from the second-level
 * cache; 768, which fit the first, are 4 % slower (Zen 4), for chains go through memory twice. */
enum {
    OPERANDS = 8, /* of 4 columns: one group */
    SLAB_PARTS = 24,
    SLAB_GROUPS = 2 * SLAB_PARTS,
    BLOCK_TOKENS = 72, /* tokens that share an unpacked slab; a multiple of 6 and 4 */
    MAX_FEW = 8
};

/* ---- reading a layout */

TG_INLINE void prefetch(const uint8_t *p, int n_bytes)
{
    for (int i = 0; i < n_bytes; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

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

/* The codes of group g (0, 1) of a part as unsigned bytes. */
TG_INLINE void load_codes(tg_layout l, const uint8_t *part, int g, __m512i w[OPERANDS])
{
    const tg_form *f = &tg_forms[l];
    const __m512i low = _mm512_set1_epi8(15), pair = _mm512_set1_epi8(f->nibbles >= 0 ? 0x30 : 3);
    for (int v = 0; v < OPERANDS; v++) {
        int o = g * OPERANDS + v;
        if (f->bytes >= 0) w[v] = _mm512_loadu_si512(part + f->bytes + 64 * o);
        if (f->nibbles >= 0) {
            __m512i line = _mm512_loadu_si512(part + f->nibbles + 64 * (o / 2));
            w[v] = _mm512_and_si512(o % 2 ? _mm512_srli_epi16(line, 4) : line, low);
        }
        if (f->bits >= 0) {
            uint64_t bits;
            memcpy(&bits, part + f->bits + 8 * o, sizeof bits);
            w[v] = _mm512_mask_add_epi8(w[v], (__mmask64)bits, w[v], _mm512_set1_epi8(16));
        }
        if (f->pairs >= 0) {
            __m512i line = _mm512_loadu_si512(part + f->pairs + 64 * (o / 4));
            /* to bits 4..5, or 0..1 */
            __m512i moved = shift_right(line, 2 * (o % 4) - (f->nibbles >= 0 ? 4 : 0));
            w[v] = f->nibbles >= 0 ? _mm512_ternarylogic_epi32(moved, pair, w[v], 0xea) /* a&b|c */
                                   : _mm512_and_si512(moved, pair);
        }
    }
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
TG_INLINE __m512 load_d(tg_layout l, const uint8_t *head, const uint8_t *part, int g)
{
    const tg_form *f = &tg_forms[l];
    if (l == TG_LAYOUT_Q8_F) return _mm512_loadu_ps(part + f->d + 64 * g);
    if (!f->is_k) return load_f16(part + f->d + 32 * g);
    __m512 d = load_f16(head);
    if (f->is_per16) return d;
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(load_u8(part + f->sc + 16 * g)));
}

/* M, or -dmin where minima are per sixteenth. */
TG_INLINE __m512 load_m(tg_layout l, const uint8_t *head, const uint8_t *part, int g)
{
    const tg_form *f = &tg_forms[l];
    if (!f->is_k) return load_f16(part + f->m + 32 * g);
    __m512 m = _mm512_xor_ps(load_f16(head + 32), _mm512_set1_ps(-0.0f));
    if (f->is_per16) return m;
    return _mm512_mul_ps(m, _mm512_cvtepi32_ps(load_u8(part + f->mn + 16 * g)));
}

/* The integer scale of sixteenth s of group g, as a float. */
TG_INLINE __m512 load_sc(tg_layout l, const uint8_t *part, int g, int s)
{
    const uint8_t *p = part + tg_forms[l].sc + 16 * (2 * g + s);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(l == TG_LAYOUT_Q6_K ? _mm512_cvtepi8_epi32(b)
                                                  : _mm512_cvtepu8_epi32(b));
}

TG_INLINE __m512i load_mn(tg_layout l, const uint8_t *part, int g, int s)
{
    return load_u8(part + tg_forms[l].mn + 16 * (2 * g + s));
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

/* ---- few tokens */

/* Rows of activations: those of token i, or of the last token when the instance is wider. */
typedef struct rows {
    const int16_t *wide;                     /* the map, NULL where all groups are narrow */
    const int8_t *hi[MAX_FEW], *lo[MAX_FEW]; /* lo is the whole row: the map says where in it */
    const float *scale[MAX_FEW], *ssum[MAX_FEW];
    const int32_t *sum[MAX_FEW], *half[MAX_FEW];
} rows;

/* Rows of `width` tokens from `token` on, of which n exist, at group `group`. */
TG_INLINE void get_rows(rows *r, const tg_a8 *x, int32_t token, int32_t n, int width, int64_t group)
{
    int64_t groups = x->padded / TG_GROUP_COLS;
    r->wide = x->wide ? x->wide + group : NULL;
    for (int32_t i = 0; i < width; i++) {
        int64_t row = token + TG_MIN(i, n - 1), at = row * groups + group;
        r->hi[i] = x->hi + TG_GROUP_COLS * at;
        r->lo[i] = x->lo ? x->lo + TG_GROUP_COLS * row * x->n_wide : NULL;
        r->scale[i] = x->scale + at;
        r->ssum[i] = x->ssum + at;
        r->sum[i] = x->sum + at;
        r->half[i] = x->half + at;
    }
}

/* Exact sum of operands [first, last) of one token, both planes together, minus `zero` x code
 * sum. Two accumulators, for a single one's latency would show when there is one token. */
TG_INLINE __m512i dot_operands(const __m512i w[OPERANDS], const int8_t *hi, const int8_t *lo,
                               bool is_wide, int first, int last)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a;
    for (int v = first; v < last; v += 2) {
        a = _mm512_dpbusd_epi32(a, w[v], load_x(hi + 4 * v));
        if (!is_wide) b = _mm512_dpbusd_epi32(b, w[v + 1], load_x(hi + 4 * v + 4));
        if (is_wide) a = _mm512_dpbusd_epi32(a, w[v + 1], load_x(hi + 4 * v + 4));
        if (is_wide) c = _mm512_dpbusd_epi32(c, w[v], load_x(lo + 4 * v));
        if (is_wide) c = _mm512_dpbusd_epi32(c, w[v + 1], load_x(lo + 4 * v + 4));
    }
    return is_wide ? _mm512_add_epi32(_mm512_slli_epi32(a, 8), c) : _mm512_add_epi32(a, b);
}

TG_INLINE __m512i subtract_zero(__m512i i, int zero, int32_t sum)
{
    return zero ? _mm512_sub_epi32(i, _mm512_set1_epi32(zero * sum)) : i;
}

/* What the chains of 16 rows need of one group. */
typedef struct scales {
    __m512 d, m, sc[2];
    __m512i mn[2];
} scales;

TG_INLINE void load_scales(tg_layout l, const uint8_t *head, const uint8_t *part, int g, scales *s)
{
    s->d = load_d(l, head, part, g);
    if (tg_form_has_min(l)) s->m = load_m(l, head, part, g);
    for (int i = 0; i < 2 && tg_forms[l].is_per16; i++) {
        s->sc[i] = load_sc(l, part, g, i);
        if (tg_forms[l].mn >= 0) s->mn[i] = load_mn(l, part, g, i);
    }
}

/* Group `at`'s step of the chain of token t (contract 6). */
TG_INLINE void step(tg_layout l, const __m512i w[OPERANDS], const scales *k, const rows *x, int t,
                    int64_t at, bool is_wide, __m512 *acc)
{
    const tg_form *f = &tg_forms[l];
    const int8_t *hi = x->hi[t] + 32 * at, *lo = is_wide ? x->lo[t] + 32 * x->wide[at] : NULL;
    __m512 ds = _mm512_mul_ps(k->d, _mm512_set1_ps(x->scale[t][at]));
    if (!f->is_per16) {
        __m512i i = dot_operands(w, hi, lo, is_wide, 0, OPERANDS);
        i = subtract_zero(i, f->zero, f->zero ? x->sum[t][at] : 0);
        *acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), ds, *acc);
        return;
    }
    int32_t first = x->half[t][at], second = x->sum[t][at] - first;
    __m512i i0 = dot_operands(w, hi, lo, is_wide, 0, OPERANDS / 2);
    __m512i i1 = dot_operands(w, hi, lo, is_wide, OPERANDS / 2, OPERANDS);
    __m512 s0 = _mm512_mul_ps(_mm512_cvtepi32_ps(subtract_zero(i0, f->zero, first)), k->sc[0]);
    __m512 s1 = _mm512_cvtepi32_ps(subtract_zero(i1, f->zero, second));
    if (is_wide) {
        *acc = _mm512_fmadd_ps(s0, ds, *acc);
        *acc = _mm512_fmadd_ps(_mm512_mul_ps(s1, k->sc[1]), ds, *acc);
    } else { /* below 2^24: exact in float */
        *acc = _mm512_fmadd_ps(_mm512_fmadd_ps(s1, k->sc[1], s0), ds, *acc);
    }
}

TG_INLINE __m512 step_min16(const __m512i mn[2], __m512 m, float scale, int32_t first, int32_t sum,
                            __m512 min)
{
    __m512i i = _mm512_mullo_epi32(mn[0], _mm512_set1_epi32(first));
    i = _mm512_add_epi32(i, _mm512_mullo_epi32(mn[1], _mm512_set1_epi32(sum - first)));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), _mm512_mul_ps(m, _mm512_set1_ps(scale)), min);
}

TG_INLINE void few_tile(tg_layout l, const uint8_t *tile, int64_t n_parts, int32_t ahead,
                        const rows *x, int n, bool is_mixed, __m512 acc[MAX_FEW])
{
    const tg_form *f = &tg_forms[l];
    __m512 min[MAX_FEW];
    for (int t = 0; t < n; t++)
        acc[t] = min[t] = _mm512_setzero_ps();
    for (int64_t p = 0; p < n_parts; p++) {
        const uint8_t *head, *part = tg_form_part(l, tile, p, &head);
        if (ahead) prefetch(part + ahead, f->part_bytes);
        for (int g = 0; g < 2; g++) {
            int64_t at = 2 * p + g;
            __m512i w[OPERANDS];
            scales k;
            load_codes(l, part, g, w);
            load_scales(l, head, part, g, &k);
            if (is_mixed && x->wide[at] >= 0)
                for (int t = 0; t < n; t++)
                    step(l, w, &k, x, t, at, true, &acc[t]);
            else
                for (int t = 0; t < n; t++)
                    step(l, w, &k, x, t, at, false, &acc[t]);
            for (int t = 0; t < n; t++) {
                if (f->is_per16 && f->mn >= 0)
                    min[t] = step_min16(k.mn, k.m, x->scale[t][at], x->half[t][at], x->sum[t][at],
                                        min[t]);
                else if (tg_form_has_min(l))
                    min[t] = _mm512_fmadd_ps(k.m, _mm512_set1_ps(x->ssum[t][at]), min[t]);
            }
        }
    }
    for (int t = 0; t < n && tg_form_has_min(l); t++)
        acc[t] = _mm512_add_ps(acc[t], min[t]);
}

/* `n` is the instance's width, at least n_tokens; is_mixed: some groups are wide. */
TG_INLINE void few_tokens(const tg_matmul *m, tg_layout l, int n, bool is_mixed)
{
    rows x;
    get_rows(&x, m->a8, 0, m->n_tokens, n, 0);
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    for (int32_t tile = 0; tile < m->n_tiles; tile++) {
        __m512 acc[MAX_FEW];
        few_tile(l, m->w + (size_t)tile * m->tile_stride, n_parts, m->prefetch_bytes, &x, n,
                 is_mixed, acc);
        target to = get_target(m, tile, 0);
        for (int t = 0; t < n && t < m->n_tokens; t++)
            store_rows(&to, t, acc[t]);
    }
}

TG_INLINE void few(const tg_matmul *m, tg_layout l, bool is_mixed)
{
    switch (m->n_tokens) {
    case 1: few_tokens(m, l, 1, is_mixed); break;
    case 2: few_tokens(m, l, 2, is_mixed); break;
    case 3: few_tokens(m, l, 3, is_mixed); break;
    case 4: few_tokens(m, l, 4, is_mixed); break;
    case 5:
    case 6: few_tokens(m, l, 6, is_mixed); break;
    default: few_tokens(m, l, 8, is_mixed); break;
    }
}

/* ---- many tokens */

/* 32 rows x SLAB columns, unpacked. */
typedef struct panel {
    uint8_t w[2][SLAB_GROUPS][OPERANDS][64];
    float d[SLAB_GROUPS][2][16];
    float m[SLAB_GROUPS][2][16];
    float sc[SLAB_GROUPS][2][2][16]; /* [group][tile][sixteenth] */
    int32_t mn[SLAB_GROUPS][2][2][16];
} panel;

/* Chains of both tiles between slabs. */
typedef struct chains {
    float acc[2][16], min[2][16];
} chains;

typedef struct many_scratch {
    panel p;
    chains c[BLOCK_TOKENS];
} many_scratch;

_Static_assert(sizeof(many_scratch) <= TG_MATMUL_SCRATCH_BYTES,
               "the scratch of matmul is too small");
_Static_assert(BLOCK_TOKENS % 6 == 0 && BLOCK_TOKENS % 4 == 0, "blocks are whole register tiles");

/* Unpacks n parts from part `from` on of one of the panel's tiles. */
TG_INLINE void unpack_parts(tg_layout l, panel *to, int half, const uint8_t *tile, int64_t from,
                            int n, int32_t ahead)
{
    const tg_form *f = &tg_forms[l];
    for (int p = 0; p < n; p++) {
        const uint8_t *head, *part = tg_form_part(l, tile, from + p, &head);
        if (ahead) prefetch(part + ahead, f->part_bytes);
        for (int g = 0; g < 2; g++) {
            int at = 2 * p + g;
            __m512i w[OPERANDS];
            scales k;
            load_codes(l, part, g, w);
            load_scales(l, head, part, g, &k);
            for (int v = 0; v < OPERANDS; v++)
                _mm512_store_si512(to->w[half][at][v], w[v]);
            _mm512_store_ps(to->d[at][half], k.d);
            if (tg_form_has_min(l)) _mm512_store_ps(to->m[at][half], k.m);
            for (int s = 0; s < 2 && f->is_per16; s++) {
                _mm512_store_ps(to->sc[at][half][s], k.sc[s]);
                if (f->mn >= 0) _mm512_store_si512(to->mn[at][half][s], k.mn[s]);
            }
        }
    }
}

typedef void unpack_fn(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                       int32_t ahead);

/* What one call of the inner loops needs: up to 6 tokens of a slab. */
typedef struct work {
    const panel *p;
    chains *c; /* of the first token */
    rows x;    /* from the slab's first column on */
    int n_groups;
    int zero;
} work;

typedef enum columns { WHOLE, FIRST_HALF, SECOND_HALF } columns; /* of a group */

/* Adds one plane of columns of group g, whose codes are the plane's `place`th. */
TG_INLINE void add_plane(const work *k, int n, const int8_t *const *codes, int place, int g,
                         columns which, __m512i a0[6], __m512i a1[6])
{
    int first = which == SECOND_HALF ? OPERANDS / 2 : 0;
    int last = which == FIRST_HALF ? OPERANDS / 2 : OPERANDS;
    for (int v = first; v < last; v++) {
        __m512i w0 = _mm512_load_si512(k->p->w[0][g][v]), w1 = _mm512_load_si512(k->p->w[1][g][v]);
        for (int j = 0; j < n; j++) {
            __m512i x = load_x(codes[j] + TG_GROUP_COLS * place + 4 * v);
            a0[j] = _mm512_dpbusd_epi32(a0[j], w0, x);
            a1[j] = _mm512_dpbusd_epi32(a1[j], w1, x);
        }
    }
}

/* The exact sums over a group's columns, both planes, zero subtracted. */
TG_INLINE void sum_group(const work *k, int n, bool is_wide, int g, columns which, __m512i a0[6],
                         __m512i a1[6])
{
    __m512i offset[6];
    for (int j = 0; j < n; j++) {
        int32_t sum = which == FIRST_HALF ? k->x.half[j][g] : k->x.sum[j][g];
        if (which == SECOND_HALF) sum -= k->x.half[j][g];
        offset[j] = _mm512_set1_epi32(k->zero * sum);
        a0[j] = a1[j] = _mm512_setzero_si512();
        if (!is_wide) a0[j] = a1[j] = _mm512_sub_epi32(a0[j], offset[j]);
    }
    add_plane(k, n, k->x.hi, g, g, which, a0, a1);
    if (!is_wide) return;
    for (int j = 0; j < n; j++) {
        a0[j] = _mm512_sub_epi32(_mm512_slli_epi32(a0[j], 8), offset[j]);
        a1[j] = _mm512_sub_epi32(_mm512_slli_epi32(a1[j], 8), offset[j]);
    }
    add_plane(k, n, k->x.lo, k->x.wide[g], g, which, a0, a1);
}

/* The same where some groups are wide. */
TG_INLINE bool sum_mixed(const work *k, int n, bool is_mixed, int g, columns which, __m512i a0[6],
                         __m512i a1[6])
{
    bool is_wide = is_mixed && k->x.wide[g] >= 0;
    if (is_wide)
        sum_group(k, n, true, g, which, a0, a1);
    else
        sum_group(k, n, false, g, which, a0, a1);
    return is_wide;
}

TG_INLINE __m512 fmadd_int(__m512i i, __m512 ds, __m512 acc)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), ds, acc);
}

/* The chain of the scaled dots. */
TG_INLINE void many_dots(const work *k, int n, bool is_mixed)
{
    __m512 f0[6], f1[6];
    chains *c = k->c;
    for (int j = 0; j < n; j++) {
        f0[j] = _mm512_load_ps(c[j].acc[0]);
        f1[j] = _mm512_load_ps(c[j].acc[1]);
    }
    for (int g = 0; g < k->n_groups; g++) {
        __m512i a0[6], a1[6];
        sum_mixed(k, n, is_mixed, g, WHOLE, a0, a1);
        __m512 d0 = _mm512_load_ps(k->p->d[g][0]), d1 = _mm512_load_ps(k->p->d[g][1]);
        for (int j = 0; j < n; j++) {
            __m512 s = _mm512_set1_ps(k->x.scale[j][g]);
            f0[j] = fmadd_int(a0[j], _mm512_mul_ps(d0, s), f0[j]);
            f1[j] = fmadd_int(a1[j], _mm512_mul_ps(d1, s), f1[j]);
        }
    }
    for (int j = 0; j < n; j++) {
        _mm512_store_ps(c[j].acc[0], f0[j]);
        _mm512_store_ps(c[j].acc[1], f1[j]);
    }
}

/* A group's step where scales are per sixteenth: i0, the first sixteenth's scaled sum, in float. */
TG_INLINE __m512 step16(__m512 i0, __m512i second, __m512 sc, __m512 ds, bool is_wide, __m512 acc)
{
    __m512 i1 = _mm512_cvtepi32_ps(second);
    if (!is_wide) return _mm512_fmadd_ps(_mm512_fmadd_ps(i1, sc, i0), ds, acc);
    return _mm512_fmadd_ps(_mm512_mul_ps(i1, sc), ds, _mm512_fmadd_ps(i0, ds, acc));
}

/* The chain where scales are per sixteenth; 4 tokens, for the first sixteenth must wait. */
TG_INLINE void many_dots16(const work *k, int n, bool is_mixed)
{
    __m512 f0[6], f1[6], i0[6], i1[6];
    chains *c = k->c;
    for (int j = 0; j < n; j++) {
        f0[j] = _mm512_load_ps(c[j].acc[0]);
        f1[j] = _mm512_load_ps(c[j].acc[1]);
    }
    for (int g = 0; g < k->n_groups; g++) {
        __m512i a0[6], a1[6];
        bool is_wide = sum_mixed(k, n, is_mixed, g, FIRST_HALF, a0, a1);
        __m512 sc0 = _mm512_load_ps(k->p->sc[g][0][0]), sc1 = _mm512_load_ps(k->p->sc[g][1][0]);
        for (int j = 0; j < n; j++) {
            i0[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(a0[j]), sc0);
            i1[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(a1[j]), sc1);
        }
        sum_mixed(k, n, is_mixed, g, SECOND_HALF, a0, a1);
        sc0 = _mm512_load_ps(k->p->sc[g][0][1]);
        sc1 = _mm512_load_ps(k->p->sc[g][1][1]);
        __m512 d0 = _mm512_load_ps(k->p->d[g][0]), d1 = _mm512_load_ps(k->p->d[g][1]);
        for (int j = 0; j < n; j++) {
            __m512 s = _mm512_set1_ps(k->x.scale[j][g]);
            f0[j] = step16(i0[j], a0[j], sc0, _mm512_mul_ps(d0, s), is_wide, f0[j]);
            f1[j] = step16(i1[j], a1[j], sc1, _mm512_mul_ps(d1, s), is_wide, f1[j]);
        }
    }
    for (int j = 0; j < n; j++) {
        _mm512_store_ps(c[j].acc[0], f0[j]);
        _mm512_store_ps(c[j].acc[1], f1[j]);
    }
}

/* The chain of the minima. */
TG_INLINE void many_mins(const work *k, int n)
{
    __m512 f0[6], f1[6];
    chains *c = k->c;
    for (int j = 0; j < n; j++) {
        f0[j] = _mm512_load_ps(c[j].min[0]);
        f1[j] = _mm512_load_ps(c[j].min[1]);
    }
    for (int g = 0; g < k->n_groups; g++) {
        __m512 m0 = _mm512_load_ps(k->p->m[g][0]), m1 = _mm512_load_ps(k->p->m[g][1]);
        for (int j = 0; j < n; j++) {
            __m512 s = _mm512_set1_ps(k->x.ssum[j][g]);
            f0[j] = _mm512_fmadd_ps(m0, s, f0[j]);
            f1[j] = _mm512_fmadd_ps(m1, s, f1[j]);
        }
    }
    for (int j = 0; j < n; j++) {
        _mm512_store_ps(c[j].min[0], f0[j]);
        _mm512_store_ps(c[j].min[1], f1[j]);
    }
}

static void many_mins16(const work *k, int n)
{
    for (int j = 0; j < n; j++)
        for (int h = 0; h < 2; h++) {
            __m512 min = _mm512_load_ps(k->c[j].min[h]);
            for (int g = 0; g < k->n_groups; g++) {
                __m512i mn[2] = {_mm512_load_si512(k->p->mn[g][h][0]),
                                 _mm512_load_si512(k->p->mn[g][h][1])};
                min = step_min16(mn, _mm512_load_ps(k->p->m[g][h]), k->x.scale[j][g],
                                 k->x.half[j][g], k->x.sum[j][g], min);
            }
            _mm512_store_ps(k->c[j].min[h], min);
        }
}

/* The instances: how many tokens in registers, and which chains. */
typedef void work_fn(const work *k);

static TG_NOINLINE void dots_6(const work *k)
{
    many_dots(k, 6, false);
}
static TG_NOINLINE void dots_4(const work *k)
{
    many_dots(k, 4, false);
}
static TG_NOINLINE void dots_2(const work *k)
{
    many_dots(k, 2, false);
}
static TG_NOINLINE void mixed_6(const work *k)
{
    many_dots(k, 6, true);
}
static TG_NOINLINE void mixed_4(const work *k)
{
    many_dots(k, 4, true);
}
static TG_NOINLINE void mixed_2(const work *k)
{
    many_dots(k, 2, true);
}
static TG_NOINLINE void dots16_4(const work *k)
{
    many_dots16(k, 4, false);
}
static TG_NOINLINE void dots16_2(const work *k)
{
    many_dots16(k, 2, false);
}
static TG_NOINLINE void mixed16_4(const work *k)
{
    many_dots16(k, 4, true);
}
static TG_NOINLINE void mixed16_2(const work *k)
{
    many_dots16(k, 2, true);
}
static TG_NOINLINE void mins_6(const work *k)
{
    many_mins(k, 6);
}
static TG_NOINLINE void mins_4(const work *k)
{
    many_mins(k, 4);
}
static TG_NOINLINE void mins_2(const work *k)
{
    many_mins(k, 2);
}

/* By [is_per16][is_mixed][width / 2 - 1]. */
static work_fn *const dot_instances[2][2][3] = {
    {{dots_2, dots_4, dots_6}, {mixed_2, mixed_4, mixed_6}},
    {{dots16_2, dots16_4, NULL}, {mixed16_2, mixed16_4, NULL}},
};
static work_fn *const min_instances[3] = {mins_2, mins_4, mins_6};

/* All tokens of a block over one unpacked slab. */
static void multiply_slab(many_scratch *s, const tg_form *f, bool has_min, const tg_a8 *x,
                          int32_t n_tokens, int64_t group, int n_groups)
{
    int32_t widest = f->is_per16 ? 4 : 6;
    work k = {.p = &s->p, .n_groups = n_groups, .zero = f->zero};
    for (int32_t t = 0; t < n_tokens; t += widest) {
        int32_t n = TG_MIN(n_tokens - t, widest), width = (n + 1) / 2 * 2;
        k.c = s->c + t;
        get_rows(&k.x, x, t, n, 6, group);
        dot_instances[f->is_per16][x->wide != NULL][width / 2 - 1](&k);
        if (has_min && f->is_per16)
            many_mins16(&k, n);
        else if (has_min)
            min_instances[width / 2 - 1](&k);
    }
}

static void many_tokens(const tg_matmul *m, tg_layout l, unpack_fn *unpack)
{
    many_scratch *s = m->scratch;
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    bool has_min = tg_form_has_min(l);
    for (int32_t from = 0; from < m->n_tokens; from += BLOCK_TOKENS) {
        int32_t n_tokens = TG_MIN(m->n_tokens - from, (int32_t)BLOCK_TOKENS);
        tg_a8 x = tg_a8_from(m->a8, from);
        for (int32_t tile = 0; tile < m->n_tiles; tile += 2) {
            bool is_pair = tile + 1 < m->n_tiles;
            const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
            const uint8_t *w1 = is_pair ? w + m->tile_stride : w;
            memset(s->c, 0, (size_t)tg_align_up((size_t)n_tokens, 2) * sizeof s->c[0]);
            for (int64_t p = 0; p < n_parts; p += SLAB_PARTS) {
                int n = (int)TG_MIN(n_parts - p, SLAB_PARTS);
                unpack(&s->p, 0, w, p, n, m->prefetch_bytes);
                unpack(&s->p, 1, w1, p, n, m->prefetch_bytes);
                multiply_slab(s, &tg_forms[l], has_min, &x, n_tokens, 2 * p, 2 * n);
            }
            for (int h = 0; h < (is_pair ? 2 : 1); h++) {
                target to = get_target(m, tile + h, from);
                for (int32_t t = 0; t < n_tokens; t++) {
                    __m512 dot = _mm512_load_ps(s->c[t].acc[h]);
                    if (has_min) dot = _mm512_add_ps(dot, _mm512_load_ps(s->c[t].min[h]));
                    store_rows(&to, t, dot);
                }
            }
        }
    }
}

/* ---- one entry per layout */

TG_INLINE void matmul(const tg_matmul *m, tg_layout l, unpack_fn *unpack)
{
    /* Planes, not tokens, are what a pass over the weights costs. */
    bool is_mostly_wide = m->a8->n_wide > m->n_cols / (2 * TG_GROUP_COLS);
    if (m->n_tokens * (is_mostly_wide ? 2 : 1) > MAX_FEW)
        many_tokens(m, l, unpack);
    else if (m->a8->wide)
        few(m, l, true);
    else
        few(m, l, false);
}

static void unpack_q4_0(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q4_0, to, half, tile, from, n, ahead);
}

static void matmul_q4_0(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q4_0, unpack_q4_0);
}

static void unpack_q4_1(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q4_1, to, half, tile, from, n, ahead);
}

static void matmul_q4_1(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q4_1, unpack_q4_1);
}

static void unpack_q5_0(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q5_0, to, half, tile, from, n, ahead);
}

static void matmul_q5_0(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q5_0, unpack_q5_0);
}

static void unpack_q5_1(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q5_1, to, half, tile, from, n, ahead);
}

static void matmul_q5_1(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q5_1, unpack_q5_1);
}

static void unpack_q8_0(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q8_0, to, half, tile, from, n, ahead);
}

static void matmul_q8_0(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q8_0, unpack_q8_0);
}

static void unpack_q8_f(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q8_F, to, half, tile, from, n, ahead);
}

static void matmul_q8_f(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q8_F, unpack_q8_f);
}

static void unpack_q4_k(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q4_K, to, half, tile, from, n, ahead);
}

static void matmul_q4_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q4_K, unpack_q4_k);
}

static void unpack_q5_k(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q5_K, to, half, tile, from, n, ahead);
}

static void matmul_q5_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q5_K, unpack_q5_k);
}

static void unpack_q6_k(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q6_K, to, half, tile, from, n, ahead);
}

static void matmul_q6_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q6_K, unpack_q6_k);
}

static void unpack_q2_k(panel *to, int half, const uint8_t *tile, int64_t from, int n,
                        int32_t ahead)
{
    unpack_parts(TG_LAYOUT_Q2_K, to, half, tile, from, n, ahead);
}

static void matmul_q2_k(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_Q2_K, unpack_q2_k);
}

tg_matmul_fn *const tg_avx512_matmul[TG_LAYOUT_COUNT] = {
    [TG_LAYOUT_F32] = tg_avx512_matmul_f32,   [TG_LAYOUT_F16] = tg_avx512_matmul_f16,
    [TG_LAYOUT_BF16] = tg_avx512_matmul_bf16, [TG_LAYOUT_Q4_0] = matmul_q4_0,
    [TG_LAYOUT_Q4_1] = matmul_q4_1,           [TG_LAYOUT_Q5_0] = matmul_q5_0,
    [TG_LAYOUT_Q5_1] = matmul_q5_1,           [TG_LAYOUT_Q8_0] = matmul_q8_0,
    [TG_LAYOUT_Q8_F] = matmul_q8_f,           [TG_LAYOUT_Q4_K] = matmul_q4_k,
    [TG_LAYOUT_Q5_K] = matmul_q5_k,           [TG_LAYOUT_Q6_K] = matmul_q6_k,
    [TG_LAYOUT_Q2_K] = matmul_q2_k,
};
