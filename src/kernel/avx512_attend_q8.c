/* SPDX-License-Identifier: Apache-2.0
 * avx512_attend_q8.c - attention over q8 with vpdpbusd. The code is avx2_attend_q8.h's. */
#include "kernel/avx2_attend_q8.h"

enum { PASS = 4, REGS = 4 }; /* 6 queries spill: 2.0 ns a query and key of 64, not 1.6 */

#define Q8(n) TG_PASS_INSTANCE(q8, n, tg_q8_score_all(x, n, REGS), tg_q8_add_all(x, n, REGS))
Q8(1)
Q8(2)
Q8(3)
Q8(4)

static const tg_pass_halves q8[PASS] = {TG_PASS_HALVES(q8, 1), TG_PASS_HALVES(q8, 2),
                                        TG_PASS_HALVES(q8, 3), TG_PASS_HALVES(q8, 4)};

void tg_avx512_attend_q8(const tg_attend *a)
{
    tg_pass_run_all(a, TG_KV_Q8, PASS, q8);
}

void tg_avx512_kv_query_q8(float *out, const float *q, int32_t head_dim)
{
    tg_kv_query_q8(out, q, head_dim);
}

void tg_avx512_kv_store_q8(void *k, void *v, int32_t slot, const float *key, const float *value,
                           int32_t head_dim)
{
    tg_kv_store_q8(k, v, slot, key, value, head_dim);
}
