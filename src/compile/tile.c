/* SPDX-License-Identifier: Apache-2.0
 * tile.c - sixteen rows of a checkpoint's matrix, interleaved into one tile of a packed layout.
 *
 * Two halves that meet in one struct. A *reader* turns a piece of a source row into the terms in
 * which a layout writes it: codes without sign, scales, minima. A *writer* puts that piece into the
 * tile at its lane. So a source type needs a reader and no writer, and nothing is ever decoded
 * to floats and quantized again: what a file says is what the kernels see, to the bit.
 *
 *   q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q4_k q5_k q6_k   the layout of the same name
 *   q3_k    r16_q6_k   d (s - 32) code is d sc (q - 32) with q = code + 32
 *   iq4_nl  r16_q8_0   levels are int8
 *   iq4_xs  r16_q8_f   the scale d (s - 32) has 17 bits: exact in float32, not in f16
 *   mxfp4   r16_q8_f   a power of two that f16 cannot hold, and int8 levels
 *   q8_f    r16_q8_f   the same, with any scale
 *
 * Floats go into float layouts by rounding to nearest even, into q8_0 in the arithmetic of ggml's
 * reference quantization, so that a file quantized there and a model quantized here are the same
 * model, and into q4_0, q4_1 and q5_1 with the least error that quantize.c finds. */
#include "compile/compile.h"
#include "compile/quantize.h"
#include "format/prequant_matrix.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One row's quantum in the layout's terms. Which fields count, the layout says. */
typedef struct piece {
    uint8_t q[256];      /* codes as the layout stores them, by column */
    uint16_t d[2], m[2]; /* f16: by group of 32; K layouts: d[0] and m[0] are d and dmin */
    float scale[2];      /* q8_f: by group */
    uint8_t sc[16];      /* K layouts: by group of 32 or of 16 */
    uint8_t mn[16];
} piece;

/* Reads the columns [at, at + quantum) of a row that starts at `src` into a zeroed piece. */
typedef void read_fn(piece *p, const uint8_t *src, int64_t at, int64_t n_cols);

static uint16_t get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put_f32(uint8_t *p, float v)
{
    memcpy(p, &v, 4);
}

/* ---- readers: blocks of 32, two to a quantum; a row may end after the first */

/* Sixteen bytes of nibbles: element e is the low one of byte e, e + 16 the high one. */
static void split_nibbles(uint8_t *restrict q, const uint8_t *restrict src)
{
    for (int j = 0; j < 16; j++) {
        q[j] = src[j] & 15;
        q[j + 16] = src[j] >> 4;
    }
}

static void add_fifth_bits(uint8_t *q, const uint8_t *bits)
{
    for (int e = 0; e < 32; e++)
        q[e] = (uint8_t)(q[e] | (bits[e >> 3] >> (e & 7) & 1) << 4);
}

/* Groups of a quantum of 64 that the row has: the second may be padding. */
static size_t n_groups(int64_t at, int64_t n_cols)
{
    return at + 32 < n_cols ? 2 : 1;
}

static void read_q4_0(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 18;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 18) {
        p->d[g] = get_u16(src);
        split_nibbles(p->q + 32 * g, src + 2);
    }
}

static void read_q4_1(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 20;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 20) {
        p->d[g] = get_u16(src);
        p->m[g] = get_u16(src + 2);
        split_nibbles(p->q + 32 * g, src + 4);
    }
}

static void read_q5_0(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 22;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 22) {
        p->d[g] = get_u16(src);
        split_nibbles(p->q + 32 * g, src + 6);
        add_fifth_bits(p->q + 32 * g, src + 2);
    }
}

static void read_q5_1(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 24;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 24) {
        p->d[g] = get_u16(src);
        p->m[g] = get_u16(src + 2);
        split_nibbles(p->q + 32 * g, src + 8);
        add_fifth_bits(p->q + 32 * g, src + 4);
    }
}

/* int8 as code q + 128: flips the sign bit, so -128 is 0 like any other. */
static void read_q8_0(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 34;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 34) {
        p->d[g] = get_u16(src);
        for (size_t j = 0; j < 32; j++)
            p->q[32 * g + j] = src[2 + j] ^ 0x80;
    }
}

