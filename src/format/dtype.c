/* SPDX-License-Identifier: Apache-2.0
 * dtype.c - the table of formats and the meaning of their bytes.
 *
 * Block layouts are those of ggml (ggml-common.h, checked against gguf-py 0.19). In the comments a
 * layout is written as its fields in order; f16 are 2 bytes, little-endian, and element e is the
 * e-th of the block in the row. */
#include "format/dtype.h"

typedef void unpack_fn(const uint8_t *src, float *dst, int64_t n_blocks);

static uint16_t get_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static float get_f16(const uint8_t *p)
{
    return tg_f16_to_f32(get_u16(p));
}

/* ---- plain numbers */

static void unpack_f32(const uint8_t *src, float *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void unpack_f16(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = get_f16(src + 2 * i);
}

static void unpack_bf16(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = tg_bf16_to_f32(get_u16(src + 2 * i));
}

float tg_f8_e4m3_to_f32(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80) << 24, exponent = (b >> 3) & 15u, man = b & 7u;
    if ((b & 0x7f) == 0x7f) return tg_f32_from_bits(sign | 0x7fc00000u);
    if (exponent == 0) return tg_f32_from_bits(sign | tg_f32_to_bits((float)man * 0x1p-9f));
    return tg_f32_from_bits(sign | (exponent + 120) << 23 | man << 20);
}

float tg_f8_e5m2_to_f32(uint8_t b)
{
    return tg_f16_to_f32((uint16_t)(b << 8)); /* the upper half of an f16 */
}

float tg_f8_e8m0_to_f32(uint8_t b)
{
    if (b == 255) return tg_f32_from_bits(0x7fc00000u);
    return tg_f32_from_bits(b ? (uint32_t)b << 23 : 0x00400000u); /* 2^-127 is subnormal */
}

#define UNPACK_NUMBERS(name, T, value)                                                             \
    static void unpack_##name(const uint8_t *src, float *dst, int64_t n)                           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T v;                                                                                   \
            memcpy(&v, src + (size_t)i * sizeof v, sizeof v);                                      \
            dst[i] = (value);                                                                      \
        }                                                                                          \
    }

UNPACK_NUMBERS(f8_e4m3, uint8_t, tg_f8_e4m3_to_f32(v))
UNPACK_NUMBERS(f8_e5m2, uint8_t, tg_f8_e5m2_to_f32(v))
UNPACK_NUMBERS(f8_e8m0, uint8_t, tg_f8_e8m0_to_f32(v))
UNPACK_NUMBERS(f64, double, (float)v)
UNPACK_NUMBERS(i8, int8_t, (float)v)
UNPACK_NUMBERS(i16, int16_t, (float)v)
UNPACK_NUMBERS(i32, int32_t, (float)v)
UNPACK_NUMBERS(i64, int64_t, (float)v)
UNPACK_NUMBERS(u8, uint8_t, (float)v)
UNPACK_NUMBERS(u16, uint16_t, (float)v)
UNPACK_NUMBERS(u32, uint32_t, (float)v)
UNPACK_NUMBERS(u64, uint64_t, (float)v)
UNPACK_NUMBERS(bool, uint8_t, v ? 1.0f : 0.0f)

/* ---- blocks of 32 */

/* f16 d, 16 bytes: element e < 16 is the low nibble of byte e, e + 16 the high one. d (q - 8) */
static void unpack_q4_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 18, dst += 32) {
        float d = get_f16(src);
        const uint8_t *q = src + 2;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((q[j] & 15) - 8);
            dst[j + 16] = d * (float)((q[j] >> 4) - 8);
        }
    }
}

/* f16 d, f16 m, nibbles as above. d q + m */
static void unpack_q4_1(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 20, dst += 32) {
        float d = get_f16(src), m = get_f16(src + 2);
        const uint8_t *q = src + 4;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(q[j] & 15) + m;
            dst[j + 16] = d * (float)(q[j] >> 4) + m;
        }
    }
}

