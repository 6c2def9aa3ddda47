/* SPDX-License-Identifier: Apache-2.0
 * layout.h - packed weight layouts: how a matrix lies in an artifact.
 *
 * One family, "R16": a matrix [rows, cols] is cut into tiles of 16 rows (lane = row: one 512-bit
 * register holds one number of each), a tile into quanta of columns, and a quantum is a multiple of
 * 64 bytes. Rows beyond the last and columns beyond the last are zero groups, so kernels need no
 * tail. Names are in the artifact and are never redefined. Drawn byte by byte in docs/kernels.md.
 *
 * Quantum of the integer layouts, 64 columns = 2 groups of 32 = 16 "operands". Operand v holds
 * columns
 * 4v..4v+3 of the quantum as 64 bytes, byte 4r+j = row r, column 4v+j: what vpdpbusd takes.
 *
 *   nibbles  512 B  line l (0..7) = operands 2l (low nibbles) and 2l+1 (high nibbles)
 *   bits     128 B  one 64-bit mask per operand v, bit i = bit 4 of byte i
 *   pairs    256 B  line p (0..3), bits 2t..2t+1 of byte i = bits 4..5 of byte i of operand 4p+t
 *   bytes   1024 B  operand v at 64 v
 *   d, m       64 B  16 f16 for group 0, 16 f16 for group 1
 *
 *   r16_q4_0  nibbles d            576 B   w = d (q - 8)
 *   r16_q4_1  nibbles d m          640 B   w = d q + m
 *   r16_q5_0  nibbles bits d       704 B   w = d (q - 16)
 *   r16_q5_1  nibbles bits d m     768 B   w = d q + m
 *   r16_q8_0  bytes d             1088 B   w = d (q - 128)
 *   r16_q8_f  bytes, d as f32 (128 B)  1152 B   the same; holds IQ4_XS and MXFP4 exactly
 *
 * Quantum of the K layouts, 256 columns: 64 B of f16 (d of 16 rows, then dmin of 16 rows or zeros),
 * then four parts of 64 columns each:
 *
 *   r16_q4_k  nibbles sc mn        64 + 4 * 576   sc, mn: 32 u8 each, [group 0..1][row 0..15]
 *   r16_q5_k  nibbles bits sc mn   64 + 4 * 704   w = (d sc) q - dmin mn
 *   r16_q6_k  nibbles pairs sc     64 + 4 * 832   sc: 64 i8, [sixteenth 0..3][row]; w = d sc (q -
 *   32) r16_q2_k  pairs sc mn          64 + 4 * 384   sc, mn: 64 u8 each, [sixteenth][row]; pairs
 *   are
 *                                                 bits 0..1; w = d sc q - dmin mn
 *
 * Float layouts: a quantum is one column (f32: 64 B, f16: 32 B) or two (bf16: 64 B, row r at 4r:
 * even column in the low half, odd in the high). */
#ifndef TG_FORMAT_LAYOUT_H
#define TG_FORMAT_LAYOUT_H

#include "base/base.h"

enum { TG_TILE_ROWS = 16, TG_GROUP_COLS = 32, TG_PART_COLS = 64 };

typedef enum tg_layout {
    TG_LAYOUT_F32,
    TG_LAYOUT_F16,
    TG_LAYOUT_BF16,
    TG_LAYOUT_Q4_0,
    TG_LAYOUT_Q4_1,
    TG_LAYOUT_Q5_0,
    TG_LAYOUT_Q5_1,
    TG_LAYOUT_Q8_0,
    TG_LAYOUT_Q8_F,
    TG_LAYOUT_Q4_K,
    TG_LAYOUT_Q5_K,
    TG_LAYOUT_Q6_K,
    TG_LAYOUT_Q2_K,
    TG_LAYOUT_COUNT
} tg_layout;

typedef struct tg_layout_row {
    const char *name;      /* "r16_q4_1" */
    int32_t quantum_cols;  /* columns are padded to a multiple of this */
    int32_t quantum_bytes; /* bytes of 16 rows x quantum_cols */
    bool is_quantized;     /* its matmul takes integer activations (kernel.h, tg_a8) */
} tg_layout_row;

extern const tg_layout_row tg_layout_rows[TG_LAYOUT_COUNT];

/* Columns padded to whole quanta. */
int64_t tg_layout_padded_cols(tg_layout l, int64_t n_cols);
/* Bytes of one tile: 16 rows x n_cols, a multiple of 64 except for f16 (of 32). */
size_t tg_layout_tile_bytes(tg_layout l, int64_t n_cols);

#endif
