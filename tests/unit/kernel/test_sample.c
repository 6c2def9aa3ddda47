/* SPDX-License-Identifier: Apache-2.0
 * Choosing a token: values by hand, frequencies by chi-square, on every tier this machine has. */
#include "check.h"
#include "kernel/draw.h"

#include <stdio.h>

enum { MAX_VOCAB = 4096 };

static tg_kernels kernels[TG_CPU_TIER_COUNT];
static int n_tiers;
static _Alignas(64) char scratch[64 * 1024 + 16 * MAX_VOCAB];

/* A draw from a copy of the logits. */
static int32_t draw(int tier, const float *logits, int32_t n, const tg_sample_params *p)
{
    float copy[MAX_VOCAB];
    memcpy(copy, logits, (size_t)n * sizeof *copy);
    assert_true(tg_sample_scratch_bytes(n) <= sizeof scratch);
    return kernels[tier].sample_row(copy, n, p, NULL, scratch);
}

/* The set of ids, as bits, that 2000 positions draw. */
static uint32_t draw_set(int tier, const float *logits, int32_t n, tg_sample_params p)
{
    uint32_t set = 0;
    for (p.position = 0; p.position < 2000; p.position++)
        set |= 1u << draw(tier, logits, n, &p);
    return set;
}

static void temperature_zero_is_the_lowest_id_of_the_largest_logit(void **state)
{
    (void)state;
    static const float logits[] = {1, 3, 2, 3, -INFINITY};
    static const float cold[] = {0.0f, -0.0f, 0x1p-149f};
    for (int tier = 0; tier < n_tiers; tier++)
        for (size_t i = 0; i < TG_COUNT(cold); i++)
            for (uint64_t seed = 0; seed < 50; seed++) {
                tg_sample_params p = {
                    .temperature = cold[i], .top_p = 0.1f, .top_k = 5, .min_p = 0.9f, .seed = seed};
                int32_t id = draw(tier, logits, 5, &p);
                /* a temperature that only almost is 0 may still draw among equals, but here
                 * top_p keeps the first of them alone */
                assert_int_equal(id, 1);
            }
}

static void nan_infinity_and_nothing_are_no_token(void **state)
{
    (void)state;
    const float bad[][3] = {
        {1, NAN, 2}, {1, INFINITY, 2}, {-INFINITY, -INFINITY, -INFINITY}, {-NAN, 1, 1}};
    for (int tier = 0; tier < n_tiers; tier++)
        for (size_t i = 0; i < TG_COUNT(bad); i++)
            for (int way = 0; way < 3; way++) {
                tg_sample_params p = {.temperature = (float)way, .top_k = way == 2 ? 2 : 0};
                assert_int_equal(draw(tier, bad[i], 3, &p), -1);
            }
}

/* The generator: the published vector of Philox4x32-10 for zeros (6627e8d5 e169c58d bc57ac4c
 * 9b00dbd8), and two computed by an independent implementation that also gives the published
 * vectors for all ones (408f276d ...) and for pi (d16cfe09 ...), whose counters cannot occur
 * here. */
static void the_generator_is_philox(void **state)
{
    (void)state;
    assert_true(tg_sample_uniform(0, 0, 0) == (float)(0x6627e8d5u >> 8) * 0x1p-24f);
    assert_true(tg_sample_uniform(0x0123456789abcdefu, 3, 7) ==
                (float)(0x2b892e56u >> 8) * 0x1p-24f);
    assert_true(tg_sample_uniform(42, 0, 4095) == (float)(0x930e69cfu >> 8) * 0x1p-24f);
}

static void the_generator_stays_below_one(void **state)
{
    (void)state;
    float most = 0;
    for (int32_t i = 0; i < 1000000; i++) {
        float u = tg_sample_uniform(7, 0, i);
        assert_true(u >= 0 && u < 1);
        most = u > most ? u : most;
    }
    assert_true(most > 0.99999f);
}

