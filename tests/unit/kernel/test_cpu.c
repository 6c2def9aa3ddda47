/* SPDX-License-Identifier: Apache-2.0
 * Tiers, the table, the rows of quantized activations, the floating-point mode. */
#include "check.h"
#include "kernel/kernel.h"

#include <math.h>
#include <stdio.h>

static void a_named_tier_is_chosen_and_an_unknown_one_refused(void **state)
{
    (void)state;
    tg_cpu_tier t;
    tg_err e = {0};
    assert_int_equal(tg_cpu_choose(&t, "ref", &e), TG_OK);
    assert_int_equal(t, TG_CPU_REF);
    tg_cpu_tier best = tg_cpu_detect();
    assert_int_equal(tg_cpu_choose(&t, tg_cpu_tier_name(best), &e), TG_OK);
    assert_int_equal(t, best);
    assert_int_equal(tg_cpu_choose(&t, "sse9", &e), TG_E_ARGUMENT);
    assert_non_null(strstr(e.msg, "sse9"));
    assert_non_null(strstr(e.msg, "ref"));
}

static void the_environment_lowers_the_tier(void **state)
{
    (void)state;
    tg_cpu_tier t;
    unsetenv("TG_CPU");
    assert_int_equal(tg_cpu_choose(&t, NULL, NULL), TG_OK);
    assert_int_equal(t, tg_cpu_detect());
    setenv("TG_CPU", "ref", 1);
    assert_int_equal(tg_cpu_choose(&t, NULL, NULL), TG_OK);
    assert_int_equal(t, TG_CPU_REF);
    tg_err e = {0};
    setenv("TG_CPU", "fast", 1);
    assert_int_equal(tg_cpu_choose(&t, NULL, &e), TG_E_ARGUMENT);
    assert_non_null(strstr(e.msg, "TG_CPU"));
    unsetenv("TG_CPU");
}

/* Types that read queries as they are have no kv_query. */
static bool may_be_null(const tg_kernels *k, size_t at)
{
    const char *entry = (const char *)k + at;
    return entry == (const char *)&k->kv_query[TG_KV_F32] ||
           entry == (const char *)&k->kv_query[TG_KV_F16];
}

