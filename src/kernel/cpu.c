/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/cpu.h"

#include "base/os.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[TG_CPU_TIER_COUNT] = {
    [TG_CPU_REF] = "ref",
    [TG_CPU_AVX2] = "avx2",
    [TG_CPU_AVX512] = "avx512",
};

const char *tg_cpu_tier_name(tg_cpu_tier t)
{
    TG_ASSERT((int)t >= 0 && t < TG_CPU_TIER_COUNT);
    return names[t];
}

#if defined(__x86_64__)

/* Bits of CPUID leaf 1 ECX, leaf 7 EBX and ECX (Intel SDM volume 2A, CPUID), and the register state
 * that the operating system saves according to XCR0 (volume 1, 13.3). */
enum {
    L1C_FMA = 1 << 12,
    L1C_OSXSAVE = 1 << 27,
    L1C_AVX = 1 << 28,
    L1C_F16C = 1 << 29,
    L7B_AVX2 = 1 << 5,
    L7B_AVX512F = 1 << 16,
    L7B_AVX512DQ = 1 << 17,
    L7B_AVX512BW = 1 << 30,
    L7C_VNNI = 1 << 11,
    L71A_AVX_VNNI = 1 << 4, /* leaf 7, subleaf 1, EAX */
    L71A_AVX512_BF16 = 1 << 5,
    XCR0_YMM = 0x06, /* SSE and AVX state */
    XCR0_ZMM = 0xe6  /* with mask registers, upper halves and registers 16..31 */
};
#define L7B_AVX512VL (1u << 31)

static bool has_bits(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

static uint32_t get_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

tg_cpu_tier tg_cpu_detect(void)
{
    uint32_t a, b, c, d, l1c;
    if (!__get_cpuid(1, &a, &b, &l1c, &d)) return TG_CPU_REF;
    if (!has_bits(l1c, L1C_OSXSAVE | L1C_AVX | L1C_FMA | L1C_F16C)) return TG_CPU_REF;
    uint32_t xcr0 = get_xcr0();
    if (!has_bits(xcr0, XCR0_YMM)) return TG_CPU_REF;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return TG_CPU_REF;
    if (!has_bits(b, L7B_AVX2)) return TG_CPU_REF;
    uint32_t wide = L7B_AVX512F | L7B_AVX512DQ | L7B_AVX512BW | L7B_AVX512VL;
    if (!has_bits(b, wide) || !has_bits(c, L7C_VNNI) || !has_bits(xcr0, XCR0_ZMM))
        return TG_CPU_AVX2;
    return TG_CPU_AVX512;
}

bool tg_cpu_has_avx_vnni(void)
{
    uint32_t a, b, c, d;
    return tg_cpu_detect() >= TG_CPU_AVX2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           has_bits(a, L71A_AVX_VNNI);
}

bool tg_cpu_has_bf16(void)
{
    uint32_t a, b, c, d;
    return tg_cpu_detect() >= TG_CPU_AVX512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           has_bits(a, L71A_AVX512_BF16);
}

/* Leaf 1, EAX: family and model are the base fields with the extended ones added and put in front
 * (AMD CPUID Specification 25481, CPUID Fn0000_0001_EAX). */
tg_cpu_model tg_cpu_find_model(void)
{
    uint32_t a, b, c, d, max;
    if (!__get_cpuid(0, &max, &b, &c, &d) || !__get_cpuid(1, &a, &max, &c, &d))
        return (tg_cpu_model){0};
    bool is_amd = b == 0x68747541; /* "Auth" of AuthenticAMD */
    return (tg_cpu_model){.amd_family = is_amd ? (a >> 8 & 15) + (a >> 20 & 255) : 0,
                          .model = (a >> 4 & 15) + (a >> 12 & 0xf0)};
}

#else

tg_cpu_tier tg_cpu_detect(void)
{
    return TG_CPU_REF;
}

bool tg_cpu_has_avx_vnni(void)
{
    return false;
}

bool tg_cpu_has_bf16(void)
{
    return false;
}

tg_cpu_model tg_cpu_find_model(void)
{
    return (tg_cpu_model){0};
}

#endif

enum { ZEN_1_AND_2 = 0x17, ZEN_3_AND_4 = 0x19 };

/* Family 0x19 is Zen 3 and Zen 4: the models of Zen 4 are 0x10 to 0x1f and 0x60 to 0xaf (Linux,
 * arch/x86/kernel/cpu/amd.c, bsp_init_amd). */
static bool is_zen4(tg_cpu_model m)
{
    return m.amd_family == ZEN_3_AND_4 &&
           ((m.model >= 0x10 && m.model <= 0x1f) || (m.model >= 0x60 && m.model <= 0xaf));
}

/* Measured. Zen 2, decode in tokens/s with 0, 1, 2 and 4 KB: SmolLM2 with one thread 104, 120, 109,
 * 111, with two 187, 213, 200, 197; Gemma 3 35, 44, 40, 42 and 68, 85, 76, 80. Zen 3, SmolLM2 with
 * 0 and 2 KB: 156, 203 with one thread, 265, 322 with two. Zen 4, GB/s of Q4_1 from memory: 28
 * alone, 23 with 4 KB; Zen 5 35-38 alone, 36-41 with it. AMD's older ones are left to the hardware;
 * others take what helps more machines. */
int32_t tg_cpu_prefetch_bytes(tg_cpu_model m)
{
    if (m.amd_family == ZEN_1_AND_2) return 1024;
    if (m.amd_family == ZEN_3_AND_4) return is_zen4(m) ? 0 : 2048;
    return m.amd_family && m.amd_family < ZEN_1_AND_2 ? 0 : 4096;
}

/* Zen 4 and later: two units multiply, those and two more add. Intel's AVX-512 does both on the
 * same two. */
bool tg_cpu_gains_by_pairs(tg_cpu_model m, tg_cpu_tier t)
{
    return t == TG_CPU_AVX512 && m.amd_family >= ZEN_3_AND_4;
}

tg_status tg_cpu_choose(tg_cpu_tier *out, const char *name, tg_err *e)
{
    tg_cpu_tier best = tg_cpu_detect();
    const char *from = "the caller";
    if (!name) {
        name = tg_env_get(TG_ENV_CPU);
        from = "TG_CPU";
    }
    *out = best;
    if (!name) return TG_OK;

    char usable[64] = "";
    for (int t = 0; t <= (int)best; t++) {
        size_t n = strlen(usable);
        snprintf(usable + n, sizeof usable - n, "%s%s", t ? ", " : "", names[t]);
    }
    for (int t = 0; t < TG_CPU_TIER_COUNT; t++) {
        if (strcmp(name, names[t]) != 0) continue;
        if (t > (int)best)
            return tg_fail(e, TG_E_ARGUMENT,
                           "this machine cannot run the CPU tier '%s' that %s names: use one of %s",
                           name, from, usable);
        *out = (tg_cpu_tier)t;
        return TG_OK;
    }
    return tg_fail(e, TG_E_ARGUMENT, "unknown CPU tier '%s' from %s: use one of %s", name, from,
                   usable);
}