static void the_ends_of_u_draw_a_token_that_has_a_chance(void **state)
{
    (void)state;
    float p[200] = {0};
    p[3] = 0.25f;
    p[70] = 1.0f;
    p[130] = 0.5f; /* zeros before, between and behind, in three blocks */
    assert_int_equal(tg_sample_draw(p, 200, 0.0f), 3);
    assert_int_equal(tg_sample_draw(p, 200, 0x1.fffffep-1f), 130);
    assert_int_equal(tg_sample_draw(p, 200, 1.0f), 130); /* a broken generator falls off no end */
    /* the running sums are 0.25, 1.25, 1.75: u * 1.75 reaches them at 1/7 and 5/7 */
    assert_int_equal(tg_sample_draw(p, 200, 0.1428f), 3);
    assert_int_equal(tg_sample_draw(p, 200, 0.1429f), 70);
    assert_int_equal(tg_sample_draw(p, 200, 0.7142f), 70);
    assert_int_equal(tg_sample_draw(p, 200, 0.7143f), 130);
    memset(p, 0, sizeof p);
    assert_int_equal(tg_sample_draw(p, 200, 0.5f), -1);
}

/* Four equal tokens have p = 1 each and mass 4: the target top_p * 4 is exact at quarters. */
static void top_p_keeps_the_shortest_run_that_reaches_it(void **state)
{
    (void)state;
    static const float flat[] = {0, 0, 0, 0};
    static const struct {
        float top_p;
        uint32_t kept;
    } cases[] = {{0.25f, 1}, {0.2500001f, 3}, {0.5f, 3},  {0.75f, 7},      {0.7500001f, 15},
                 {1.0f, 15}, {0, 15},         {1e-9f, 1}, {0.9999999f, 15}};
    /* .5 .3 .2, away from the edges that rounding decides */
    static const float steps[] = {-0.6931472f, -1.2039728f, -1.6094379f};
    static const struct {
        float top_p;
        uint32_t kept;
    } more[] = {{0.49f, 1}, {0.51f, 3}, {0.79f, 3}, {0.81f, 7}, {1e-9f, 1}, {1.0f, 7}};
    for (int tier = 0; tier < n_tiers; tier++) {
        for (size_t i = 0; i < TG_COUNT(cases); i++) {
            tg_sample_params p = {.temperature = 1, .top_p = cases[i].top_p};
            assert_int_equal(draw_set(tier, flat, 4, p), cases[i].kept);
        }
        for (size_t i = 0; i < TG_COUNT(more); i++) {
            tg_sample_params p = {.temperature = 1, .top_p = more[i].top_p};
            assert_int_equal(draw_set(tier, steps, 3, p), more[i].kept);
        }
    }
}

static void top_k_breaks_ties_by_id_and_min_p_is_relative_to_the_best(void **state)
{
    (void)state;
    static const float logits[] = {1, 2, 2, 2, 0.5f};
    /* exp(-1) = 0.368, exp(-1.5) = 0.223 */
    static const struct {
        int32_t top_k;
        float min_p;
        uint32_t kept;
    } cases[] = {{1, 0, 2},  {2, 0, 6},      {3, 0, 14},     {4, 0, 15},
                 {5, 0, 31}, {0, 0.36f, 15}, {0, 0.37f, 14}, {0, 0.99f, 14},
                 {9, 0, 31}, {4, 0.22f, 15}, {0, 0.22f, 31}, {0, 0.23f, 15}};
    for (int tier = 0; tier < n_tiers; tier++)
        for (size_t i = 0; i < TG_COUNT(cases); i++) {
            tg_sample_params p = {
                .temperature = 1, .top_k = cases[i].top_k, .min_p = cases[i].min_p};
            assert_int_equal(draw_set(tier, logits, 5, p), cases[i].kept);
        }
}

/* 100 000 draws against the probabilities of what is kept, made to sum to 1 again: chi-square
 * with n - 1 degrees of freedom below its 99.99 % point (23.5 for 5 kept, 2 degrees of freedom:
 * 18.4). */
