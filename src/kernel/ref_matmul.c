/* SPDX-License-Identifier: Apache-2.0
 * ref_matmul.c - the definition of the matrix products over packed weights.
 *
 * A group of 16 rows x 32 columns is unpacked once into plain integers and multiplied with every
 * token; the two float chains of each output wait in the scratch between groups. Loops run over
 * whole operands of 64 bytes in memory order, which any compiler can vectorise: the integer sums
 * are exact, so their order is free, and only the chains have an order. */
#include "kernel/form.h"
#include "kernel/ref.h"

enum { OPERANDS = TG_GROUP_COLS / 4, OPERAND_BYTES = 4 * TG_TILE_ROWS };

/* One group of one tile in the terms of contract 6. */
typedef struct group {
    int16_t w[OPERANDS][OPERAND_BYTES]; /* q - zero; number 4 r + j = row r, column 4 v + j */
    float d[TG_TILE_ROWS];              /* D, without the per-16 scales */
    float m[TG_TILE_ROWS];              /* M, or -dmin with per-16 minima */
    int32_t sc[2][TG_TILE_ROWS];
    int32_t mn[2][TG_TILE_ROWS];
} group;

TG_INLINE void unpack_codes(tg_layout l, const uint8_t *part, int g, group *out)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    for (int v = 0; v < OPERANDS; v++) {
        int o = g * OPERANDS + v; /* operand within the part */
        int16_t *w = out->w[v];
        for (int i = 0; i < OPERAND_BYTES; i++)
            w[i] = (int16_t)-f->zero;
        if (f->nibbles >= 0)
            for (int i = 0; i < OPERAND_BYTES; i++)
                w[i] = (int16_t)(w[i] + (part[f->nibbles + 64 * (o / 2) + i] >> 4 * (o % 2) & 15));
        if (f->bits >= 0)
            for (int i = 0; i < OPERAND_BYTES; i++)
                w[i] = (int16_t)(w[i] + (part[f->bits + 8 * o + i / 8] >> i % 8 & 1) * 16);
        if (f->pairs >= 0)
            for (int i = 0; i < OPERAND_BYTES; i++)
                w[i] = (int16_t)(w[i] + (part[f->pairs + 64 * (o / 4) + i] >> 2 * (o % 4) & 3) *
                                            (f->nibbles >= 0 ? 16 : 1));
        if (f->bytes >= 0)
            for (int i = 0; i < OPERAND_BYTES; i++)
                w[i] = (int16_t)(w[i] + part[f->bytes + 64 * o + i]);
    }
}

TG_INLINE void unpack_scales(tg_layout l, const uint8_t *head, const uint8_t *part, int g,
                             group *out)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    for (size_t r = 0; r < TG_TILE_ROWS; r++) {
        size_t at = (size_t)g * TG_TILE_ROWS + r;
        if (!f->is_k) {
            out->d[r] =
                l == TG_LAYOUT_Q8_F ? tg_load_f32(part + f->d, at) : tg_load_f16(part + f->d, at);
            out->m[r] = f->m >= 0 ? tg_load_f16(part + f->m, at) : 0;
            continue;
        }
        out->d[r] = tg_load_f16(head, r);
        out->m[r] = -tg_load_f16(head, TG_TILE_ROWS + r);
        if (!f->is_per16) {
            out->d[r] *= (float)part[f->sc + (int)at];
            out->m[r] *= (float)part[f->mn + (int)at];
            continue;
        }
        for (int s = 0; s < 2; s++) {
            int i = (2 * g + s) * TG_TILE_ROWS + (int)r;
            uint8_t sc = part[f->sc + i];
            out->sc[s][r] = l == TG_LAYOUT_Q6_K ? (int8_t)sc : sc;
            out->mn[s][r] = f->mn >= 0 ? part[f->mn + i] : 0;
        }
    }
}

/* dot[r] = sum over operands [first, first + n) of one plane's codes times the weights. */
static void dot_rows(const group *w, const int8_t *x, int first, int n, int32_t dot[TG_TILE_ROWS])
{
    int32_t sum[OPERAND_BYTES] = {0};
    for (int v = first; v < first + n; v++) {
        int16_t xs[OPERAND_BYTES]; /* the operand's four codes beside each row */
        for (int r = 0; r < TG_TILE_ROWS; r++)
            for (int j = 0; j < 4; j++)
                xs[4 * r + j] = x[4 * v + j];
        for (int i = 0; i < OPERAND_BYTES; i++)
            sum[i] += w->w[v][i] * xs[i];
    }
    for (int r = 0; r < TG_TILE_ROWS; r++)
        dot[r] = sum[4 * r] + sum[4 * r + 1] + sum[4 * r + 2] + sum[4 * r + 3];
}

