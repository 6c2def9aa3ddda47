/* SPDX-License-Identifier: Apache-2.0
 * cpu.h - CPU tiers: bundles of features that real machines have together.
 *
 * A tier contains the tiers before it. Detection asks the processor (CPUID) and the operating
 * system (XCR0: does it save the wide registers?). TG_CPU=ref|avx2|avx512 lowers the answer for
 * tests, reports and measurements; a tier the machine lacks is an error, never a crash. */
#ifndef TG_KERNEL_CPU_H
#define TG_KERNEL_CPU_H

#include "base/err.h"

typedef enum tg_cpu_tier {
    TG_CPU_REF,    /* portable C: the definition */
    TG_CPU_AVX2,   /* AVX2, FMA, F16C */
    TG_CPU_AVX512, /* AVX-512 F, BW, DQ, VL, VNNI */
    TG_CPU_TIER_COUNT
} tg_cpu_tier;

const char *tg_cpu_tier_name(tg_cpu_tier t);
/* The best tier this machine can run. */
tg_cpu_tier tg_cpu_detect(void);
/* The tier to use: `name`, or TG_CPU of the environment when name is NULL, or the best. Unknown
 * or unavailable names: TG_E_ARGUMENT with the list of those that would do. */
TG_MUST_USE tg_status tg_cpu_choose(tg_cpu_tier *out, const char *name, tg_err *e);

/* Whether an AVX2 machine has vpdpbusd of 256 bits too, as AVX-VNNI encodes it. */
bool tg_cpu_has_avx_vnni(void);
/* Whether an AVX-512 machine has vdpbf16ps too. */
bool tg_cpu_has_bf16(void);

/* Which processor this is, as far as choices of speed depend on it. */
typedef struct tg_cpu_model {
    uint32_t amd_family; /* with the extended family added; 0: another vendor's */
    uint32_t model;      /* with the extended model in front */
} tg_cpu_model;

tg_cpu_model tg_cpu_find_model(void);

/* How far ahead kernels should prefetch a stream of weights on such a processor; 0 where the
 * hardware does better alone. It changes no result. */
int32_t tg_cpu_prefetch_bytes(tg_cpu_model m);

/* Whether adding bytes is so much cheaper than multiplying them that kernels of the tier gain by
 * multiplying by pairs (kernel_quantize.h, tg_a8_top). It changes no result. */
bool tg_cpu_gains_by_pairs(tg_cpu_model m, tg_cpu_tier t);

#endif
