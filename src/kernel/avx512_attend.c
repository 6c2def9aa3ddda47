/* SPDX-License-Identifier: Apache-2.0
 * avx512_attend.c - attention with 512-bit registers: 6 queries x 64 keys or dimensions are 24
 * sums. The code is avx2_attend.h's. */
#include "kernel/avx2_attend.h"

enum { PASS = 6, REGS = 4 };

#define F32(n) TG_PASS_INSTANCE(f32, n, tg_pass_attend(x, TG_KV_F32, n, REGS))
F32(1)
F32(2)
F32(3)
F32(4)
F32(5)
F32(6)

#define F16(n) TG_PASS_INSTANCE(f16, n, tg_pass_attend(x, TG_KV_F16, n, REGS))
F16(1)
F16(2)
F16(3)
F16(4)
F16(5)
F16(6)

static tg_pass_fn *const f32[PASS] = {f32_1, f32_2, f32_3, f32_4, f32_5, f32_6};
static tg_pass_fn *const f16[PASS] = {f16_1, f16_2, f16_3, f16_4, f16_5, f16_6};

void tg_avx512_attend_f32(const tg_attend *a)
{
    tg_pass_run_all(a, PASS, f32);
}

void tg_avx512_attend_f16(const tg_attend *a)
{
    tg_pass_run_all(a, PASS, f16);
}

void tg_avx512_attend_finish(float *y, const tg_attend_parts *parts)
{
    tg_parts_finish(y, parts);
}

void tg_avx512_kv_store_f16(void *k, void *v, int32_t slot, const float *key, const float *value,
                            int32_t head_dim)
{
    tg_store_f16(k, v, slot, key, value, head_dim);
}
