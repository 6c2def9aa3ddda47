/* SPDX-License-Identifier: Apache-2.0 */
#include "format/layout.h"

const tg_layout_row tg_layout_rows[TG_LAYOUT_COUNT] = {
    [TG_LAYOUT_F32] = {"r16_f32", 1, 64, false},
    [TG_LAYOUT_F16] = {"r16_f16", 1, 32, false},
    [TG_LAYOUT_BF16] = {"r16_bf16", 2, 64, false},
    [TG_LAYOUT_Q4_0] = {"r16_q4_0", 64, 576, true},
    [TG_LAYOUT_Q4_1] = {"r16_q4_1", 64, 640, true},
    [TG_LAYOUT_Q5_0] = {"r16_q5_0", 64, 704, true},
    [TG_LAYOUT_Q5_1] = {"r16_q5_1", 64, 768, true},
    [TG_LAYOUT_Q8_0] = {"r16_q8_0", 64, 1088, true},
    [TG_LAYOUT_Q8_F] = {"r16_q8_f", 64, 1152, true},
    [TG_LAYOUT_Q4_K] = {"r16_q4_k", 256, 64 + 4 * 576, true},
    [TG_LAYOUT_Q5_K] = {"r16_q5_k", 256, 64 + 4 * 704, true},
    [TG_LAYOUT_Q6_K] = {"r16_q6_k", 256, 64 + 4 * 832, true},
    [TG_LAYOUT_Q2_K] = {"r16_q2_k", 256, 64 + 4 * 384, true},
};

int64_t tg_layout_padded_cols(tg_layout l, int64_t n_cols)
{
    return tg_div_up(n_cols, tg_layout_rows[l].quantum_cols) * tg_layout_rows[l].quantum_cols;
}

size_t tg_layout_tile_bytes(tg_layout l, int64_t n_cols)
{
    return (size_t)tg_div_up(n_cols, tg_layout_rows[l].quantum_cols) *
           (size_t)tg_layout_rows[l].quantum_bytes;
}
