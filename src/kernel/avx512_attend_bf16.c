/* SPDX-License-Identifier: Apache-2.0
 * avx512_attend_bf16.c - attention over bf16 with vdpbf16ps; only for processors that have it. The
 * code is avx2_attend_bf16.h's. */
#include "kernel/avx2_attend_bf16.h"

enum { PASS = 6, REGS = 4 };

static void bf16_1(const tg_pass *x)
{
    tg_pair_attend(x, 1, REGS);
}

static void bf16_2(const tg_pass *x)
{
    tg_pair_attend(x, 2, REGS);
}

static void bf16_3(const tg_pass *x)
{
    tg_pair_attend(x, 3, REGS);
}

static void bf16_4(const tg_pass *x)
{
    tg_pair_attend(x, 4, REGS);
}

static void bf16_5(const tg_pass *x)
{
    tg_pair_attend(x, 5, REGS);
}

static void bf16_6(const tg_pass *x)
{
    tg_pair_attend(x, 6, REGS);
}

static tg_pass_fn *const bf16[PASS] = {bf16_1, bf16_2, bf16_3, bf16_4, bf16_5, bf16_6};

void tg_avx512_attend_bf16(const tg_attend *a)
{
    tg_pass_run_all(a, PASS, bf16);
}