/* The fifth bit of element e: bit e of four little-endian bytes, as 0 or 16. */
static int get_fifth_bit(const uint8_t *high, int e)
{
    return (high[e >> 3] >> (e & 7) & 1) << 4;
}

/* f16 d, 4 bytes of fifth bits, nibbles. d (q - 16) */
static void unpack_q5_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 22, dst += 32) {
        float d = get_f16(src);
        const uint8_t *high = src + 2, *q = src + 6;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(((q[j] & 15) | get_fifth_bit(high, j)) - 16);
            dst[j + 16] = d * (float)(((q[j] >> 4) | get_fifth_bit(high, j + 16)) - 16);
        }
    }
}

/* f16 d, f16 m, 4 bytes of fifth bits, nibbles. d q + m */
static void unpack_q5_1(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 24, dst += 32) {
        float d = get_f16(src), m = get_f16(src + 2);
        const uint8_t *high = src + 4, *q = src + 8;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((q[j] & 15) | get_fifth_bit(high, j)) + m;
            dst[j + 16] = d * (float)((q[j] >> 4) | get_fifth_bit(high, j + 16)) + m;
        }
    }
}

/* f16 d, 32 int8. d q */
static void unpack_q8_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 34, dst += 32) {
        float d = get_f16(src);
        for (int j = 0; j < 32; j++)
            dst[j] = d * (float)(int8_t)src[2 + j];
    }
}

/* The 16 levels of the non-linear 4-bit formats. */
static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* f16 d, nibbles. d level[q] */
static void unpack_iq4_nl(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 18, dst += 32) {
        float d = get_f16(src);
        const uint8_t *q = src + 2;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)iq4_levels[q[j] & 15];
            dst[j + 16] = d * (float)iq4_levels[q[j] >> 4];
        }
    }
}

/* Twice the e2m1 values of the OCP microscaling format, so that they are integers. */
static const int8_t fp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* One byte of exponent, nibbles. The scale is 2^(e - 128), half of e8m0's value because the levels
 * are doubled; 255 is not special here (it is in ggml neither). */
static void unpack_mxfp4(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 17, dst += 32) {
        uint32_t e = src[0];
        float d = tg_f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        const uint8_t *q = src + 1;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)fp4_levels[q[j] & 15];
            dst[j + 16] = d * (float)fp4_levels[q[j] >> 4];
        }
    }
}

/* ---- blocks of 256 */

/* 16 bytes of scales (low nibble scale, high nibble minimum, one per 16 elements), 64 bytes of
 * 2-bit codes, f16 d, f16 dmin. Codes: half h of the block (128 elements), quarter j of that (32
 * elements) is bits 2j of bytes 32h..32h+31. (d s) q - (dmin m) */
static void unpack_q2_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 84, dst += 256) {
        const uint8_t *q = src + 16;
        float d = get_f16(src + 80), dmin = get_f16(src + 82);
        for (int e = 0; e < 256; e++) {
            int h = e >> 7, j = e >> 5 & 3, code = q[32 * h + (e & 31)] >> (2 * j) & 3;
            float scale = d * (float)(src[e >> 4] & 15), min = dmin * (float)(src[e >> 4] >> 4);
            dst[e] = scale * (float)code - min;
        }
    }
}

/* 32 bytes of third bits, 64 bytes of 2-bit codes as above, 12 bytes of 6-bit scales, f16 d.
 * Scale s (one per 16 elements): its low 4 bits are a nibble of byte s & 7 (the high one from s = 8
 * on), its upper 2 bits are bits 2 (s / 4) of byte 8 + s % 4. The third bit of the 32 elements of
 * group g is bit g; where it is *not* set, 4 is subtracted. d (s - 32) q */
