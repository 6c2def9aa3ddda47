/* SPDX-License-Identifier: Apache-2.0
 * cases_matmul.h - matrix products and embedding rows of every packed layout.
 *
 * Matrices are made as plain numbers (codes, scales, minima) and packed by place_*, written from
 * the drawings of layout.h, one number at a time; exact values come from the plain numbers in
 * double, never from the packed bytes. */
#ifndef TG_TESTS_KERNELS_CASES_MATMUL_H
#define TG_TESTS_KERNELS_CASES_MATMUL_H

#include "support.h"

typedef struct matrix {
    tg_layout layout;
    int32_t n_rows, n_cols, n_tiles;
    int64_t padded;
    size_t tile_stride;
    uint8_t *packed;
    /* Per [row][padded column]: the factor and the code without its zero, and what is added; w =
     * factor * code + offset. Float layouts: factor 1, code the weight. */
    double *factor, *code, *offset;
} matrix;

/* The plain numbers of the largest matrix of a case. */
enum { MAX_NUMBERS = 16 * 48128 };

static void place_f16(uint8_t *p, size_t i, uint16_t h)
{
    memcpy(p + 2 * i, &h, 2);
}

/* Puts code q of row r, column c (0..63) of a part; pieces at `nib`, `bits`, `pairs`, `bytes`
 * (NULL: the layout has none). */
static void place_code(uint8_t *nib, uint8_t *bits, uint8_t *pairs, uint8_t *bytes, int r, int c,
                       int q)
{
    int v = c / 4, i = 4 * r + c % 4; /* operand, byte in it */
    if (bytes) {
        bytes[64 * v + i] = (uint8_t)q;
        return;
    }
    if (nib) {
        uint8_t *b = &nib[64 * (v / 2) + i];
        *b = (uint8_t)(v % 2 ? *b | (q & 15) << 4 : *b | (q & 15));
        q >>= 4;
    }
    if (bits) { /* a 64-bit little-endian mask per operand */
        uint64_t mask;
        memcpy(&mask, bits + 8 * v, 8);
        mask |= (uint64_t)(q & 1) << i;
        memcpy(bits + 8 * v, &mask, 8);
    }
    if (pairs) pairs[64 * (v / 4) + i] |= (uint8_t)((q & 3) << 2 * (v % 4));
}

/* Largest code + 1, and zero, of the quantized layouts. */
static int get_code_range(tg_layout l, int *zero)
{
    *zero = l == TG_LAYOUT_Q4_0                          ? 8
            : l == TG_LAYOUT_Q5_0                        ? 16
            : l == TG_LAYOUT_Q6_K                        ? 32
            : l == TG_LAYOUT_Q8_0 || l == TG_LAYOUT_Q8_F ? 128
                                                         : 0;
    if (l == TG_LAYOUT_Q8_0 || l == TG_LAYOUT_Q8_F) return 256;
    if (l == TG_LAYOUT_Q6_K) return 64;
    if (l == TG_LAYOUT_Q5_0 || l == TG_LAYOUT_Q5_1 || l == TG_LAYOUT_Q5_K) return 32;
    return l == TG_LAYOUT_Q2_K ? 4 : 16;
}

static bool has_min(tg_layout l)
{
    return l == TG_LAYOUT_Q4_1 || l == TG_LAYOUT_Q5_1 || l == TG_LAYOUT_Q4_K ||
           l == TG_LAYOUT_Q5_K || l == TG_LAYOUT_Q2_K;
}

/* Where the pieces of a part begin (layout.h's order of pieces and their sizes). */
typedef struct part_map {
    uint8_t *nib, *bits, *pairs, *bytes, *scales;
} part_map;

static part_map map_part(tg_layout l, uint8_t *p)
{
    part_map m = {0};
    bool has_nib = l == TG_LAYOUT_Q4_0 || l == TG_LAYOUT_Q4_1 || l == TG_LAYOUT_Q5_0 ||
                   l == TG_LAYOUT_Q5_1 || l == TG_LAYOUT_Q4_K || l == TG_LAYOUT_Q5_K ||
                   l == TG_LAYOUT_Q6_K;
    if (has_nib) m.nib = p, p += 512;
    if (l == TG_LAYOUT_Q5_0 || l == TG_LAYOUT_Q5_1 || l == TG_LAYOUT_Q5_K) m.bits = p, p += 128;
    if (l == TG_LAYOUT_Q6_K || l == TG_LAYOUT_Q2_K) m.pairs = p, p += 256;
    if (l == TG_LAYOUT_Q8_0 || l == TG_LAYOUT_Q8_F) m.bytes = p, p += 1024;
    m.scales = p;
    return m;
}

