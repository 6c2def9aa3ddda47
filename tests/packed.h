/* SPDX-License-Identifier: Apache-2.0
 * packed.h - reads one number of a packed matrix, naively, from the drawing in format/layout.h.
 *
 * For tests: every call finds its bits from scratch. Shares nothing with the packer or the kernels
 * but the names of the layouts. */
#ifndef TG_TESTS_PACKED_H
#define TG_TESTS_PACKED_H

#include "format/dtype.h"
#include "format/layout.h"

static inline float packed_f16(const uint8_t *p)
{
    return tg_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static inline float packed_f32(const uint8_t *p)
{
    float f;
    memcpy(&f, p, 4);
    return f;
}

/* Column c (0..63) of lane r in the planes that start at p. */
static inline int packed_byte(const uint8_t *p, int r, int c)
{
    return p[64 * (c / 4) + 4 * r + c % 4];
}

static inline int packed_nibble(const uint8_t *p, int r, int c)
{
    int operand = c / 4, byte = p[64 * (operand / 2) + 4 * r + c % 4];
    return operand % 2 ? byte >> 4 : byte & 15;
}

static inline int packed_bit(const uint8_t *p, int r, int c)
{
    uint64_t mask;
    memcpy(&mask, p + 8 * (c / 4), 8);
    return (int)(mask >> (4 * r + c % 4) & 1);
}

static inline int packed_pair(const uint8_t *p, int r, int c)
{
    int operand = c / 4;
    return p[64 * (operand / 4) + 4 * r + c % 4] >> (2 * (operand % 4)) & 3;
}

/* One number of a quantum of 64 columns. */
static inline float packed_get_64(tg_layout l, const uint8_t *p, int r, int c)
{
    int g = c / 32;
    switch ((int)l) {
    case TG_LAYOUT_Q4_0:
        return packed_f16(p + 512 + 32 * g + 2 * r) * (float)(packed_nibble(p, r, c) - 8);
    case TG_LAYOUT_Q4_1:
        return packed_f16(p + 512 + 32 * g + 2 * r) * (float)packed_nibble(p, r, c) +
               packed_f16(p + 576 + 32 * g + 2 * r);
    case TG_LAYOUT_Q5_0:
        return packed_f16(p + 640 + 32 * g + 2 * r) *
               (float)(packed_nibble(p, r, c) + 16 * packed_bit(p + 512, r, c) - 16);
    case TG_LAYOUT_Q5_1:
        return packed_f16(p + 640 + 32 * g + 2 * r) *
                   (float)(packed_nibble(p, r, c) + 16 * packed_bit(p + 512, r, c)) +
               packed_f16(p + 704 + 32 * g + 2 * r);
    case TG_LAYOUT_Q8_0:
        return packed_f16(p + 1024 + 32 * g + 2 * r) * (float)(packed_byte(p, r, c) - 128);
    default: /* TG_LAYOUT_Q8_F */
        return packed_f32(p + 1024 + 64 * g + 4 * r) * (float)(packed_byte(p, r, c) - 128);
    }
}

/* One number of a quantum of 256 columns. */
static inline float packed_get_256(tg_layout l, const uint8_t *p, int r, int c)
{
    float d = packed_f16(p + 2 * r), dmin = packed_f16(p + 32 + 2 * r);
    int part = c / 64, group = c % 64 / 32, sixteenth = c % 64 / 16;
    c %= 64;
    switch ((int)l) {
    case TG_LAYOUT_Q4_K:
        p += 64 + 576 * part;
        return d * (float)p[512 + 16 * group + r] * (float)packed_nibble(p, r, c) -
               dmin * (float)p[544 + 16 * group + r];
    case TG_LAYOUT_Q5_K:
        p += 64 + 704 * part;
        return d * (float)p[640 + 16 * group + r] *
                   (float)(packed_nibble(p, r, c) + 16 * packed_bit(p + 512, r, c)) -
               dmin * (float)p[672 + 16 * group + r];
    case TG_LAYOUT_Q6_K:
        p += 64 + 832 * part;
        return d * (float)(int8_t)p[768 + 16 * sixteenth + r] *
               (float)(packed_nibble(p, r, c) + 16 * packed_pair(p + 512, r, c) - 32);
    default: /* TG_LAYOUT_Q2_K */
        p += 64 + 384 * part;
        return d * (float)p[256 + 16 * sixteenth + r] * (float)packed_pair(p, r, c) -
               dmin * (float)p[320 + 16 * sixteenth + r];
    }
}

/* Number (row, col) of a matrix whose tile i is at tiles + i * stride; also beyond its last row and
 * column, where padding lies. */
static inline float packed_get(tg_layout l, const uint8_t *tiles, size_t stride, int64_t row,
                               int64_t col)
{
    const uint8_t *p = tiles + (size_t)(row / 16) * stride;
    int r = (int)(row % 16);
    switch ((int)l) {
    case TG_LAYOUT_F32: return packed_f32(p + 64 * col + 4 * r);
    case TG_LAYOUT_F16: return packed_f16(p + 32 * col + 2 * r);
    case TG_LAYOUT_BF16: {
        const uint8_t *at = p + 64 * (col / 2) + 4 * r + 2 * (col % 2);
        return tg_bf16_to_f32((uint16_t)(at[0] | at[1] << 8));
    }
    default: break;
    }
    int quantum = tg_layout_rows[l].quantum_cols;
    p += col / quantum * tg_layout_rows[l].quantum_bytes;
    return quantum == 64 ? packed_get_64(l, p, r, (int)(col % 64))
                         : packed_get_256(l, p, r, (int)(col % 256));
}

#endif