/* The levels of the non-linear 4-bit types (ggml's kvalues_iq4nl), as codes. */
static const uint8_t iq4_codes[16] = {128 - 127, 128 - 104, 128 - 83, 128 - 65, 128 - 49, 128 - 35,
                                      128 - 22,  128 - 10,  128 + 1,  128 + 13, 128 + 25, 128 + 38,
                                      128 + 53,  128 + 69,  128 + 89, 128 + 113};

/* Twice the values of e2m1, as codes; the sign is the top bit. */
static const uint8_t fp4_codes[16] = {128,     128 + 1,  128 + 2, 128 + 3, 128 + 4, 128 + 6,
                                      128 + 8, 128 + 12, 128,     128 - 1, 128 - 2, 128 - 3,
                                      128 - 4, 128 - 6,  128 - 8, 128 - 12};

static void look_up_nibbles(uint8_t *q, const uint8_t *src, const uint8_t *codes)
{
    for (int j = 0; j < 16; j++) {
        q[j] = codes[src[j] & 15];
        q[j + 16] = codes[src[j] >> 4];
    }
}

static void read_iq4_nl(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 18;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 18) {
        p->d[g] = get_u16(src);
        look_up_nibbles(p->q + 32 * g, src + 2, iq4_codes);
    }
}

static void read_mxfp4(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 17;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 17) {
        uint32_t e = src[0]; /* 2^(e - 128), because the levels are doubled; subnormal below 2 */
        p->scale[g] = tg_f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        look_up_nibbles(p->q + 32 * g, src + 1, fp4_codes);
    }
}

static void read_q8_f(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    src += at / 32 * 36;
    for (size_t g = 0; g < n_groups(at, n_cols); g++, src += 36) {
        memcpy(&p->scale[g], src, sizeof p->scale[g]);
        for (size_t j = 0; j < 32; j++)
            p->q[32 * g + j] = src[4 + j] ^ 0x80;
    }
}

/* ---- readers: blocks of 256; iq4_xs has quanta of 64 inside one */

/* 6-bit scales of 8 sub-blocks: nibbles in bytes 4..7, upper pairs in bytes 2..3. */
static void read_iq4_xs(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    (void)n_cols; /* blocks are whole */
    src += at / 256 * 136;
    float d = tg_f16_to_f32(get_u16(src));
    for (size_t g = 0; g < 2; g++) {
        size_t s = (size_t)(at % 256 / 32) + g;
        int low = src[4 + (s >> 1)] >> (4 * (s & 1)) & 15;
        int up = get_u16(src + 2) >> (2 * s) & 3;
        p->scale[g] = d * (float)((low | up << 4) - 32);
        look_up_nibbles(p->q + 32 * g, src + 8 + 16 * s, iq4_codes);
    }
}

/* 2-bit codes of a block: half h (128 elements), quarter j of it is bits 2j of bytes
 * 32h..32h+31. */
static int get_pair(const uint8_t *src, int e)
{
    return src[32 * (e >> 7) + (e & 31)] >> (2 * (e >> 5 & 3)) & 3;
}

/* Scales and minima of 16 sub-blocks are the nibbles of the first 16 bytes. */
static void read_q2_k(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    (void)n_cols;
    src += at / 256 * 84;
    p->d[0] = get_u16(src + 80);
    p->m[0] = get_u16(src + 82);
    for (int s = 0; s < 16; s++) {
        p->sc[s] = src[s] & 15;
        p->mn[s] = src[s] >> 4;
    }
    for (int e = 0; e < 256; e++)
        p->q[e] = (uint8_t)get_pair(src + 16, e);
}

/* Into q6_k: code = pair - 4 where the third bit is off, and q = code + 32; sc = s - 32 as int8. */
static void read_q3_k(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    (void)n_cols;
    src += at / 256 * 110;
    const uint8_t *scales = src + 96;
    p->d[0] = get_u16(src + 108);
    for (int s = 0; s < 16; s++) {
        int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
        int up = scales[8 + (s & 3)] >> (2 * (s >> 2)) & 3;
        p->sc[s] = (uint8_t)((low | up << 4) - 32);
    }
    for (int e = 0; e < 256; e++) {
        int third = src[e & 31] >> (e >> 5) & 1;
        p->q[e] = (uint8_t)(get_pair(src + 32, e) + (third ? 32 : 28));
    }
}

