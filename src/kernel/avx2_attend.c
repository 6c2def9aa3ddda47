/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend.c - attention with 256-bit registers: 3 queries x 32 keys or dimensions are 12 sums.
 * The code is avx2_attend.h's. */
#include "kernel/avx2_attend.h"

enum { PASS = 3, REGS = 2 };

#define F32(n)                                                                                     \
    TG_PASS_INSTANCE(f32, n, tg_pass_score_all(x, TG_KV_F32, n, REGS),                             \
                     tg_pass_add_all(x, TG_KV_F32, n, REGS))
F32(1)
F32(2)
F32(3)

#define F16(n)                                                                                     \
    TG_PASS_INSTANCE(f16, n, tg_pass_score_all(x, TG_KV_F16, n, REGS),                             \
                     tg_pass_add_all(x, TG_KV_F16, n, REGS))
F16(1)
F16(2)
F16(3)

static const tg_pass_halves f32[PASS] = {TG_PASS_HALVES(f32, 1), TG_PASS_HALVES(f32, 2),
                                         TG_PASS_HALVES(f32, 3)};
static const tg_pass_halves f16[PASS] = {TG_PASS_HALVES(f16, 1), TG_PASS_HALVES(f16, 2),
                                         TG_PASS_HALVES(f16, 3)};

void tg_avx2_attend_f32(const tg_attend *a)
{
    tg_pass_run_all(a, TG_KV_F32, PASS, f32);
}

void tg_avx2_attend_f16(const tg_attend *a)
{
    tg_pass_run_all(a, TG_KV_F16, PASS, f16);
}

void tg_avx2_attend_finish(float *y, const tg_attend_parts *parts)
{
    tg_parts_finish(y, parts);
}

void tg_avx2_kv_store_f16(void *k, void *v, int32_t slot, const float *key, const float *value,
                          int32_t head_dim)
{
    tg_store_f16(k, v, slot, key, value, head_dim);
}