/* Whether Linux lists the feature for the first processor; -1 where it does not say. */
static int find_flag(const char *name)
{
    static char text[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");
    size_t n = f ? fread(text, 1, sizeof text - 2, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    char *flags = strstr(text, "\nflags"), *end = flags ? strchr(flags + 1, '\n') : NULL;
    if (!end) return -1;
    memcpy(end, " ", 2);
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(flags, word) != NULL;
}

static void features_beside_the_tiers_are_those_that_linux_lists(void **state)
{
    (void)state;
    int vnni = find_flag("avx_vnni"), bf16 = find_flag("avx512_bf16");
    if (vnni < 0 || bf16 < 0) skip();
    assert_int_equal(tg_cpu_has_avx_vnni(), vnni && tg_cpu_detect() >= TG_CPU_AVX2);
    assert_int_equal(tg_cpu_has_bf16(), bf16 && tg_cpu_detect() >= TG_CPU_AVX512);
}

/* The number behind a key of the first processor in /proc/cpuinfo; -1 where there is none. */
static int find_number(const char *key)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[4096];
    size_t n = strlen(key);
    int found = -1;
    while (f && found < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == '\t') found = atoi(strchr(line, ':') + 1);
    if (f) fclose(f);
    return found;
}

static void the_processor_is_the_one_that_linux_names(void **state)
{
    (void)state;
    int family = find_number("cpu family"), model = find_number("model");
    if (family < 0 || model < 0) skip();
    tg_cpu_model m = tg_cpu_find_model();
    if (m.amd_family) assert_int_equal(m.amd_family, family);
    assert_int_equal(m.model, model);
}

/* Family and model numbers from Linux's arch/x86/kernel/cpu/amd.c (bsp_init_amd); the distances
 * are those that measured best (cpu.c; what Zen 3 gains is in its comment). */
static void weights_are_prefetched_as_far_as_each_processor_gains_by_it(void **state)
{
    (void)state;
    static const struct {
        tg_cpu_model cpu;
        int32_t want;
    } rows[] = {
        {{0x15, 0x02}, 0},                          /* Piledriver */
        {{0x17, 0x31}, 1024}, {{0x17, 0x71}, 1024}, /* Zen 2: Rome, Matisse */
        {{0x19, 0x01}, 2048}, {{0x19, 0x21}, 2048}, /* Zen 3: Milan, Vermeer */
        {{0x19, 0x44}, 2048}, {{0x19, 0x50}, 2048}, /* Rembrandt, Cezanne */
        {{0x19, 0x11}, 0},    {{0x19, 0x61}, 0},
        {{0x19, 0x74}, 0},                          /* Zen 4: Genoa, Raphael, .. */
        {{0x19, 0xa0}, 0},                          /* Bergamo */
        {{0x1a, 0x02}, 4096}, {{0x1a, 0x44}, 4096}, /* Zen 5 */
        {{0, 0x8f}, 4096},                          /* Intel, or unknown */
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        assert_int_equal(tg_cpu_prefetch_bytes(rows[i].cpu), rows[i].want);
}

static void every_tier_fills_every_entry(void **state)
{
    (void)state;
    for (int t = 0; t <= (int)tg_cpu_detect(); t++) {
        tg_kernels k;
        memset(&k, 0, sizeof k);
        tg_kernels_fill(&k, (tg_cpu_tier)t);
        void (*entry)(void);
        for (size_t at = 0; at < sizeof k; at += sizeof entry) {
            memcpy(&entry, (char *)&k + at, sizeof entry);
            assert_true((entry == NULL) == may_be_null(&k, at));
        }
    }
}

static void rows_of_activations_do_not_overlap(void **state)
{
    (void)state;
    for (int32_t n_outliers = 0; n_outliers <= 10; n_outliers++) {
        _Alignas(64) static char memory[1 << 16];
        enum { TOKENS = 3, COLS = 300 };
        static const int32_t list[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
        static int16_t map[64];
        size_t bytes = tg_a8_bytes(TOKENS, COLS, n_outliers);
        assert_true(bytes <= sizeof memory);
        assert_true(n_outliers == 0 || bytes >= tg_a8_bytes(TOKENS, COLS, n_outliers - 1));
        tg_a8 a;
        tg_a8_map(map, COLS, list, n_outliers);
        const tg_a8_kind kind = {map, n_outliers, TG_A8_TOP, true};
        tg_a8_place(&a, memory, TOKENS, COLS, &kind);
        assert_true(a.padded >= 512 && a.padded % 64 == 0); /* two K quanta */
        assert_true((a.lo != NULL) == (n_outliers > 0));
        size_t codes = TOKENS * (size_t)a.padded, groups = codes / 32;
        assert_true(a.hi + codes <= (n_outliers ? a.lo : (int8_t *)a.scale));
        assert_true(!n_outliers || (char *)a.scale >= (char *)a.lo + TOKENS * 32 * n_outliers);
        assert_true((char *)(a.half + groups) <= (char *)a.pair);
        assert_true((char *)(a.pair + groups) <= memory + bytes);
        tg_a8 row = tg_a8_from(&a, 2);
        assert_ptr_equal(row.hi, a.hi + 2 * a.padded);
        assert_ptr_equal(row.scale, a.scale + 2 * a.padded / 32);
        assert_ptr_equal(row.half, a.half + 2 * a.padded / 32);
        assert_ptr_equal(row.pair, a.pair + 2 * a.padded / 32);
        assert_ptr_equal(row.lo, n_outliers ? a.lo + 2 * 32 * n_outliers : NULL);
    }
}

static void a_map_counts_its_wide_groups_in_order(void **state)
{
    (void)state;
    enum { COLS = 200 }; /* 7 groups, of 10 that a row holds (256 columns and a line) */
    static const int32_t list[] = {1, 2, 6};
    static const int16_t want[] = {-1, 0, 1, -1, -1, -1, 2, -1, -1, -1};
    int16_t map[10];
    assert_int_equal(tg_a8_n_groups(COLS), 10);
    tg_a8_map(map, COLS, list, 3);
    assert_memory_equal(map, want, sizeof want);
}

/* One pair of a group whose other codes are 0: both factors fit their bytes, and what the product
 * has beside the sum wanted is what the input and the weights say. */
static void check_pair(int32_t w0, int32_t w1, int32_t a0, int32_t a1, int32_t top)
{
    int8_t codes[TG_GROUP_COLS] = {[1] = (int8_t)a0, [5] = (int8_t)a1};
    int32_t rest = 128 - top, first = w0 + a1 + top, second = w1 + a0 - rest;
    assert_in_range(first, 0, 255);
    assert_in_range(second + 128, 0, 255);
    int32_t of_weights = (w0 + top) * (w1 - rest), of_input = tg_a8_sum_pairs(codes, top);
    assert_int_equal(first * second - of_input - of_weights, w0 * a0 + w1 * a1);
}

static void two_products_are_one_where_the_codes_leave_room(void **state)
{
    (void)state;
    static const struct {
        tg_layout layout;
        int32_t top, last; /* of the inputs' codes, and of its own */
    } rows[] = {{TG_LAYOUT_Q4_0, 120, 15}, {TG_LAYOUT_Q4_1, 120, 15}, {TG_LAYOUT_Q5_0, 112, 31},
                {TG_LAYOUT_Q5_1, 112, 31}, {TG_LAYOUT_Q4_K, 120, 15}, {TG_LAYOUT_Q5_K, 112, 31}};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        int32_t top = rows[i].top, last = rows[i].last;
        assert_int_equal(tg_a8_top(rows[i].layout), top);
        for (int32_t w = 0; w <= last; w++)
            for (int32_t a = -top; a <= top; a++) {
                check_pair(w, last - w, a, -a, top);
                check_pair(w, last, top, a, top);
                check_pair(0, w, a, -top, top);
                check_pair(w, w / 2, a / 3, a * 7 / 8, 112); /* another matrix wants less */
            }
    }
    static const tg_layout others[] = {TG_LAYOUT_Q8_0, TG_LAYOUT_Q8_F, TG_LAYOUT_Q6_K,
                                       TG_LAYOUT_Q2_K};
    for (size_t i = 0; i < TG_COUNT(others); i++)
        assert_int_equal(tg_a8_top(others[i]), 127);
}

static volatile float tiny = 0x1p-126f, third = 3.0f, one = 1.0f;

static void a_step_keeps_denormals_and_rounds_to_nearest(void **state)
{
    (void)state;
    float nearest = one / third;
    uint32_t before = tg_fp_begin();
    assert_true(tiny / 4 > 0);
    tg_fp_restore(before ^ 0xe040); /* round to zero, flush to zero, denormals are zero */
    assert_true(tiny / 4 == 0);
    uint32_t hostile = tg_fp_begin();
    assert_true(tiny / 4 > 0);
    assert_true(one / third == nearest);
    tg_fp_restore(hostile);
    assert_true(tiny / 4 == 0);
    tg_fp_restore(before);
    assert_true(tiny / 4 > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_tier_is_chosen_and_an_unknown_one_refused),
        cmocka_unit_test(the_environment_lowers_the_tier),
        cmocka_unit_test(features_beside_the_tiers_are_those_that_linux_lists),
        cmocka_unit_test(the_processor_is_the_one_that_linux_names),
        cmocka_unit_test(weights_are_prefetched_as_far_as_each_processor_gains_by_it),
        cmocka_unit_test(every_tier_fills_every_entry),
        cmocka_unit_test(rows_of_activations_do_not_overlap),
        cmocka_unit_test(a_map_counts_its_wide_groups_in_order),
        cmocka_unit_test(two_products_are_one_where_the_codes_leave_room),
        cmocka_unit_test(a_step_keeps_denormals_and_rounds_to_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