/* Kinds of codes: random, all 0, all the largest, alternating ends. */
static int next_code(check *c, int range, int kind, int i)
{
    if (kind == 1) return 0;
    if (kind == 2) return range - 1;
    if (kind == 3) return i % 2 ? range - 1 : 0;
    return next_below(c, range);
}

/* One row of 64 columns: codes, scales, minima, bytes and plain numbers. `x` is a calm half:
 * wild scales may hold any f16. */
static void make_part_row(check *c, matrix *x, int32_t row, int64_t part, int kind, bool is_wild)
{
    tg_layout l = x->layout;
    bool is_k = l >= TG_LAYOUT_Q4_K;
    int r = row % 16, zero, range = get_code_range(l, &zero), per = l >= TG_LAYOUT_Q6_K ? 16 : 32;
    uint8_t *tile = x->packed + (size_t)(row / 16) * x->tile_stride, *head = NULL, *p;
    size_t quantum = (size_t)tg_layout_rows[l].quantum_bytes;
    if (is_k) {
        head = tile + (size_t)(part / 4) * quantum;
        p = head + 64 + (size_t)(part % 4) * ((quantum - 64) / 4);
    } else {
        p = tile + (size_t)part * quantum;
    }
    part_map m = map_part(l, p);
    bool is_real = row < x->n_rows;
    if (is_k && part % 4 == 0 && is_real) {
        place_f16(head, (size_t)r, is_wild ? (uint16_t)next_u32(c) : next_scale(c));
        if (l != TG_LAYOUT_Q6_K)
            place_f16(head, (size_t)(16 + r), is_wild ? (uint16_t)next_u32(c) : next_scale(c));
    }
    double factor = 0, offset = 0;
    for (int i = 0; i < 64; i++) {
        int64_t col = 64 * part + i;
        size_t at = (size_t)row * (size_t)x->padded + (size_t)col;
        if (i % per == 0 && is_real) {
            size_t g = (size_t)(i / per);
            uint16_t d = is_wild ? (uint16_t)next_u32(c) : next_scale(c);
            uint16_t mn = is_wild ? (uint16_t)next_u32(c) : next_scale(c);
            factor = f16_value(d);
            if (is_k) {
                uint16_t h[2];
                memcpy(&h[0], head + 2 * r, 2);
                memcpy(&h[1], head + 32 + 2 * r, 2);
                uint8_t sc = (uint8_t)d, b = (uint8_t)mn;
                m.scales[g * 16 + (size_t)r] = sc;
                if (l != TG_LAYOUT_Q6_K) m.scales[(size_t)(64 / per) * 16 + g * 16 + (size_t)r] = b;
                factor = f16_value(h[0]) * (l == TG_LAYOUT_Q6_K ? (int8_t)sc : sc);
                offset = l == TG_LAYOUT_Q6_K ? 0 : -(f16_value(h[1]) * b);
            } else if (l == TG_LAYOUT_Q8_F) {
                float f = is_wild ? float_from_bits(next_u32(c)) : next_normal(c);
                memcpy(m.scales + 4 * (g * 16 + (size_t)r), &f, 4);
                factor = (double)f;
            } else {
                place_f16(m.scales, g * 16 + (size_t)r, d);
                if (has_min(l)) place_f16(m.scales + 64, g * 16 + (size_t)r, mn);
                offset = has_min(l) ? f16_value(mn) : 0;
            }
        }
        /* Columns beyond the last: code = zero, so that they mean nothing whatever the scale. */
        int q = is_real && col < x->n_cols ? next_code(c, range, kind, i) : zero;
        place_code(m.nib, m.bits, m.pairs, m.bytes, r, i, q);
        x->factor[at] = factor;
        x->code[at] = q - zero;
        x->offset[at] = offset;
    }
}

