/* SPDX-License-Identifier: Apache-2.0
 * avx512_attend_bf16.c - attention over bf16 with vdpbf16ps; only for processors that have it. The
 * code is avx2_attend_bf16.h's. */
#include "kernel/avx2_attend_bf16.h"

enum { PASS = 6, REGS = 4 };

#define BF16(n)                                                                                    \
    TG_PASS_INSTANCE(bf16, n, tg_pair_score_all(x, n, REGS), tg_pair_add_all(x, n, REGS))
BF16(1)
BF16(2)
BF16(3)
BF16(4)
BF16(5)
BF16(6)

static const tg_pass_halves bf16[PASS] = {TG_PASS_HALVES(bf16, 1), TG_PASS_HALVES(bf16, 2),
                                          TG_PASS_HALVES(bf16, 3), TG_PASS_HALVES(bf16, 4),
                                          TG_PASS_HALVES(bf16, 5), TG_PASS_HALVES(bf16, 6)};

void tg_avx512_attend_bf16(const tg_attend *a)
{
    tg_pass_run_all(a, TG_KV_BF16, PASS, bf16);
}