/* The 12 bytes of q4_k and q5_k: eight 6-bit scales and minima, widened to bytes. */
static void read_k_scales(piece *p, const uint8_t *src)
{
    for (int s = 0; s < 4; s++) {
        p->sc[s] = src[s] & 63;
        p->mn[s] = src[s + 4] & 63;
        p->sc[s + 4] = (uint8_t)((src[s + 8] & 15) | src[s] >> 6 << 4);
        p->mn[s + 4] = (uint8_t)(src[s + 8] >> 4 | src[s + 4] >> 6 << 4);
    }
}

/* Thirty-two bytes of nibbles: 32 codes in the low ones, the next 32 in the high ones. */
static void split_low_high(uint8_t *restrict q, const uint8_t *restrict src)
{
    for (int j = 0; j < 32; j++) {
        q[j] = src[j] & 15;
        q[j + 32] = src[j] >> 4;
    }
}

/* The fifth bits of 32 codes are bit `s` of 32 bytes. */
static void add_bit_plane(uint8_t *restrict q, const uint8_t *restrict src, int s)
{
    for (int j = 0; j < 32; j++)
        q[j] = (uint8_t)(q[j] | (src[j] >> s & 1) << 4);
}

static void read_q4_k(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    (void)n_cols;
    src += at / 256 * 144;
    p->d[0] = get_u16(src);
    p->m[0] = get_u16(src + 2);
    read_k_scales(p, src + 4);
    for (int part = 0; part < 4; part++)
        split_low_high(p->q + 64 * part, src + 16 + 32 * part);
}

static void read_q5_k(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    (void)n_cols;
    src += at / 256 * 176;
    p->d[0] = get_u16(src);
    p->m[0] = get_u16(src + 2);
    read_k_scales(p, src + 4);
    for (int part = 0; part < 4; part++)
        split_low_high(p->q + 64 * part, src + 48 + 32 * part);
    for (int s = 0; s < 8; s++)
        add_bit_plane(p->q + 32 * s, src + 16, s);
}

/* Low nibbles, then pairs, then 16 int8 scales: half h of the block, group j of 32 in it. */
static void read_q6_k(piece *p, const uint8_t *src, int64_t at, int64_t n_cols)
{
    (void)n_cols;
    src += at / 256 * 210;
    p->d[0] = get_u16(src + 208);
    memcpy(p->sc, src + 192, 16);
    for (int h = 0; h < 2; h++) {
        uint8_t *q = p->q + 128 * h;
        const uint8_t *low = src + 64 * h, *up = src + 128 + 32 * h;
        for (int l = 0; l < 64; l++) {
            q[l] = low[l] & 15;
            q[l + 64] = low[l] >> 4;
        }
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++)
                q[32 * j + l] = (uint8_t)(q[32 * j + l] | (up[l] >> (2 * j) & 3) << 4);
    }
}

/* ---- writers of planes; `q` are the 64 codes of one part, `lane` the row within the tile */

/* Codes of four columns of one row lie side by side in an operand, so words are moved. */
static uint32_t get_word(const uint8_t *q, size_t operand)
{
    uint32_t w;
    memcpy(&w, q + 4 * operand, 4);
    return w;
}

static void put_word(uint8_t *dst, size_t lane, uint32_t w)
{
    memcpy(dst + 4 * lane, &w, 4);
}

static uint8_t *write_bytes(uint8_t *dst, size_t lane, const uint8_t *q)
{
    for (size_t v = 0; v < 16; v++)
        put_word(dst + 64 * v, lane, get_word(q, v));
    return dst + 1024;
}

static uint8_t *write_nibbles(uint8_t *dst, size_t lane, const uint8_t *q)
{
    for (size_t l = 0; l < 8; l++) {
        uint32_t low = get_word(q, 2 * l) & 0x0f0f0f0fu;
        uint32_t high = get_word(q, 2 * l + 1) & 0x0f0f0f0fu;
        put_word(dst + 64 * l, lane, low | high << 4);
    }
    return dst + 512;
}

