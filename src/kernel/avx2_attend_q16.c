/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend_q16.c - attention over q16 with vpmaddwd. The code is avx2_attend_q16.h's. */
#include "kernel/avx2_attend_q16.h"

enum { PASS = 3, REGS = 2 };

#define Q16(n) TG_PASS_INSTANCE(q16, n, tg_q16_score_all(x, n, REGS), tg_q16_add_all(x, n, REGS))
Q16(1)
Q16(2)
Q16(3)

static const tg_pass_halves q16[PASS] = {TG_PASS_HALVES(q16, 1), TG_PASS_HALVES(q16, 2),
                                         TG_PASS_HALVES(q16, 3)};

void tg_avx2_attend_q16(const tg_attend *a)
{
    tg_pass_run_all(a, TG_KV_Q16, PASS, q16);
}

void tg_avx2_kv_query_q16(float *out, const float *q, int32_t head_dim)
{
    tg_q16_query(out, q, head_dim);
}

void tg_avx2_kv_store_q16(void *k, void *v, int32_t slot, const float *key, const float *value,
                          int32_t head_dim)
{
    tg_q16_store(k, v, slot, key, value, head_dim);
}
