/* SPDX-License-Identifier: Apache-2.0
 * cases_sample.h - every road to a token against the full sort of the definition. The
 * definition's own values are checked by tests/unit/kernel/test_sample.c. */
#ifndef TG_TESTS_KERNELS_CASES_SAMPLE_H
#define TG_TESTS_KERNELS_CASES_SAMPLE_H

#include "support.h"

/* Logits with many ties, ties at the edge of top_k, masked tokens, flat and peaked rows. */
static void make_logits(check *c, float *logits, int32_t n)
{
    int kind = next_below(c, 8);
    float width = ldexpf(1, next_below(c, 8) - 2);
    for (int32_t i = 0; i < n; i++) {
        logits[i] = next_normal(c) * width;
        if (kind == 1) logits[i] = rintf(logits[i]);
        if (kind == 2) logits[i] = (float)next_below(c, 2);
        if (kind == 3 && next_below(c, 2)) logits[i] = -INFINITY;
        if (kind == 4) logits[i] = i % 2 ? 0.0f : -0.0f;
        if (kind == 5) logits[i] = i == n / 2 ? 100.0f : logits[i];
        if (kind == 6 && next_below(c, n) == 0) logits[i] = next_below(c, 2) ? NAN : INFINITY;
        if (kind == 7) logits[i] = -INFINITY;
    }
    if (kind == 7 && next_below(c, 2)) logits[next_below(c, n)] = -1e30f;
}

static tg_sample_params next_params(check *c, int32_t n)
{
    static const float top_ps[] = {0, 0, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999999f, 1.0f, 1e-9f};
    static const float min_ps[] = {0, 0, 0, 0.05f, 0.5f, 1e-4f, 0.999f};
    static const float temperatures[] = {0, 1, 0.7f, 2.0f, 0.01f, 1e-45f, 100.0f};
    static const int32_t top_ks[] = {0, 0, 1, 2, 5, 40, 64, 200, 1000000};
    tg_sample_params p = {
        .temperature = temperatures[next_u32(c) % TG_COUNT(temperatures)],
        .top_p = top_ps[next_u32(c) % TG_COUNT(top_ps)],
        .min_p = min_ps[next_u32(c) % TG_COUNT(min_ps)],
        .top_k = top_ks[next_u32(c) % TG_COUNT(top_ks)],
        .seed = tg_test_next(&c->rng),
        .position = next_below(c, 4096),
        .sample_index = next_below(c, 4),
    };
    if (next_below(c, 4) == 0) p.top_k = n;
    if (next_below(c, 2)) p.repeat_penalty = 1.2f, p.presence = 0.5f, p.frequency = 0.25f;
    return p;
}

static void check_sample_row(check *c)
{
    enum { MAX_VOCAB = 70000, N_CASES = 10000 };
    for (int i = 0; i < N_CASES; i++) {
        int32_t n = i % 100 == 99 ? 49152 + next_below(c, 200)
                    : i % 10 == 9 ? 1 + next_below(c, 5000)
                                  : 1 + next_below(c, 300);
        size_t bytes = 4 * (size_t)n;
        float *got = end_buffer(0, bytes), *want = end_buffer(1, bytes);
        make_logits(c, got, n);
        memcpy(want, got, bytes);
        tg_sample_params p = next_params(c, n);
        tg_sample_adjust adjust[8] = {{.id = -1}, {.id = -1}};
        p.adjust_at = 2;
        for (int32_t id = next_below(c, 20); id < n && p.n_adjust < 6; id += 1 + next_below(c, 30))
            adjust[2 + p.n_adjust++] = (tg_sample_adjust){.id = id,
                                                          .n_completion = next_below(c, 3),
                                                          .is_counted = next_below(c, 2),
                                                          .bias = next_normal(c)};
        snprintf(c->what, sizeof c->what,
                 "case %d: n %d, temperature %g, top_k %d, top_p %g, min_p %g, %d adjusted", i, n,
                 (double)p.temperature, p.top_k, (double)p.top_p, (double)p.min_p, p.n_adjust);
        void *scratch = end_buffer(2, tg_align_up(tg_sample_scratch_bytes(n), 64));
        int32_t a = c->k->sample_row(got, n, &p, adjust, scratch);
        int32_t b = c->ref->sample_row(want, n, &p, adjust, scratch);
        if (a != b) fail_check("%s: chose %d, should be %d", c->what, a, b);
        compare_floats(c, "logits", got, want, (size_t)n);
    }
}

#endif