/* Bit 4 of every code: bit 4 lane + j of the operand's mask, which is half a byte of it. */
static uint8_t *write_bits(uint8_t *dst, size_t lane, const uint8_t *q)
{
    for (size_t v = 0; v < 16; v++) {
        /* the product moves bit 0 of byte j to bit 24 + j, and nothing else there */
        uint32_t half = (get_word(q, v) >> 4 & 0x01010101u) * 0x01020408u >> 24 & 15;
        dst[8 * v + (lane >> 1)] |= (uint8_t)(half << (4 * (lane & 1)));
    }
    return dst + 128;
}

/* Two bits of every code, from bit `from` on. */
static uint8_t *write_pairs(uint8_t *dst, size_t lane, const uint8_t *q, int from)
{
    for (size_t line = 0; line < 4; line++) {
        uint32_t w = 0;
        for (size_t t = 0; t < 4; t++)
            w |= (get_word(q, 4 * line + t) >> from & 0x03030303u) << (2 * t);
        put_word(dst + 64 * line, lane, w);
    }
    return dst + 256;
}

static uint8_t *write_f16_pair(uint8_t *dst, size_t lane, const uint16_t v[2])
{
    put_u16(dst + 2 * lane, v[0]);
    put_u16(dst + 32 + 2 * lane, v[1]);
    return dst + 64;
}

static uint8_t *write_scales(uint8_t *dst, size_t lane, const uint8_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[16 * i + lane] = v[i];
    return dst + 16 * n;
}

/* A quantum of a K layout: d and dmin, then four parts. */
static void write_k(tg_layout l, uint8_t *dst, size_t lane, const piece *p)
{
    put_u16(dst + 2 * lane, p->d[0]);
    put_u16(dst + 32 + 2 * lane, p->m[0]);
    dst += 64;
    for (size_t part = 0; part < 4; part++) {
        const uint8_t *q = p->q + 64 * part;
        bool has_sixteenths = l == TG_LAYOUT_Q6_K || l == TG_LAYOUT_Q2_K;
        size_t n = has_sixteenths ? 4 : 2;
        if (l != TG_LAYOUT_Q2_K) dst = write_nibbles(dst, lane, q);
        if (l == TG_LAYOUT_Q5_K) dst = write_bits(dst, lane, q);
        if (has_sixteenths) dst = write_pairs(dst, lane, q, l == TG_LAYOUT_Q6_K ? 4 : 0);
        dst = write_scales(dst, lane, p->sc + n * part, n);
        if (l != TG_LAYOUT_Q6_K) dst = write_scales(dst, lane, p->mn + n * part, n);
    }
}

/* A quantum of an integer layout of 64 columns. */
static void write_64(tg_layout l, uint8_t *dst, size_t lane, const piece *p)
{
    bool has_bytes = l == TG_LAYOUT_Q8_0 || l == TG_LAYOUT_Q8_F;
    dst = has_bytes ? write_bytes(dst, lane, p->q) : write_nibbles(dst, lane, p->q);
    if (l == TG_LAYOUT_Q5_0 || l == TG_LAYOUT_Q5_1) dst = write_bits(dst, lane, p->q);
    if (l == TG_LAYOUT_Q8_F) {
        put_f32(dst + 4 * lane, p->scale[0]);
        put_f32(dst + 64 + 4 * lane, p->scale[1]);
        return;
    }
    dst = write_f16_pair(dst, lane, p->d);
    if (l == TG_LAYOUT_Q4_1 || l == TG_LAYOUT_Q5_1) write_f16_pair(dst, lane, p->m);
}

/* ---- from a source type to the layout that holds it exactly */