static void make_float_row(check *c, matrix *x, int32_t row, bool is_wild)
{
    uint8_t *tile = x->packed + (size_t)(row / 16) * x->tile_stride;
    size_t r = (size_t)row % 16;
    for (size_t col = 0; col < (size_t)x->n_cols && row < x->n_rows; col++) {
        float w;
        fill_floats(c, &w, 1, is_wild ? POISONED : CALM);
        uint16_t h = is_wild ? (uint16_t)next_u32(c) : next_scale(c);
        size_t at = (size_t)row * (size_t)x->padded + col;
        x->factor[at] = 1;
        if (x->layout == TG_LAYOUT_F32) {
            memcpy(tile + 64 * col + 4 * r, &w, 4);
            x->code[at] = (double)w;
        } else if (x->layout == TG_LAYOUT_F16) {
            place_f16(tile + 32 * col, r, h);
            x->code[at] = f16_value(h);
        } else {
            h = (uint16_t)(float_bits(w) >> 16);
            place_f16(tile + 64 * (col / 2) + 4 * r, col % 2, h);
            x->code[at] = (double)float_from_bits((uint32_t)h << 16);
        }
    }
}

/* Packs into test buffer 0, so that the last tile ends at an unmapped page. `gap` bytes lie between
 * tiles, as when two matrices are interleaved. */
static void make_matrix(check *c, matrix *x, tg_layout l, int32_t n_rows, int32_t n_cols,
                        size_t gap, int kind, bool is_wild)
{
    static double numbers[3][MAX_NUMBERS];
    size_t tile = tg_layout_tile_bytes(l, n_cols);
    *x = (matrix){.layout = l, .n_rows = n_rows, .n_cols = n_cols, .n_tiles = (n_rows + 15) / 16};
    x->padded = tg_layout_padded_cols(l, n_cols);
    x->tile_stride = tile + gap;
    size_t bytes = x->tile_stride * (size_t)(x->n_tiles - 1) + tile;
    x->packed = end_buffer(0, bytes);
    for (int32_t t = 0; t < x->n_tiles; t++)
        memset(x->packed + (size_t)t * x->tile_stride, 0, tile);
    if ((int64_t)x->n_tiles * 16 * x->padded > MAX_NUMBERS) fail_check("matrix too large");
    x->factor = numbers[0];
    x->code = numbers[1];
    x->offset = numbers[2];
    for (int i = 0; i < 3; i++)
        memset(numbers[i], 0, (size_t)x->n_tiles * 16 * (size_t)x->padded * sizeof(double));
    for (int32_t row = 0; row < 16 * x->n_tiles; row++) {
        if (!tg_layout_rows[l].is_quantized) make_float_row(c, x, row, is_wild);
        for (int64_t p = 0; p < x->padded / 64 && tg_layout_rows[l].is_quantized; p++)
            make_part_row(c, x, row, p, kind, is_wild);
    }
}

typedef struct shape {
    int32_t n_rows, n_cols, n_tokens;
} shape;

/* Activations of n_tokens rows in test buffer 1 (quantized) or 2 (floats). Kinds of codes:
 * quantized from floats, all the largest, all the least with low planes of -128. */
static void make_activations(check *c, tg_a8 *a, const float **x, shape s, tg_layout l,
                             map_kind wide, int kind, mood how)
{
    int32_t n_outliers, n_tokens = s.n_tokens, n_cols = s.n_cols;
    const int16_t *map = draw_map(c, 8, n_cols, wide, &n_outliers);
    tg_a8_kind wanted = draw_kind(c, map, n_outliers, l);
    size_t n = (size_t)n_tokens * (size_t)n_cols;
    float *values = end_buffer(2, 4 * n);
    fill_floats(c, values, n, how);
    *x = values;
    tg_a8_place(a, end_buffer(1, tg_a8_bytes(n_tokens, n_cols, n_outliers)), n_tokens, n_cols,
                &wanted);
    for (int32_t t = 0; t < n_tokens; t++) {
        tg_a8 row = tg_a8_from(a, t);
        c->ref->quantize(&row, values + (size_t)t * (size_t)n_cols, n_cols);
        for (int32_t i = 0; i < n_cols && kind; i++) {
            int place = n_outliers ? map[i / 32] : -1;
            int top = place >= 0 ? 127 : a->top;
            row.hi[i] = (int8_t)(kind == 1 ? top : -top);
            if (place >= 0) row.lo[32 * place + i % 32] = kind == 1 ? 127 : -128;
        }
        for (int64_t g = 0; g < row.padded / 32 && kind; g++) {
            row.sum[g] = row.half[g] = 0;
            for (int i = 0; i < 32; i++) {
                int32_t v = get_code(&row, 32 * g + i);
                row.sum[g] += v;
                if (i < 16) row.half[g] += v;
            }
            row.ssum[g] = row.scale[g] * (float)row.sum[g];
            if (row.pair) row.pair[g] = sum_pairs(&row, g);
        }
    }
}