/* The same for both planes: 256 hi + lo; lo is NULL in narrow groups. */
static void dot_planes(const group *w, const int8_t *hi, const int8_t *lo, int first, int n,
                       int32_t dot[TG_TILE_ROWS])
{
    dot_rows(w, hi, first, n, dot);
    if (!lo) return;
    int32_t low[TG_TILE_ROWS];
    dot_rows(w, lo, first, n, low);
    for (int r = 0; r < TG_TILE_ROWS; r++)
        dot[r] = 256 * dot[r] + low[r];
}

/* One step of both chains of 16 outputs: contract 6. `x` is one token's row, g the group in it. */
TG_INLINE void step(tg_layout l, const group *w, const tg_a8 *x, int64_t g, float *acc, float *min)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    int32_t dot[2][TG_TILE_ROWS];
    const int8_t *hi = x->hi + g * TG_GROUP_COLS;
    const int8_t *lo =
        x->outliers && x->outliers[g] >= 0 ? x->lo + x->outliers[g] * TG_GROUP_COLS : NULL;
    float scale = x->scale[g];
    if (!f->is_per16) {
        dot_planes(w, hi, lo, 0, OPERANDS, dot[0]);
        for (int r = 0; r < TG_TILE_ROWS; r++)
            acc[r] = fmaf((float)dot[0][r], w->d[r] * scale, acc[r]);
    } else {
        dot_planes(w, hi, lo, 0, OPERANDS / 2, dot[0]);
        dot_planes(w, hi, lo, OPERANDS / 2, OPERANDS / 2, dot[1]);
        for (int r = 0; r < TG_TILE_ROWS; r++) {
            if (lo) {
                acc[r] = fmaf((float)dot[0][r] * (float)w->sc[0][r], w->d[r] * scale, acc[r]);
                acc[r] = fmaf((float)dot[1][r] * (float)w->sc[1][r], w->d[r] * scale, acc[r]);
            } else {
                int32_t i = w->sc[0][r] * dot[0][r] + w->sc[1][r] * dot[1][r];
                acc[r] = fmaf((float)i, w->d[r] * scale, acc[r]);
            }
        }
    }
    if (!tg_form_has_min(l)) return;
    int32_t first = x->half[g], second = x->sum[g] - first;
    for (int r = 0; r < TG_TILE_ROWS; r++) {
        if (f->is_per16) {
            int32_t i = w->mn[0][r] * first + w->mn[1][r] * second;
            min[r] = fmaf((float)i, w->m[r] * scale, min[r]);
        } else {
            min[r] = fmaf(w->m[r], x->ssum[g], min[r]);
        }
    }
}

/* Contract 8 for the rows of one tile and token that exist. */
static void store_tile(const tg_matmul *m, int32_t tile, int32_t token, const float *dot)
{
    int32_t row = tile * TG_TILE_ROWS, n = TG_MIN(TG_TILE_ROWS, m->n_rows - row);
    float *y = m->y + token * m->y_stride + row;
    for (int32_t r = 0; r < n; r++) {
        float v = dot[r];
        if (m->bias) v = v + m->bias[row + r];
        y[r] = m->is_add ? y[r] + v : v;
    }
}

/* Both chains of a block of tokens must fit the scratch. */
typedef struct chains {
    float acc[TG_TILE_ROWS], min[TG_TILE_ROWS];
} chains;

enum { BLOCK_TOKENS = TG_MATMUL_SCRATCH_BYTES / sizeof(chains) };