static const struct {
    read_fn *read;
    tg_layout layout;
} exact[TG_DTYPE_COUNT] = {
    [TG_DTYPE_Q4_0] = {read_q4_0, TG_LAYOUT_Q4_0},
    [TG_DTYPE_Q4_1] = {read_q4_1, TG_LAYOUT_Q4_1},
    [TG_DTYPE_Q5_0] = {read_q5_0, TG_LAYOUT_Q5_0},
    [TG_DTYPE_Q5_1] = {read_q5_1, TG_LAYOUT_Q5_1},
    [TG_DTYPE_Q8_0] = {read_q8_0, TG_LAYOUT_Q8_0},
    [TG_DTYPE_Q2_K] = {read_q2_k, TG_LAYOUT_Q2_K},
    [TG_DTYPE_Q3_K] = {read_q3_k, TG_LAYOUT_Q6_K},
    [TG_DTYPE_Q4_K] = {read_q4_k, TG_LAYOUT_Q4_K},
    [TG_DTYPE_Q5_K] = {read_q5_k, TG_LAYOUT_Q5_K},
    [TG_DTYPE_Q6_K] = {read_q6_k, TG_LAYOUT_Q6_K},
    [TG_DTYPE_IQ4_NL] = {read_iq4_nl, TG_LAYOUT_Q8_0},
    [TG_DTYPE_IQ4_XS] = {read_iq4_xs, TG_LAYOUT_Q8_F},
    [TG_DTYPE_MXFP4] = {read_mxfp4, TG_LAYOUT_Q8_F},
    [TG_DTYPE_Q8_F] = {read_q8_f, TG_LAYOUT_Q8_F},
};

/* f64 is not among them: no model is published in it, and it would have to be rounded. */
static bool is_float(tg_dtype t)
{
    return t == TG_DTYPE_F32 || t == TG_DTYPE_F16 || t == TG_DTYPE_BF16;
}

tg_status tg_pack_choose_layout(tg_layout *out, const tg_tensor *t, tg_weights_mode mode,
                                bool is_vector, tg_err *e)
{
    static const tg_layout converted[] = {
        [TG_WEIGHTS_AUTO] = TG_LAYOUT_F32,  [TG_WEIGHTS_F32] = TG_LAYOUT_F32,
        [TG_WEIGHTS_BF16] = TG_LAYOUT_BF16, [TG_WEIGHTS_F16] = TG_LAYOUT_F16,
        [TG_WEIGHTS_Q8_0] = TG_LAYOUT_Q8_0, [TG_WEIGHTS_Q4_0] = TG_LAYOUT_Q4_0,
        [TG_WEIGHTS_Q4_1] = TG_LAYOUT_Q4_1, [TG_WEIGHTS_Q5_1] = TG_LAYOUT_Q5_1,
    };
    if (!is_float(t->dtype) && !exact[t->dtype].read)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: tensor '%.*s' has type %s, which this build cannot pack; it takes "
                       "f32, f16, bf16 and the block types q4_0 to q8_0, q2_k to q6_k, iq4_nl, "
                       "iq4_xs and mxfp4.",
                       t->file, (int)t->name.len, t->name.ptr, tg_dtype_get_name(t->dtype));
    if (is_vector && !is_float(t->dtype))
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: tensor '%.*s' is a vector of type %s; norms and biases are f32, f16 "
                       "or bf16.",
                       t->file, (int)t->name.len, t->name.ptr, tg_dtype_get_name(t->dtype));

    if (is_vector || mode == TG_WEIGHTS_F32)
        *out = TG_LAYOUT_F32;
    else if (!is_float(t->dtype))
        *out = exact[t->dtype].layout;
    else if (mode != TG_WEIGHTS_AUTO)
        *out = converted[mode];
    else if (t->dtype == TG_DTYPE_F16)
        *out = TG_LAYOUT_F16;
    else
        *out = t->dtype == TG_DTYPE_BF16 ? TG_LAYOUT_BF16 : TG_LAYOUT_F32;
    return TG_OK;
}

/* ---- reading rows as floats */

/* The row of the file that holds row `row` of the model. GGUF stores row i of the first half of a
 * rotary head at 2 i and row i of the second half at 2 i + 1. */
static int64_t find_source_row(const tg_row_order *o, int64_t row)
{
    if (o->fix == TG_WEIGHT_FIX_UNPERMUTE_Q || o->fix == TG_WEIGHT_FIX_UNPERMUTE_K) {
        int64_t i = row % o->head_dim, half = o->rotary_dim / 2;
        if (i < o->rotary_dim) row += (i < half ? 2 * i : 2 * (i - half) + 1) - i;
    }
    return o->run ? row / o->run * o->step + row % o->run : row;
}