static void unpack_q3_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 110, dst += 256) {
        const uint8_t *high = src, *q = src + 32, *scales = src + 96;
        float d = get_f16(src + 108), scale = 0;
        for (int e = 0; e < 256; e++) {
            int s = e >> 4, g = e >> 5, l = e & 31;
            if ((e & 15) == 0) {
                int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
                int up = scales[8 + (s & 3)] >> (2 * (s >> 2)) & 3;
                scale = d * (float)((low | up << 4) - 32);
            }
            int code = (q[32 * (g >> 2) + l] >> (2 * (g & 3)) & 3) - (high[l] >> g & 1 ? 0 : 4);
            dst[e] = scale * (float)code;
        }
    }
}

/* The 12 bytes of Q4_K and Q5_K: scale and minimum, 6 bits each, of sub-block s in 0..7. For s < 4
 * they are the low 6 bits of bytes s and s + 4; later ones have 4 bits in byte s + 4 and borrow the
 * upper 2 bits of bytes s - 4 and s. */
static void get_k_scale(const uint8_t *p, int s, int *scale, int *min)
{
    if (s < 4) {
        *scale = p[s] & 63;
        *min = p[s + 4] & 63;
    } else {
        *scale = (p[s + 4] & 15) | (p[s - 4] >> 6) << 4;
        *min = (p[s + 4] >> 4) | (p[s] >> 6) << 4;
    }
}

/* f16 d, f16 dmin, 12 bytes of scales, 128 bytes of nibbles: sub-blocks 2g and 2g + 1 (32 elements
 * each) are the low and the high nibbles of bytes 32g..32g+31. (d s) q - (dmin m) */
static void unpack_q4_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 144) {
        float d = get_f16(src), dmin = get_f16(src + 2);
        for (int s = 0; s < 8; s++, dst += 32) {
            const uint8_t *q = src + 16 + (ptrdiff_t)32 * (s >> 1);
            int scale, min;
            get_k_scale(src + 4, s, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            for (int l = 0; l < 32; l++)
                dst[l] = ds * (float)(q[l] >> (4 * (s & 1)) & 15) - dm;
        }
    }
}

/* f16 d, f16 dmin, 12 bytes of scales, 32 bytes of fifth bits (bit s for sub-block s), nibbles. */
static void unpack_q5_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 176) {
        float d = get_f16(src), dmin = get_f16(src + 2);
        for (int s = 0; s < 8; s++, dst += 32) {
            const uint8_t *high = src + 16, *q = high + 32 + (ptrdiff_t)32 * (s >> 1);
            int scale, min;
            get_k_scale(src + 4, s, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            for (int l = 0; l < 32; l++) {
                int code = (q[l] >> (4 * (s & 1)) & 15) | (high[l] >> s & 1) << 4;
                dst[l] = ds * (float)code - dm;
            }
        }
    }
}

/* 128 bytes of low nibbles, 64 bytes of upper 2 bits, 16 int8 scales, f16 d. In half h, group j of
 * 32 elements: nibble j / 2 of bytes 64h + 32 (j & 1).., bits 2j of bytes 32h... (d s) (q - 32) */
static void unpack_q6_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 210, dst += 256) {
        float d = get_f16(src + 208);
        for (int e = 0; e < 256; e++) {
            int h = e >> 7, j = e >> 5 & 3, l = e & 31;
            int low = src[64 * h + 32 * (j & 1) + l] >> (4 * (j >> 1)) & 15;
            int up = src[128 + 32 * h + l] >> (2 * j) & 3;
            float scale = d * (float)(int8_t)src[192 + (e >> 4)];
            dst[e] = scale * (float)((low | up << 4) - 32);
        }
    }
}

/* f16 d, 16 upper bit pairs of scales, 4 bytes of their nibbles, 128 bytes of nibbles, 16 per
 * sub-block of 32. d (s - 32) level[q] */
static void unpack_iq4_xs(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 136) {
        float d = get_f16(src);
        int up = get_u16(src + 2);
        for (int s = 0; s < 8; s++, dst += 32) {
            const uint8_t *q = src + 8 + (ptrdiff_t)16 * s;
            int low = src[4 + (s >> 1)] >> (4 * (s & 1)) & 15;
            float scale = d * (float)((low | (up >> (2 * s) & 3) << 4) - 32);
            for (int l = 0; l < 16; l++) {
                dst[l] = scale * (float)iq4_levels[q[l] & 15];
                dst[l + 16] = scale * (float)iq4_levels[q[l] >> 4];
            }
        }
    }
}

