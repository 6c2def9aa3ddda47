/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend_bf16.c - attention over bf16 with fma. The code is avx2_attend_bf16.h's. */
#include "kernel/avx2_attend_bf16.h"

enum { PASS = 3, REGS = 1 }; /* 16 keys are two registers, and their halves need some too */

#define BF16(n)                                                                                    \
    TG_PASS_INSTANCE(bf16, n, tg_pair_score_all(x, n, REGS), tg_pair_add_all(x, n, REGS))
BF16(1)
BF16(2)
BF16(3)

static const tg_pass_halves bf16[PASS] = {TG_PASS_HALVES(bf16, 1), TG_PASS_HALVES(bf16, 2),
                                          TG_PASS_HALVES(bf16, 3)};

void tg_avx2_attend_bf16(const tg_attend *a)
{
    tg_pass_run_all(a, TG_KV_BF16, PASS, bf16);
}

void tg_avx2_kv_query_bf16(float *out, const float *q, int32_t head_dim)
{
    tg_pair_round((uint16_t *)(void *)out, q, head_dim);
}

void tg_avx2_kv_store_bf16(void *k, void *v, int32_t slot, const float *key, const float *value,
                           int32_t head_dim)
{
    tg_pair_store(k, v, slot, key, value, head_dim);
}