/* Row and column as the file has them. A silent infinity would spoil every completion. */
static tg_status fail_value(const tg_tensor *t, tg_layout l, int64_t row, int64_t col, float v,
                            tg_err *e)
{
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: tensor '%.*s' holds %g at row %" PRId64 ", column %" PRId64
                   ", which %s cannot hold; export with another --weights (auto and f32 keep it).",
                   t->file, (int)t->name.len, t->name.ptr, (double)v, row, col,
                   tg_layout_rows[l].name);
}

/* Values of the row that starts at `src` from column `at` on; at most n, fewer at the row's end
 * (the rest is +0). Block types: at and n are multiples of the block. */
static int unpack_columns(const tg_tensor *t, const uint8_t *src, int64_t at, int n, float *v)
{
    int64_t left = t->dims[1] - at;
    int take = left < n ? (int)left : n;
    tg_dtype_unpack(t->dtype, src + tg_dtype_row_bytes(t->dtype, at), v, take);
    for (int i = take; i < n; i++)
        v[i] = 0;
    return take;
}

/* ---- float layouts */

/* Each is one rounding to nearest even; false when a finite number became infinite. */
static bool write_float(tg_layout l, uint8_t *quanta, int64_t col, size_t lane, float v)
{
    if (l == TG_LAYOUT_F32) {
        put_f32(quanta + 64 * col + 4 * lane, v);
        return true;
    }
    if (l == TG_LAYOUT_F16) {
        uint16_t h = tg_f32_to_f16(v);
        put_u16(quanta + 32 * col + 2 * lane, h);
        return isinf(v) || (h & 0x7fff) != 0x7c00;
    }
    uint16_t h = tg_f32_to_bf16(v); /* column pairs: even in the low half */
    put_u16(quanta + 64 * (col / 2) + 4 * lane + 2 * (col & 1), h);
    return isinf(v) || (h & 0x7fff) != 0x7f80;
}

static tg_status pack_float_row(tg_layout l, const tg_tensor *t, const uint8_t *src, int64_t row,
                                size_t lane, uint8_t *dst, tg_err *e)
{
    float v[TG_MAX_BLOCK_ELEMS];
    for (int64_t at = 0; at < t->dims[1]; at += TG_MAX_BLOCK_ELEMS) {
        int n = unpack_columns(t, src, at, TG_MAX_BLOCK_ELEMS, v);
        for (int i = 0; i < n; i++)
            if (!write_float(l, dst, at + i, lane, v[i]))
                return fail_value(t, l, row, at + i, v[i], e);
    }
    return TG_OK;
}

/* ---- quantizing floats: ggml's quantize_row_q8_0_ref in float32. Where its 1 / d overflows (d
 * below 2^-128) the f16 scale is 0 anyway, and the codes are those of zero. */

static bool quantize_q8_0(uint8_t *q, uint16_t *d16, const float *x)
{
    float amax = 0;
    for (int j = 0; j < 32; j++) {
        if (!isfinite(x[j])) return false;
        if (fabsf(x[j]) > amax) amax = fabsf(x[j]);
    }
    float d = amax / 127, inv = d > 0 ? 1.0f / d : 0;
    if (isinf(inv)) inv = 0;
    *d16 = tg_f32_to_f16(d);
    for (int j = 0; j < 32; j++)
        q[j] = (uint8_t)((int)roundf(x[j] * inv) + 128);
    return *d16 != 0x7c00;
}

/* Group g of the piece from its 32 numbers: n of the row, then zeros. `w` are the weights of their
 * errors, or NULL. */
static bool quantize_group(piece *p, tg_layout l, size_t g, const float *x, const float *w, int n)
{
    uint8_t *q = p->q + 32 * g;
    if (l == TG_LAYOUT_Q8_0) return quantize_q8_0(q, &p->d[g], x);
    if (l == TG_LAYOUT_Q4_0) return tg_quantize_q4_0(q, &p->d[g], x, w);
    return tg_quantize_affine(q, &p->d[g], &p->m[g], x, w, n, l == TG_LAYOUT_Q4_1 ? 15 : 31);
}

/* Columns beyond the row's end inside its last group are zeros, code 128 or 8, where a layout has
 * no minimum; where it has one they are what code 0 means: activations are zeros there. */