TG_INLINE void matmul_quantized(const tg_matmul *m, tg_layout l)
{
    int64_t n_parts = tg_layout_padded_cols(l, m->n_cols) / TG_PART_COLS;
    chains *c = m->scratch;
    for (int32_t from = 0; from < m->n_tokens; from += BLOCK_TOKENS) {
        int32_t n = TG_MIN(m->n_tokens - from, (int32_t)BLOCK_TOKENS);
        for (int32_t tile = 0; tile < m->n_tiles; tile++) {
            const uint8_t *w = m->w + (size_t)tile * m->tile_stride;
            memset(c, 0, (size_t)n * sizeof *c);
            for (int64_t i = 0; i < 2 * n_parts; i++) {
                const uint8_t *head, *part = tg_form_part(l, w, i / 2, &head);
                group unpacked;
                unpack_codes(l, part, (int)(i % 2), &unpacked);
                unpack_scales(l, head, part, (int)(i % 2), &unpacked);
                for (int32_t t = 0; t < n; t++) {
                    tg_a8 x = tg_a8_from(m->a8, from + t);
                    step(l, &unpacked, &x, i, c[t].acc, c[t].min);
                }
            }
            for (int32_t t = 0; t < n; t++) {
                for (int r = 0; r < TG_TILE_ROWS && tg_form_has_min(l); r++)
                    c[t].acc[r] = c[t].acc[r] + c[t].min[r];
                store_tile(m, tile, from + t, c[t].acc);
            }
        }
    }
}

/* The 16 weights of column c. */
TG_INLINE void load_column(tg_layout l, const uint8_t *tile, size_t c, float w[TG_TILE_ROWS])
{
    for (size_t r = 0; r < TG_TILE_ROWS; r++) {
        if (l == TG_LAYOUT_F32) w[r] = tg_load_f32(tile, c * TG_TILE_ROWS + r);
        if (l == TG_LAYOUT_F16) w[r] = tg_load_f16(tile, c * TG_TILE_ROWS + r);
        if (l == TG_LAYOUT_BF16) {
            uint16_t b;
            memcpy(&b, tile + c / 2 * 64 + 4 * r + 2 * (c % 2), sizeof b);
            w[r] = tg_f32_from_bits((uint32_t)b << 16);
        }
    }
}

TG_INLINE void matmul_float(const tg_matmul *m, tg_layout l)
{
    for (int32_t tile = 0; tile < m->n_tiles; tile++) {
        const uint8_t *tile_w = m->w + (size_t)tile * m->tile_stride;
        for (int32_t t = 0; t < m->n_tokens; t++) {
            const float *x = m->x + t * m->x_stride;
            float acc[TG_TILE_ROWS] = {0};
            for (int32_t c = 0; c < m->n_cols; c++) {
                float w[TG_TILE_ROWS];
                load_column(l, tile_w, (size_t)c, w);
                for (int r = 0; r < TG_TILE_ROWS; r++)
                    acc[r] = fmaf(w[r], x[c], acc[r]);
            }
            store_tile(m, tile, t, acc);
        }
    }
}

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
    matmul_quantized(m, TG_LAYOUT_Q4_0);
}

static void matmul_q4_1(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q4_1);
}

static void matmul_q5_0(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q5_0);
}

static void matmul_q5_1(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q5_1);
}

static void matmul_q8_0(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q8_0);
}

static void matmul_q8_f(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q8_F);
}

static void matmul_q4_k(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q4_K);
}

static void matmul_q5_k(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q5_K);
}

static void matmul_q6_k(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q6_K);
}

static void matmul_q2_k(const tg_matmul *m)
{
    matmul_quantized(m, TG_LAYOUT_Q2_K);
}

tg_matmul_fn *const tg_ref_matmul[TG_LAYOUT_COUNT] = {
    [TG_LAYOUT_F32] = matmul_f32,   [TG_LAYOUT_F16] = matmul_f16,   [TG_LAYOUT_BF16] = matmul_bf16,
    [TG_LAYOUT_Q4_0] = matmul_q4_0, [TG_LAYOUT_Q4_1] = matmul_q4_1, [TG_LAYOUT_Q5_0] = matmul_q5_0,
    [TG_LAYOUT_Q5_1] = matmul_q5_1, [TG_LAYOUT_Q8_0] = matmul_q8_0, [TG_LAYOUT_Q8_F] = matmul_q8_f,
    [TG_LAYOUT_Q4_K] = matmul_q4_k, [TG_LAYOUT_Q5_K] = matmul_q5_k, [TG_LAYOUT_Q6_K] = matmul_q6_k,
    [TG_LAYOUT_Q2_K] = matmul_q2_k,
};
