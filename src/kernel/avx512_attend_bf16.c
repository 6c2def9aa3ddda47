/* SPDX-License-Identifier: Apache-2.0
 * avx512_attend_bf16.c - attention over bf16 with vdpbf16ps; only for processors that have it. The
 * code is avx2_attend_bf16.h's. */
#include "kernel/avx2_attend_bf16.h"

enum { PASS = 6, REGS = 4 };

#define BF16(n) TG_PASS_INSTANCE(bf16, n, tg_pair_attend(x, n, REGS))
BF16(1)
BF16(2)
BF16(3)
BF16(4)
BF16(5)
BF16(6)

static tg_pass_fn *const bf16[PASS] = {bf16_1, bf16_2, bf16_3, bf16_4, bf16_5, bf16_6};

void tg_avx512_attend_bf16(const tg_attend *a)
{
    tg_pass_run_all(a, PASS, bf16);
}
