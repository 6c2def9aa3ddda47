/* SPDX-License-Identifier: Apache-2.0
 * avx2_vnni_gemm.c - sums of many tokens with vpdpbusd; only for processors that have AVX-VNNI. The
 * code is avx2_gemm.h's. */
#include "kernel/avx2_gemm.h"

TG_GEMM_INSTANCES(plain, PLAIN)
TG_GEMM_INSTANCES(centred, CENTRED)
TG_GEMM_INSTANCES(per16, PER16)

const tg_gemm_sums tg_avx2_vnni_sums = {
    .is_dot = true,
    .multiply = {[TG_SUM_PLAIN] = {plain_3, plain_6},
                 [TG_SUM_CENTRED] = {centred_3, centred_6},
                 [TG_SUM_PER16] = {per16_3, per16_6}},
};