/* f32 d, 32 int8. d q */
static void unpack_q8_f(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 36, dst += 32) {
        float d;
        memcpy(&d, src, sizeof d);
        for (int j = 0; j < 32; j++)
            dst[j] = d * (float)(int8_t)src[4 + j];
    }
}

/* ---- the table */

static const struct {
    tg_dtype_row row;
    unpack_fn *unpack;
} rows[] = {
    [TG_DTYPE_F32] = {{"f32", 0, "F32", 1, 4}, unpack_f32},
    [TG_DTYPE_F16] = {{"f16", 1, "F16", 1, 2}, unpack_f16},
    [TG_DTYPE_BF16] = {{"bf16", 30, "BF16", 1, 2}, unpack_bf16},
    [TG_DTYPE_Q4_0] = {{"q4_0", 2, NULL, 32, 18}, unpack_q4_0},
    [TG_DTYPE_Q4_1] = {{"q4_1", 3, NULL, 32, 20}, unpack_q4_1},
    [TG_DTYPE_Q5_0] = {{"q5_0", 6, NULL, 32, 22}, unpack_q5_0},
    [TG_DTYPE_Q5_1] = {{"q5_1", 7, NULL, 32, 24}, unpack_q5_1},
    [TG_DTYPE_Q8_0] = {{"q8_0", 8, NULL, 32, 34}, unpack_q8_0},
    [TG_DTYPE_Q2_K] = {{"q2_k", 10, NULL, 256, 84}, unpack_q2_k},
    [TG_DTYPE_Q3_K] = {{"q3_k", 11, NULL, 256, 110}, unpack_q3_k},
    [TG_DTYPE_Q4_K] = {{"q4_k", 12, NULL, 256, 144}, unpack_q4_k},
    [TG_DTYPE_Q5_K] = {{"q5_k", 13, NULL, 256, 176}, unpack_q5_k},
    [TG_DTYPE_Q6_K] = {{"q6_k", 14, NULL, 256, 210}, unpack_q6_k},
    [TG_DTYPE_IQ4_NL] = {{"iq4_nl", 20, NULL, 32, 18}, unpack_iq4_nl},
    [TG_DTYPE_IQ4_XS] = {{"iq4_xs", 23, NULL, 256, 136}, unpack_iq4_xs},
    [TG_DTYPE_MXFP4] = {{"mxfp4", 39, NULL, 32, 17}, unpack_mxfp4},
    [TG_DTYPE_Q8_F] = {{"q8_f", -1, NULL, 32, 36}, unpack_q8_f},
    [TG_DTYPE_F8_E4M3] = {{"f8_e4m3", -1, "F8_E4M3", 1, 1}, unpack_f8_e4m3},
    [TG_DTYPE_F8_E5M2] = {{"f8_e5m2", -1, "F8_E5M2", 1, 1}, unpack_f8_e5m2},
    [TG_DTYPE_F8_E8M0] = {{"f8_e8m0", -1, "F8_E8M0", 1, 1}, unpack_f8_e8m0},
    [TG_DTYPE_F64] = {{"f64", 28, "F64", 1, 8}, unpack_f64},
    [TG_DTYPE_I8] = {{"i8", 24, "I8", 1, 1}, unpack_i8},
    [TG_DTYPE_I16] = {{"i16", 25, "I16", 1, 2}, unpack_i16},
    [TG_DTYPE_I32] = {{"i32", 26, "I32", 1, 4}, unpack_i32},
    [TG_DTYPE_I64] = {{"i64", 27, "I64", 1, 8}, unpack_i64},
    [TG_DTYPE_U8] = {{"u8", -1, "U8", 1, 1}, unpack_u8},
    [TG_DTYPE_U16] = {{"u16", -1, "U16", 1, 2}, unpack_u16},
    [TG_DTYPE_U32] = {{"u32", -1, "U32", 1, 4}, unpack_u32},
    [TG_DTYPE_U64] = {{"u64", -1, "U64", 1, 8}, unpack_u64},
    [TG_DTYPE_BOOL] = {{"bool", -1, "BOOL", 1, 1}, unpack_bool},
};
_Static_assert(TG_COUNT(rows) == TG_DTYPE_COUNT, "a dtype has no row");

