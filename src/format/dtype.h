/* SPDX-License-Identifier: Apache-2.0
 * dtype.h - the number formats of checkpoints, one row each, and their exact values.
 *
 * Two families share one enum: plain numbers (a block of one element) and ggml's block formats,
 * where 32 or 256 consecutive elements of a row share scales. A row of the table says what a format
 * is called in each kind of file and how large its blocks are; tg_dtype_unpack says what the bytes
 * mean. The values are those of ggml's reference dequantization, to the bit, in its order of
 * operations and without fused multiply-add.
 *
 * Bytes in a file have no alignment that we may rely on: everything here reads byte-wise. */
#ifndef TG_FORMAT_DTYPE_H
#define TG_FORMAT_DTYPE_H

#include "base/str.h"

#include <string.h>

typedef enum tg_dtype {
    TG_DTYPE_F32,
    TG_DTYPE_F16,
    TG_DTYPE_BF16,
    TG_DTYPE_Q4_0,
    TG_DTYPE_Q4_1,
    TG_DTYPE_Q5_0,
    TG_DTYPE_Q5_1,
    TG_DTYPE_Q8_0,
    TG_DTYPE_Q2_K,
    TG_DTYPE_Q3_K,
    TG_DTYPE_Q4_K,
    TG_DTYPE_Q5_K,
    TG_DTYPE_Q6_K,
    TG_DTYPE_IQ4_NL,
    TG_DTYPE_IQ4_XS,
    TG_DTYPE_MXFP4,
    TG_DTYPE_Q8_F,    /* of no file: prequant_matrix.h makes it of int8 whose scales exceed f16 */
    TG_DTYPE_F8_E4M3, /* the "fn" form: no infinity, 0x7f and 0xff are NaN */
    TG_DTYPE_F8_E5M2,
    TG_DTYPE_F8_E8M0, /* a power of two, used as a scale */
    TG_DTYPE_F64,
    TG_DTYPE_I8,
    TG_DTYPE_I16,
    TG_DTYPE_I32,
    TG_DTYPE_I64,
    TG_DTYPE_U8,
    TG_DTYPE_U16,
    TG_DTYPE_U32,
    TG_DTYPE_U64,
    TG_DTYPE_BOOL,
    TG_DTYPE_COUNT
} tg_dtype;

enum { TG_MAX_BLOCK_ELEMS = 256 };

typedef struct tg_dtype_row {
    const char *name;        /* ours, in messages, dumps and the artifact: "q4_k" */
    int32_t gguf_id;         /* number in a GGUF tensor entry; -1: not found there */
    const char *safetensors; /* name in a safetensors header; NULL: not found there */
    int32_t block_elems;
    int32_t block_bytes;
} tg_dtype_row;

const tg_dtype_row *tg_dtype_get_row(tg_dtype t);

static inline const char *tg_dtype_get_name(tg_dtype t)
{
    return tg_dtype_get_row(t)->name;
}

static inline bool tg_dtype_is_block(tg_dtype t)
{
    return tg_dtype_get_row(t)->block_elems > 1;
}

/* False when no row has that number or name; *out is then untouched. */
bool tg_dtype_find(tg_dtype *out, tg_str name);
bool tg_dtype_find_gguf(tg_dtype *out, uint32_t id);
bool tg_dtype_find_safetensors(tg_dtype *out, tg_str name);

/* The name of a GGUF type number that has no row here ("IQ2_XXS"), and whether it was withdrawn
 * from the format; NULL for a number that was never given out. */
const char *tg_dtype_find_foreign_gguf(uint32_t id, bool *is_removed);

/* Bytes of n_elems elements; false when n_elems is negative, no multiple of the block, or the
 * bytes do not fit a size_t. For numbers from files. */
bool tg_dtype_size(tg_dtype t, int64_t n_elems, size_t *out);
/* The same for numbers that were checked: anything else is our mistake and aborts. */
size_t tg_dtype_row_bytes(tg_dtype t, int64_t n_elems);

/* dst[0..n) = the values of n elements, n a multiple of the block. Floats and blocks are exact;
 * 32- and 64-bit integers and f64 round to nearest. `src` may have any alignment. */
void tg_dtype_unpack(tg_dtype t, const void *src, float *dst, int64_t n);

/* ---- single numbers. NaNs keep sign and payload and become quiet, as the processors' own
 * conversion instructions do, so that a tier may use those and give the same bits. */

static inline uint32_t tg_f32_to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float tg_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float tg_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exponent == 31)
        return tg_f32_from_bits(sign | 0x7f800000u | man << 13 | (man ? 0x400000u : 0));
    if (exponent == 0) /* subnormal: man * 2^-24, exact */
        return tg_f32_from_bits(sign | tg_f32_to_bits((float)man * 0x1p-24f));
    return tg_f32_from_bits(sign | (exponent + 112) << 23 | man << 13);
}

/* To nearest, ties to even; from 65520 on infinity. */
static inline uint16_t tg_f32_to_f16(float f)
{
    uint32_t u = tg_f32_to_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14; numbers in [0.5, 1) are 2^-24 apart, so + 0.5 rounds */
        return (uint16_t)(sign | (tg_f32_to_bits(tg_f32_from_bits(a) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13);
}

static inline float tg_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    return tg_f32_from_bits((u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : u);
}

/* To nearest, ties to even. */
static inline uint16_t tg_f32_to_bf16(float f)
{
    uint32_t u = tg_f32_to_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

float tg_f8_e4m3_to_f32(uint8_t b);
float tg_f8_e5m2_to_f32(uint8_t b);
float tg_f8_e8m0_to_f32(uint8_t b); /* 2^(b - 127); 255 is NaN */

#endif