static void check_frequencies(int tier, tg_sample_params p, const double *want, int n_kept,
                              double limit)
{
    static const float logits[] = {2, 1, 0, 1.5f, -1, 0.5f, -2, 0.25f};
    enum { DRAWS = 100000 };
    int count[8] = {0};
    for (p.position = 0; p.position < DRAWS; p.position++)
        count[draw(tier, logits, 8, &p)]++;
    double chi = 0;
    for (int i = 0; i < 8; i++) {
        double expected = want[i] * DRAWS;
        if (expected == 0)
            assert_int_equal(count[i], 0);
        else
            chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    if (chi > limit) fail_msg("chi-square %g of %d tokens", chi, n_kept);
}

static void what_is_kept_shares_all_the_mass(void **state)
{
    (void)state;
    static const double e[] = {
        7.38905609893065,   2.718281828459045,   1,
        4.4816890703380645, 0.36787944117144233, 1.6487212707001282,
        0.1353352832366127, 1.2840254166877414}; /* exp of the logits above */
    double all = 0, best3 = e[0] + e[3] + e[1], want[8];
    for (int i = 0; i < 8; i++)
        all += e[i];
    for (int tier = 0; tier < n_tiers; tier++) {
        for (int i = 0; i < 8; i++)
            want[i] = e[i] / all;
        check_frequencies(tier, (tg_sample_params){.temperature = 1}, want, 8, 29.9);
        for (int i = 0; i < 8; i++)
            want[i] = i == 0 || i == 1 || i == 3 ? e[i] / best3 : 0;
        check_frequencies(tier, (tg_sample_params){.temperature = 1, .top_k = 3}, want, 3, 18.4);
        /* the best two hold .624 of the mass, the best three .767 */
        check_frequencies(tier, (tg_sample_params){.temperature = 1, .top_p = 0.7f}, want, 3, 18.4);
        check_frequencies(tier, (tg_sample_params){.temperature = 1, .min_p = 0.3f}, want, 3, 18.4);
    }
}

static void every_position_has_a_number_of_its_own(void **state)
{
    (void)state;
    static const float flat[] = {0, 0, 0, 0};
    int32_t ids[64];
    for (int tier = 0; tier < n_tiers; tier++) {
        int count[4] = {0};
        for (int32_t i = 0; i < 64; i++) {
            tg_sample_params p = {.temperature = 1, .seed = 1234, .position = i};
            ids[i] = draw(tier, flat, 4, &p);
            count[ids[i]]++;
        }
        for (int i = 0; i < 4; i++) /* 16 expected, standard deviation 3.5 */
            assert_in_range(count[i], 2, 32);
        for (int period = 1; period <= 32; period++) {
            int n_equal = 0;
            for (int i = 0; i + period < 64; i++)
                n_equal += ids[i] == ids[i + period];
            assert_true(n_equal < 64 - period);
        }
    }
    assert_true(tg_sample_uniform(1, 0, 5) != tg_sample_uniform(1, 1, 5));
    assert_true(tg_sample_uniform(1, 0, 5) != tg_sample_uniform(2, 0, 5));
    assert_true(tg_sample_uniform(1, 0, 5) != tg_sample_uniform((uint64_t)1 << 32 | 1, 0, 5));
}

static void penalties_divide_above_zero_and_multiply_below(void **state)
{
    (void)state;
    for (int tier = 0; tier < n_tiers; tier++) {
        float logits[] = {2, -2, 1, 0.5f};
        const tg_sample_adjust adjust[] = {
            {.id = 3, .bias = 100, .is_counted = 1}, /* another row's */
            {.id = 0, .is_counted = 1, .n_completion = 0},
            {.id = 1, .is_counted = 1, .n_completion = 0},
            {.id = 2, .is_counted = 0, .bias = 0.25f}};
        tg_sample_params p = {.repeat_penalty = 1.2f,
                              .presence = 0.5f,
                              .frequency = 0.25f,
                              .n_adjust = 3,
                              .adjust_at = 1};
        kernels[tier].sample_row(logits, 4, &p, adjust, scratch);
        /* 0 and 1 stand in the prompt only: the repetition penalty counts them, presence and
         * frequency do not */
        assert_true(logits[0] == 2.0f / 1.2f);
        assert_true(logits[1] == -2.0f * 1.2f);
        assert_true(logits[2] == 1.25f);
        assert_true(logits[3] == 0.5f);
    }
}

static void presence_counts_once_and_frequency_each_time(void **state)
{
    (void)state;
    for (int tier = 0; tier < n_tiers; tier++) {
        float logits[] = {2, -2, 1};
        const tg_sample_adjust adjust[] = {{.id = 0, .is_counted = 1, .n_completion = 3, .bias = 1},
                                           {.id = 1, .is_counted = 1, .n_completion = 1}};
        tg_sample_params p = {
            .repeat_penalty = 1.5f, .presence = 0.5f, .frequency = 0.25f, .n_adjust = 2};
        kernels[tier].sample_row(logits, 3, &p, adjust, scratch);
        assert_true(logits[0] == 2.0f - 0.5f - 0.75f); /* (2 + 1) / 1.5 = 2 */
        assert_true(logits[1] == -3.0f - 0.5f - 0.25f);
        assert_true(logits[2] == 1.0f);
    }
}

/* ---- against a full sort by the C library, in double */

static const float *sort_logits;

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sort_logits[x] != sort_logits[y]) return sort_logits[x] > sort_logits[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* How many of the best ids the parameters keep, when `slack` moves top_p and min_p to the generous
 * side. */
static int32_t count_kept(const float *logits, const int32_t *order, int32_t n,
                          const tg_sample_params *p, double slack)
{
    double max = (double)logits[order[0]], mass = 0, run = 0;
    int32_t kept = p->top_k > 0 && p->top_k < n ? p->top_k : n, i;
    while (kept > 1 &&
           exp(((double)logits[order[kept - 1]] - max) / (double)p->temperature) * (1 + slack) <
               (double)p->min_p)
        kept--;
    if (p->top_p <= 0 || p->top_p >= 1) return kept;
    for (i = 0; i < kept; i++)
        mass += exp(((double)logits[order[i]] - max) / (double)p->temperature);
    for (i = 0; i < kept && (i == 0 || run < (double)p->top_p * mass * (1 + slack)); i++)
        run += exp(((double)logits[order[i]] - max) / (double)p->temperature);
    return i;
}

static void what_is_drawn_is_what_a_full_sort_keeps(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    float logits[300];
    int32_t order[300];
    for (int i = 0; i < 10000; i++) {
        int32_t n = 1 + (int32_t)(tg_test_next(&seed) % 300);
        for (int32_t j = 0; j < n; j++) {
            order[j] = j;
            logits[j] = rintf(tg_test_uniform(&seed) * 8) / 2; /* many ties */
            if (tg_test_next(&seed) % 16 == 0 && j) logits[j] = -INFINITY;
        }
        sort_logits = logits;
        qsort(order, (size_t)n, sizeof *order, by_rank);
        static const float top_ps[] = {0, 0.3f, 0.9f}, min_ps[] = {0, 0.1f};
        tg_sample_params p = {.temperature = 0.8f,
                              .seed = tg_test_next(&seed),
                              .top_k = (int32_t)(tg_test_next(&seed) % 20),
                              .top_p = top_ps[tg_test_next(&seed) % 3],
                              .min_p = min_ps[tg_test_next(&seed) % 2]};
        int32_t kept = count_kept(logits, order, n, &p, 1e-5), first = draw(0, logits, n, &p);
        bool is_kept = false;
        for (int32_t j = 0; j < kept; j++)
            is_kept = is_kept || order[j] == first;
        if (!is_kept)
            fail_msg("seed %#llx, case %d: id %d", (unsigned long long)tg_test_seed(), i, first);
        for (int tier = 1; tier < n_tiers; tier++)
            assert_int_equal(draw(tier, logits, n, &p), first);
    }
}

int main(void)
{
    n_tiers = (int)tg_cpu_detect() + 1;
    for (int t = 0; t < n_tiers; t++)
        tg_kernels_fill(&kernels[t], (tg_cpu_tier)t);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_is_the_lowest_id_of_the_largest_logit),
        cmocka_unit_test(nan_infinity_and_nothing_are_no_token),
        cmocka_unit_test(the_generator_is_philox),
        cmocka_unit_test(the_generator_stays_below_one),
        cmocka_unit_test(the_ends_of_u_draw_a_token_that_has_a_chance),
        cmocka_unit_test(top_p_keeps_the_shortest_run_that_reaches_it),
        cmocka_unit_test(top_k_breaks_ties_by_id_and_min_p_is_relative_to_the_best),
        cmocka_unit_test(what_is_kept_shares_all_the_mass),
        cmocka_unit_test(every_position_has_a_number_of_its_own),
        cmocka_unit_test(penalties_divide_above_zero_and_multiply_below),
        cmocka_unit_test(presence_counts_once_and_frequency_each_time),
        cmocka_unit_test(what_is_drawn_is_what_a_full_sort_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
