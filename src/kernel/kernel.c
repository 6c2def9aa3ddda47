/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/kernel.h"

/* All the dispatch there is. A tier's function overwrites what it does better. */
static void (*const fill[TG_CPU_TIER_COUNT])(tg_kernels *) = {
    [TG_CPU_REF] = tg_kernels_fill_ref,
#if defined(__x86_64__)
    [TG_CPU_AVX2] = tg_kernels_fill_avx2,
    [TG_CPU_AVX512] = tg_kernels_fill_avx512,
#endif
};

void tg_kernels_fill(tg_kernels *k, tg_cpu_tier tier)
{
    for (int t = 0; t <= (int)tier; t++)
        if (fill[t]) fill[t](k);
}

/* Rows are padded to the largest quantum (256 columns), so that one quantized row serves
 * matrices of any layout. The extra line: without it a width of 4096 would put the rows of a
 * token block into one set of an 8-way first-level cache. */
static int64_t get_padded(int64_t n_cols)
{
    return (int64_t)tg_align_up((size_t)n_cols, 256) + TG_PART_COLS;
}

size_t tg_a8_bytes(int64_t n_tokens, int64_t n_cols, bool is_wide)
{
    size_t codes = (size_t)n_tokens * (size_t)get_padded(n_cols);
    size_t numbers = tg_align_up(codes / TG_GROUP_COLS * sizeof(float), 64);
    return codes * (is_wide ? 2 : 1) + 4 * numbers;
}

void tg_a8_place(tg_a8 *out, void *memory, int64_t n_tokens, int64_t n_cols, bool is_wide)
{
    char *p = memory;
    *out = (tg_a8){.padded = get_padded(n_cols)};
    size_t codes = (size_t)n_tokens * (size_t)out->padded;
    size_t numbers = tg_align_up(codes / TG_GROUP_COLS * sizeof(float), 64);
    out->hi = (int8_t *)p;
    p += codes;
    if (is_wide) {
        out->lo = (int8_t *)p;
        p += codes;
    }
    out->scale = (float *)(void *)p;
    out->ssum = (float *)(void *)(p + numbers);
    out->sum = (int32_t *)(void *)(p + 2 * numbers);
    out->half = (int32_t *)(void *)(p + 3 * numbers);
}

tg_a8 tg_a8_from(const tg_a8 *x, int64_t token)
{
    int64_t codes = token * x->padded, groups = codes / TG_GROUP_COLS;
    return (tg_a8){
        .hi = x->hi + codes,
        .lo = x->lo ? x->lo + codes : NULL,
        .scale = x->scale + groups,
        .ssum = x->ssum + groups,
        .sum = x->sum + groups,
        .half = x->half + groups,
        .padded = x->padded,
    };
}

#if defined(__x86_64__)

/* MXCSR: all exceptions masked, round to nearest, no flush-to-zero, no denormals-are-zero. */
enum { MXCSR_CONTRACT = 0x1f80 };

uint32_t tg_fp_begin(void)
{
    uint32_t saved = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(MXCSR_CONTRACT);
    return saved;
}

void tg_fp_restore(uint32_t saved)
{
    __builtin_ia32_ldmxcsr(saved);
}

#else
#include <fenv.h>

uint32_t tg_fp_begin(void)
{
    int saved = fegetround();
    fesetround(FE_TONEAREST);
    return (uint32_t)saved;
}

void tg_fp_restore(uint32_t saved)
{
    fesetround((int)saved);
}

#endif