/* Fills what follows from the matrix into `m` and runs it. */
static void run_matmul(const tg_kernels *k, const matrix *w, tg_matmul m)
{
    m.w = w->packed;
    m.tile_stride = w->tile_stride;
    m.n_tiles = w->n_tiles;
    m.n_rows = w->n_rows;
    m.n_cols = w->n_cols;
    m.x_stride = w->n_cols;
    if (!tg_layout_rows[w->layout].is_quantized) m.a8 = NULL;
    k->matmul[w->layout](&m);
}

/* One shape, everything else drawn: gap, bias, add, outlier groups, hostility. */
static void check_matmul_shape(check *c, tg_layout l, shape s)
{
    int code_kind = next_below(c, 8), act_kind = next_below(c, 6);
    bool is_wild = next_below(c, 8) == 0, is_add = next_below(c, 2);
    map_kind wide = (map_kind)next_below(c, MAP_KIND_COUNT);
    size_t gap = next_below(c, 3) ? 0 : 64 * (size_t)next_below(c, 40);
    mood how = is_wild ? POISONED : (mood)next_below(c, 2);
    snprintf(
        c->what, sizeof c->what,
        "%d x %d, %d tokens, map %d, add %d, gap %zu, codes %d, activations %d, mood %d, wild %d",
        s.n_rows, s.n_cols, s.n_tokens, wide, is_add, gap, code_kind, act_kind, how, is_wild);
    matrix w;
    tg_a8 a;
    const float *x;
    make_matrix(c, &w, l, s.n_rows, s.n_cols, gap, code_kind, is_wild);
    make_activations(c, &a, &x, s, l, wide, act_kind > 2 ? 0 : act_kind, how);
    float *bias = next_below(c, 2) ? end_buffer(3, 4 * (size_t)s.n_rows) : NULL;
    if (bias) fill_floats(c, bias, (size_t)s.n_rows, CALM);
    int64_t stride = s.n_rows + next_below(c, 20);
    size_t n = (size_t)(s.n_tokens - 1) * (size_t)stride + (size_t)s.n_rows;
    float *got = end_buffer(4, 4 * n), *want = end_buffer(5, 4 * n);
    void *scratch = end_buffer(6, TG_MATMUL_SCRATCH_BYTES);
    memset(scratch, next_below(c, 256), TG_MATMUL_SCRATCH_BYTES);
    tg_matmul m = {.n_tokens = s.n_tokens,
                   .a8 = &a,
                   .x = x,
                   .bias = bias,
                   .is_add = is_add,
                   .y_stride = stride,
                   .scratch = scratch,
                   .prefetch_bytes = 4096 * next_below(c, 2)};
    m.y = got;
    run_matmul(c->k, &w, m);
    m.y = want;
    run_matmul(c->ref, &w, m);
    compare_floats(c, "y", got, want, n);
}

static void check_matmul_of(check *c, tg_layout l)
{
    static const int32_t cols[] = {1,   31,  32,  63,  64,  65,  96, 128,
                                   129, 255, 256, 257, 320, 576, 640};
    for (int32_t t = 1; t <= 20; t++) /* every number of tokens, at several shapes */
        for (int i = 0; i < 6; i++)
            check_matmul_shape(
                c, l, (shape){1 + next_below(c, 70), cols[next_u32(c) % TG_COUNT(cols)], t});
    for (int32_t rows = 1; rows <= 66; rows++)
        check_matmul_shape(c, l, (shape){rows, 64, 1 + next_below(c, 9)});
    for (int32_t n = 1; n <= 129; n++)
        check_matmul_shape(c, l, (shape){17, n, 1 + next_below(c, 14)});
    for (int i = 0; i < 4; i++) { /* with other planes, bias and hostility each time */
        check_matmul_shape(c, l, (shape){33, 2304, 13});
        check_matmul_shape(c, l, (shape){48, 2100, 3});
        check_matmul_shape(c, l, (shape){32, 576, 67}); /* more than one token block */
        check_matmul_shape(c, l, (shape){16, 256, 150});
    }
    /* Rows so long that the scratch holds what few tokens bring, or no token's. */
    check_matmul_shape(c, l, (shape){16, 20000, 15});
    check_matmul_shape(c, l, (shape){16, 48000, 7});
    check_matmul_shape(c, l, (shape){16, 29200, 17});
}

