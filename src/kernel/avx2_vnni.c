/* SPDX-License-Identifier: Apache-2.0
 * avx2_vnni.c - products of quantized weights with vpdpbusd; only for processors that have
 * AVX-VNNI. The code is avx2_gemv.h's. */
#include "kernel/avx2_gemv.h"

#define ENTRY(name, NAME) TG_GEMV_ENTRY(name, NAME, &tg_avx2_vnni_sums)

TG_EACH_FORM(ENTRY)

tg_matmul_fn *const tg_avx2_vnni_matmul[TG_LAYOUT_COUNT] = {TG_EACH_FORM(TG_GEMV_POINTER)};
