/* SPDX-License-Identifier: Apache-2.0
 * avx2_matmul.c - the tier's table of products. Those of quantized weights with few tokens are
 * avx2_gemv.h's. */
#include "kernel/avx2_gemv.h"

#define ENTRY(name, NAME) TG_GEMV_ENTRY(name, NAME, &tg_avx2_gemm_sums)

TG_EACH_FORM(ENTRY)

tg_matmul_fn *const tg_avx2_matmul[TG_LAYOUT_COUNT] = {[TG_LAYOUT_F32] = tg_avx2_matmul_f32,
                                                       [TG_LAYOUT_F16] = tg_avx2_matmul_f16,
                                                       [TG_LAYOUT_BF16] = tg_avx2_matmul_bf16,
                                                       TG_EACH_FORM(TG_GEMV_POINTER)};
