/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/kernel.h"

#include "kernel/form.h"

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

int64_t tg_a8_n_groups(int64_t n_cols)
{
    return get_padded(n_cols) / TG_GROUP_COLS;
}

void tg_a8_map(int16_t *out, int64_t n_cols, const int32_t *groups, int32_t n_outliers)
{
    int64_t n_groups = tg_a8_n_groups(n_cols);
    TG_ASSERT(n_outliers <= INT16_MAX);
    for (int64_t g = 0; g < n_groups; g++)
        out[g] = -1;
    for (int32_t i = 0; i < n_outliers; i++)
        out[groups[i]] = (int16_t)i;
}

int32_t tg_a8_top(tg_layout l)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    if (f->nibbles < 0 || f->pairs >= 0) return TG_A8_TOP;
    return f->bits >= 0 ? 112 : 120;
}

int32_t tg_a8_sum_pairs(const int8_t codes[TG_GROUP_COLS], int32_t top)
{
    int32_t sum = 0, rest = 128 - top;
    for (int c = 0; c < TG_GROUP_COLS; c++)
        if (c % 8 < 4) sum += codes[c] * codes[c + 4] + top * codes[c] - rest * codes[c + 4];
    return sum;
}

/* Bytes of one plane of the outlier groups. */
static size_t get_low_bytes(int64_t n_tokens, int32_t n_outliers)
{
    return tg_align_up((size_t)n_tokens * (size_t)n_outliers * TG_GROUP_COLS, 64);
}

size_t tg_a8_bytes(int64_t n_tokens, int64_t n_cols, int32_t n_outliers)
{
    size_t codes = (size_t)n_tokens * (size_t)get_padded(n_cols);
    size_t numbers = tg_align_up(codes / TG_GROUP_COLS * sizeof(float), 64);
    return codes + get_low_bytes(n_tokens, n_outliers) + 5 * numbers;
}

void tg_a8_place(tg_a8 *out, void *memory, int64_t n_tokens, int64_t n_cols, const tg_a8_kind *kind)
{
    char *p = memory;
    *out = (tg_a8){.padded = get_padded(n_cols), .top = kind->top};
    size_t codes = (size_t)n_tokens * (size_t)out->padded;
    size_t numbers = tg_align_up(codes / TG_GROUP_COLS * sizeof(float), 64);
    out->hi = (int8_t *)p;
    p += codes;
    if (kind->n_outliers > 0) {
        out->outliers = kind->outliers;
        out->n_outliers = kind->n_outliers;
        out->lo = (int8_t *)p;
        p += get_low_bytes(n_tokens, kind->n_outliers);
    }
    out->scale = (float *)(void *)p;
    out->ssum = (float *)(void *)(p + numbers);
    out->sum = (int32_t *)(void *)(p + 2 * numbers);
    out->half = (int32_t *)(void *)(p + 3 * numbers);
    if (kind->has_pairs) out->pair = (int32_t *)(void *)(p + 4 * numbers);
}

tg_a8 tg_a8_from(const tg_a8 *x, int64_t token)
{
    int64_t codes = token * x->padded, groups = codes / TG_GROUP_COLS;
    return (tg_a8){
        .hi = x->hi + codes,
        .lo = x->lo ? x->lo + token * x->n_outliers * TG_GROUP_COLS : NULL,
        .outliers = x->outliers,
        .scale = x->scale + groups,
        .ssum = x->ssum + groups,
        .sum = x->sum + groups,
        .half = x->half + groups,
        .pair = x->pair ? x->pair + groups : NULL,
        .padded = x->padded,
        .n_outliers = x->n_outliers,
        .top = x->top,
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