static tg_status quantize_piece(piece *p, tg_layout l, const tg_tensor *t, const uint8_t *src,
                                int64_t row, int64_t at, const float *importance, tg_err *e)
{
    for (size_t g = 0; g < n_groups(at, t->dims[1]); g++) {
        float v[32];
        int64_t first = at + (int64_t)(32 * g);
        int n = unpack_columns(t, src, first, 32, v);
        if (quantize_group(p, l, g, v, importance ? importance + first : NULL, n)) continue;
        int worst = 0; /* what to name: a NaN, else the largest */
        for (int j = 0; j < 32; j++)
            if (isnan(v[j]) || fabsf(v[j]) > fabsf(v[worst])) worst = j;
        return fail_value(t, l, row, first + worst, v[worst], e);
    }
    return TG_OK;
}

/* Quantum by quantum, a fresh piece each: what a reader leaves alone is zero, which is padding. */
static tg_status pack_integer_row(tg_layout l, const tg_tensor *t, const uint8_t *src, int64_t row,
                                  size_t lane, const float *importance, uint8_t *dst, tg_err *e)
{
    const tg_layout_row *lay = &tg_layout_rows[l];
    for (int64_t at = 0; at < t->dims[1]; at += lay->quantum_cols, dst += lay->quantum_bytes) {
        piece p = {0};
        if (exact[t->dtype].read)
            exact[t->dtype].read(&p, src, at, t->dims[1]);
        else
            TG_TRY(quantize_piece(&p, l, t, src, row, at, importance, e));
        if (lay->quantum_cols == 256)
            write_k(l, dst, lane, &p);
        else
            write_64(l, dst, lane, &p);
    }
    return TG_OK;
}

tg_status tg_pack_tile(tg_layout l, const tg_tensor *t, const tg_row_order *order, int64_t tile,
                       const float *importance, uint8_t *dst, tg_err *e)
{
    TG_ASSERT(t->n_dims == 2 && order->fix != TG_WEIGHT_FIX_ADD_ONE);
    TG_ASSERT(is_float(t->dtype)
                  ? l == TG_LAYOUT_F32 || l == TG_LAYOUT_F16 || l == TG_LAYOUT_BF16 ||
                        l == TG_LAYOUT_Q8_0 || l == TG_LAYOUT_Q4_0 || l == TG_LAYOUT_Q4_1 ||
                        l == TG_LAYOUT_Q5_1
                  : exact[t->dtype].read && (l == TG_LAYOUT_F32 || l == exact[t->dtype].layout));
    size_t row_bytes = tg_dtype_row_bytes(t->dtype, t->dims[1]);
    uint8_t *made = t->prequant ? tg_mem_new(row_bytes) : NULL;
    if (t->prequant && !made) return tg_fail_nomem(e, row_bytes, "a row of weights");

    tg_status s = TG_OK;
    memset(dst, 0, tg_layout_tile_bytes(l, t->dims[1]));
    for (size_t lane = 0; lane < TG_TILE_ROWS && s == TG_OK; lane++) {
        int64_t row = tile * TG_TILE_ROWS + (int64_t)lane;
        if (row >= t->dims[0]) break;
        int64_t source = find_source_row(order, row);
        const uint8_t *src = made;
        if (made)
            tg_prequant_matrix_read(t, source, made);
        else
            src = (const uint8_t *)t->data + (size_t)source * row_bytes;
        s = tg_layout_rows[l].is_quantized
                ? pack_integer_row(l, t, src, source, lane, importance, dst, e)
                : pack_float_row(l, t, src, source, lane, dst, e);
    }
    tg_mem_free(made);
    return s;
}

void tg_pack_vector(const tg_tensor *t, const tg_row_order *order, float *dst)
{
    TG_ASSERT(t->n_dims == 1 && is_float(t->dtype));
    const uint8_t *src = t->data;
    size_t one = tg_dtype_row_bytes(t->dtype, 1);
    for (int64_t i = 0; i < t->dims[0]; i++) {
        tg_dtype_unpack(t->dtype, src + (size_t)find_source_row(order, i) * one, dst + i, 1);
        /* In float32, as transformers does it, whatever the file's type. */
        if (order->fix == TG_WEIGHT_FIX_ADD_ONE) dst[i] = 1.0f + dst[i];
    }
}