/* Numbers that ggml gave out and we do not read; the removed ones were layouts repacked for one
 * processor, which today's files never hold. */
static const struct {
    const char *name;
    uint32_t id;
    bool is_removed;
} foreign[] = {
    {"Q4_2", 4, true},        {"Q4_3", 5, true},        {"Q8_1", 9, false},
    {"Q8_K", 15, false},      {"IQ2_XXS", 16, false},   {"IQ2_XS", 17, false},
    {"IQ3_XXS", 18, false},   {"IQ1_S", 19, false},     {"IQ3_S", 21, false},
    {"IQ2_S", 22, false},     {"IQ1_M", 29, false},     {"Q4_0_4_4", 31, true},
    {"Q4_0_4_8", 32, true},   {"Q4_0_8_8", 33, true},   {"TQ1_0", 34, false},
    {"TQ2_0", 35, false},     {"IQ4_NL_4_4", 36, true}, {"IQ4_NL_4_8", 37, true},
    {"IQ4_NL_8_8", 38, true}, {"NVFP4", 40, false},     {"Q1_0", 41, false},
};

const tg_dtype_row *tg_dtype_get_row(tg_dtype t)
{
    TG_ASSERT((size_t)t < TG_DTYPE_COUNT);
    return &rows[t].row;
}

bool tg_dtype_find(tg_dtype *out, tg_str name)
{
    for (size_t t = 0; t < TG_DTYPE_COUNT; t++) {
        if (!tg_str_is(name, rows[t].row.name)) continue;
        *out = (tg_dtype)t;
        return true;
    }
    return false;
}

bool tg_dtype_find_gguf(tg_dtype *out, uint32_t id)
{
    for (size_t t = 0; t < TG_DTYPE_COUNT; t++) {
        if (rows[t].row.gguf_id < 0 || (uint32_t)rows[t].row.gguf_id != id) continue;
        *out = (tg_dtype)t;
        return true;
    }
    return false;
}

bool tg_dtype_find_safetensors(tg_dtype *out, tg_str name)
{
    for (size_t t = 0; t < TG_DTYPE_COUNT; t++) {
        if (!rows[t].row.safetensors || !tg_str_is(name, rows[t].row.safetensors)) continue;
        *out = (tg_dtype)t;
        return true;
    }
    return false;
}

const char *tg_dtype_find_foreign_gguf(uint32_t id, bool *is_removed)
{
    for (size_t i = 0; i < TG_COUNT(foreign); i++) {
        if (foreign[i].id != id) continue;
        *is_removed = foreign[i].is_removed;
        return foreign[i].name;
    }
    return NULL;
}

bool tg_dtype_size(tg_dtype t, int64_t n_elems, size_t *out)
{
    const tg_dtype_row *r = tg_dtype_get_row(t);
    if (n_elems < 0 || n_elems % r->block_elems != 0) return false;
    return tg_mul_size((size_t)(n_elems / r->block_elems), (size_t)r->block_bytes, out);
}

size_t tg_dtype_row_bytes(tg_dtype t, int64_t n_elems)
{
    size_t n = 0;
    bool is_whole = tg_dtype_size(t, n_elems, &n);
    TG_ASSERT(is_whole && "elements are no multiple of the block");
    return n;
}

void tg_dtype_unpack(tg_dtype t, const void *src, float *dst, int64_t n)
{
    const tg_dtype_row *r = tg_dtype_get_row(t);
    TG_ASSERT(n >= 0 && n % r->block_elems == 0);
    if (n > 0) rows[t].unpack(src, dst, n / r->block_elems);
}