/* ref against the plain numbers in double. */
static void truth_matmul_of(check *c, tg_layout l)
{
    bool is_quantized = tg_layout_rows[l].is_quantized;
    for (int i = 0; i < 60; i++) {
        map_kind wide = (map_kind)(i % MAP_KIND_COUNT);
        shape s = {1 + next_below(c, 40), 1 + next_below(c, 700), 1 + next_below(c, 3)};
        matrix w;
        tg_a8 a;
        const float *x;
        snprintf(c->what, sizeof c->what, "%d x %d, %d tokens, map %d", s.n_rows, s.n_cols,
                 s.n_tokens, wide);
        make_matrix(c, &w, l, s.n_rows, s.n_cols, 0, next_below(c, 6), false);
        make_activations(c, &a, &x, s, l, wide, 0, CALM);
        float *y = end_buffer(4, 4 * (size_t)(s.n_tokens * s.n_rows));
        run_matmul(c->ref, &w,
                   (tg_matmul){.n_tokens = s.n_tokens,
                               .a8 = &a,
                               .x = x,
                               .y = y,
                               .y_stride = s.n_rows,
                               .scratch = end_buffer(6, TG_MATMUL_SCRATCH_BYTES)});
        for (int32_t t = 0; t < s.n_tokens; t++) {
            tg_a8 q = tg_a8_from(&a, t);
            for (int32_t row = 0; row < s.n_rows; row++) {
                double want = 0, mass = 0;
                for (int64_t col = 0; col < s.n_cols; col++) {
                    size_t at = (size_t)row * (size_t)w.padded + (size_t)col;
                    double v = is_quantized ? (double)q.scale[col / 32] * get_code(&q, col)
                                            : (double)x[(int64_t)t * s.n_cols + col];
                    want += (w.factor[at] * w.code[at] + w.offset[at]) * v;
                    mass += (fabs(w.factor[at] * w.code[at]) + fabs(w.offset[at])) * fabs(v);
                }
                double n = is_quantized ? (double)w.padded / 32 + 4 : s.n_cols;
                if (a.n_outliers && l >= TG_LAYOUT_Q6_K) n *= 2;
                compare_bound(c, "y", (size_t)(t * s.n_rows + row), (double)y[t * s.n_rows + row],
                              want, n * 0x1p-24 * mass);
            }
        }
    }
}

/* Rounded once: the exact weight in double has at most 53 bits for these layouts. */
static void truth_embed_of(check *c, tg_layout l)
{
    for (int i = 0; i < 60; i++) {
        int32_t n_rows = 1 + next_below(c, 40), n_cols = 1 + next_below(c, 700);
        matrix w;
        snprintf(c->what, sizeof c->what, "%d x %d", n_rows, n_cols);
        make_matrix(c, &w, l, n_rows, n_cols, 0, next_below(c, 6), false);
        for (int32_t row = 0; row < n_rows; row++) {
            float mul = row % 2 ? next_normal(c) : 1.0f;
            float *y = end_buffer(4, 4 * (size_t)n_cols);
            tg_embed e = {.w = w.packed + (size_t)(row / 16) * w.tile_stride,
                          .lane = row % 16,
                          .n_cols = n_cols,
                          .mul = mul,
                          .y = y};
            c->k->embed[l](&e);
            for (int32_t col = 0; col < n_cols; col++) {
                size_t at = (size_t)row * (size_t)w.padded + (size_t)col;
                /* Not "+ 0" where nothing is added: that would turn -0 into +0. */
                double scaled = w.factor[at] * w.code[at];
                float want = (float)(has_min(l) ? scaled + w.offset[at] : scaled) * mul;
                compare_floats(c, "y", &y[col], &want, 1);
            }
        }
    }
}

#endif
