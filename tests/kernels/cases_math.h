/* SPDX-License-Identifier: Apache-2.0
 * cases_math.h - quantize, norms, rope, glu, add, scale, softcap: against ref to the bit, ref
 * against double. */
#ifndef TG_TESTS_KERNELS_CASES_MATH_H
#define TG_TESTS_KERNELS_CASES_MATH_H

#include "support.h"

/* Lengths 0..129 one by one, then real widths. */
static int32_t next_length(int32_t i)
{
    static const int32_t wide[] = {576, 640, 1536, 2048, 2056};
    return i <= 129 ? i : wide[i - 130];
}

enum { N_LENGTHS = 135 };

static void check_quantize(check *c)
{
    for (int32_t i = 0; i < N_LENGTHS * N_MOODS * MAP_KIND_COUNT; i++) {
        int32_t n = next_length(i % N_LENGTHS), n_outliers;
        mood how = (mood)(i / N_LENGTHS % N_MOODS);
        map_kind kind = (map_kind)(i / N_LENGTHS / N_MOODS);
        snprintf(c->what, sizeof c->what, "n %d, map %d, mood %d", n, kind, how);
        const int16_t *map = draw_map(c, 3, n, kind, &n_outliers);
        float *x = end_buffer(0, 4 * (size_t)n);
        fill_floats(c, x, (size_t)n, how);
        size_t bytes = tg_a8_bytes(1, n, n_outliers);
        void *a = end_buffer(1, bytes), *b = end_buffer(2, bytes);
        tg_a8 got, want;
        tg_a8_kind wanted =
            draw_kind(c, map, n_outliers, (tg_layout)next_below(c, TG_LAYOUT_COUNT));
        tg_a8_place(&got, a, 1, n, &wanted);
        tg_a8_place(&want, b, 1, n, &wanted);
        c->k->quantize(&got, x, n);
        c->ref->quantize(&want, x, n);
        size_t codes = (size_t)got.padded, groups = codes / 32;
        compare_bytes(c, "hi", got.hi, want.hi, codes);
        if (n_outliers) compare_bytes(c, "lo", got.lo, want.lo, 32 * (size_t)n_outliers);
        compare_floats(c, "scale", got.scale, want.scale, groups);
        compare_floats(c, "ssum", got.ssum, want.ssum, groups);
        compare_bytes(c, "sum", got.sum, want.sum, groups * 4);
        compare_bytes(c, "half", got.half, want.half, groups * 4);
        if (wanted.has_pairs) compare_bytes(c, "pair", got.pair, want.pair, groups * 4);
    }
}

/* A code is the nearest one: |x - scale code| <= scale / 2 and a little for the roundings of scale,
 * reciprocal and product (each 2^-24 of at most `top` codes). */
static void truth_quantize(check *c)
{
    for (int32_t i = 0; i < MAP_KIND_COUNT * N_LENGTHS; i++) {
        int32_t n = next_length(i % N_LENGTHS), n_outliers;
        map_kind kind = (map_kind)(i / N_LENGTHS);
        snprintf(c->what, sizeof c->what, "n %d, map %d", n, kind);
        const int16_t *map = draw_map(c, 3, n, kind, &n_outliers);
        float *x = end_buffer(0, 4 * (size_t)n);
        fill_floats(c, x, (size_t)n, CALM);
        tg_a8 a;
        tg_a8_kind wanted =
            draw_kind(c, map, n_outliers, (tg_layout)next_below(c, TG_LAYOUT_COUNT));
        tg_a8_place(&a, end_buffer(1, tg_a8_bytes(1, n, n_outliers)), 1, n, &wanted);
        c->ref->quantize(&a, x, n);
        for (int64_t g = 0; g < a.padded / 32; g++) {
            int32_t sum = 0, half = 0;
            double scale = (double)a.scale[g], top = n_outliers && map[g] >= 0 ? 32512 : a.top;
            for (int64_t j = 32 * g; j < 32 * g + 32; j++) {
                int32_t v = get_code(&a, j);
                double want = j < n ? (double)x[j] : 0;
                compare_bound(c, "x", (size_t)j, v * scale, want,
                              scale * (0.5 + top * 4 * 0x1p-24));
                if (abs(v) > (int)top) fail_check("%s: a code is %d", c->what, v);
                sum += v;
                if (j % 32 < 16) half += v;
            }
            if (a.pair && a.pair[g] != sum_pairs(&a, g)) fail_check("%s: pairs", c->what);
            if (sum != a.sum[g] || half != a.half[g]) fail_check("%s: code sums", c->what);
            compare_bound(c, "ssum", (size_t)g, (double)a.ssum[g], scale * sum,
                          fabs(scale * sum) * 0x1p-24);
        }
    }
}

static void check_rms_norm(check *c)
{
    for (int32_t i = 0; i < N_LENGTHS * N_MOODS; i++) {
        int32_t n = next_length(i % N_LENGTHS);
        size_t bytes = 4 * (size_t)n;
        snprintf(c->what, sizeof c->what, "n %d, mood %d", n, i / N_LENGTHS);
        float *x = end_buffer(0, bytes), *w = end_buffer(1, bytes);
        fill_floats(c, x, (size_t)n, (mood)(i / N_LENGTHS));
        fill_floats(c, w, (size_t)n, (mood)(i / N_LENGTHS));
        float *got = end_buffer(2, bytes), *want = end_buffer(3, bytes);
        c->k->rms_norm(got, x, w, n, 1e-5f);
        c->ref->rms_norm(want, x, w, n, 1e-5f);
        compare_floats(c, "y", got, want, (size_t)n);
        c->k->rms_norm(x, x, w, n, 1e-5f); /* in place */
        compare_floats(c, "y in place", x, want, (size_t)n);
    }
}

static void truth_rms_norm(check *c)
{
    for (int32_t i = 0; i < N_LENGTHS; i++) {
        int32_t n = next_length(i);
        snprintf(c->what, sizeof c->what, "n %d", n);
        float *x = end_buffer(0, 4 * (size_t)n), *w = end_buffer(1, 4 * (size_t)n);
        fill_floats(c, x, (size_t)n, CALM);
        fill_floats(c, w, (size_t)n, CALM);
        float *y = end_buffer(2, 4 * (size_t)n);
        c->ref->rms_norm(y, x, w, n, 1e-5f);
        double s = 0;
        for (int32_t j = 0; j < n; j++)
            s += (double)x[j] * (double)x[j];
        double r = 1 / sqrt(s / n + (double)1e-5f);
        for (int32_t j = 0; j < n; j++) {
            double want = (double)x[j] * r * (double)w[j];
            compare_bound(c, "y", (size_t)j, (double)y[j], want,
                          fabs(want) * (n / 32 + 6) * 0x1p-24);
        }
    }
}

static void check_layer_norm(check *c)
{
    for (int32_t i = 0; i < N_LENGTHS * N_MOODS * 2; i++) {
        int32_t n = next_length(i % N_LENGTHS);
        size_t bytes = 4 * (size_t)n;
        mood how = (mood)(i / N_LENGTHS % N_MOODS);
        bool has_bias = i / N_LENGTHS / N_MOODS;
        snprintf(c->what, sizeof c->what, "n %d, mood %d, bias %d", n, how, has_bias);
        float *x = end_buffer(0, bytes), *w = end_buffer(1, bytes), *bias = end_buffer(4, bytes);
        fill_floats(c, x, (size_t)n, how);
        fill_floats(c, w, (size_t)n, how);
        fill_floats(c, bias, (size_t)n, how);
        float *got = end_buffer(2, bytes), *want = end_buffer(3, bytes);
        c->k->layer_norm(got, x, w, has_bias ? bias : NULL, n, 1e-5f);
        c->ref->layer_norm(want, x, w, has_bias ? bias : NULL, n, 1e-5f);
        compare_floats(c, "y", got, want, (size_t)n);
        c->k->layer_norm(x, x, w, has_bias ? bias : NULL, n, 1e-5f); /* in place */
        compare_floats(c, "y in place", x, want, (size_t)n);
    }
}

static void truth_layer_norm(check *c)
{
    for (int32_t i = 1; i < N_LENGTHS; i++) {
        int32_t n = next_length(i);
        snprintf(c->what, sizeof c->what, "n %d", n);
        float *x = end_buffer(0, 4 * (size_t)n), *w = end_buffer(1, 4 * (size_t)n);
        float *bias = end_buffer(2, 4 * (size_t)n), *y = end_buffer(3, 4 * (size_t)n);
        fill_floats(c, x, (size_t)n, CALM);
        fill_floats(c, w, (size_t)n, CALM);
        fill_floats(c, bias, (size_t)n, CALM);
        c->ref->layer_norm(y, x, w, bias, n, 1e-5f);
        double mean = 0, mass = 0, s = 0;
        for (int32_t j = 0; j < n; j++) {
            mean += (double)x[j] / n;
            mass += fabs((double)x[j]) / n;
        }
        for (int32_t j = 0; j < n; j++)
            s += ((double)x[j] - mean) * ((double)x[j] - mean);
        double r = 1 / sqrt(s / n + (double)1e-5f), off = (n / 16 + 6) * mass;
        for (int32_t j = 0; j < n; j++) {
            double d = ((double)x[j] - mean) * r * (double)w[j], want = d + (double)bias[j];
            double bound = fabs(d) * (n / 32 + 10 + 2 * off * r) + off * r * fabs((double)w[j]);
            compare_bound(c, "y", (size_t)j, (double)y[j], want, (bound + fabs(want)) * 0x1p-24);
        }
    }
}

/* In place over the same numbers, by the tier and by the definition. */
static void check_each(check *c, bool is_cap)
{
    for (int32_t i = 0; i < N_LENGTHS * N_MOODS; i++) {
        int32_t n = next_length(i % N_LENGTHS);
        size_t bytes = 4 * (size_t)n;
        snprintf(c->what, sizeof c->what, "n %d, mood %d", n, i / N_LENGTHS);
        float *got = end_buffer(0, bytes), *want = end_buffer(1, bytes);
        fill_floats(c, got, (size_t)n, (mood)(i / N_LENGTHS));
        for (int32_t j = 0; j < n; j++) /* the edges of exp */
            if (next_below(c, 8) == 0) got[j] = got[j] * 50.0f;
        memcpy(want, got, bytes);
        (is_cap ? c->k->softcap : c->k->scale)(got, n, 1.7f);
        (is_cap ? c->ref->softcap : c->ref->scale)(want, n, 1.7f);
        compare_floats(c, "y", got, want, (size_t)n);
    }
}

static void check_scale(check *c)
{
    check_each(c, false);
}

static void truth_scale(check *c)
{
    float y[3] = {3, -0.125f, INFINITY};
    snprintf(c->what, sizeof c->what, "times 0.25");
    c->ref->scale(y, 3, 0.25f); /* exact: a power of two */
    if (y[0] != 0.75f || y[1] != -0.03125f || y[2] != INFINITY) fail_check("%s", c->what);
}

static void check_cap(check *c)
{
    check_each(c, true);
}

static void truth_cap(check *c)
{
    for (int i = -100000; i <= 100000; i++) {
        float x = (float)i * 1e-2f, y = x;
        snprintf(c->what, sizeof c->what, "x %.9g", (double)x);
        c->ref->softcap(&y, 1, 30.0f);
        compare_bound(c, "y", 0, (double)y, 30 * tanh((double)x / 30), 30 * 0x1p-21);
    }
}

static void check_rope(check *c)
{
    for (int32_t i = 0; i <= 130 * N_MOODS; i++) {
        int32_t half = i % 130;
        size_t bytes = 4 * (size_t)half;
        snprintf(c->what, sizeof c->what, "n_rot %d", 2 * half);
        float *got = end_buffer(0, 2 * bytes), *want = end_buffer(1, 2 * bytes);
        float *cosine = end_buffer(2, bytes), *sine = end_buffer(3, bytes);
        fill_floats(c, got, 2 * (size_t)half, (mood)(i / 130 % N_MOODS));
        fill_floats(c, cosine, (size_t)half, CALM);
        fill_floats(c, sine, (size_t)half, CALM);
        memcpy(want, got, 2 * bytes);
        c->k->rope(got, cosine, sine, 2 * half);
        c->ref->rope(want, cosine, sine, 2 * half);
        compare_floats(c, "x", got, want, 2 * (size_t)half);
    }
}

static void truth_rope(check *c)
{
    enum { HALF = 64 };
    float x[2 * HALF], y[2 * HALF], cosine[HALF], sine[HALF];
    snprintf(c->what, sizeof c->what, "n_rot %d", 2 * HALF);
    fill_floats(c, x, 2 * HALF, CALM);
    for (int i = 0; i < HALF; i++) {
        double angle = (double)next_normal(c) * 100;
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
    memcpy(y, x, sizeof y);
    c->ref->rope(y, cosine, sine, 2 * HALF);
    for (int i = 0; i < HALF; i++) {
        double a = (double)x[i], b = (double)x[i + HALF], co = (double)cosine[i],
               si = (double)sine[i];
        double bound = (fabs(a) + fabs(b)) * 0x1p-23;
        compare_bound(c, "y", (size_t)i, (double)y[i], a * co - b * si, bound);
        compare_bound(c, "y", (size_t)(i + HALF), (double)y[i + HALF], b * co + a * si, bound);
    }
}

static void check_glu_of(check *c, tg_act act)
{
    for (int32_t i = 0; i < N_LENGTHS * N_MOODS; i++) {
        int32_t n = next_length(i % N_LENGTHS);
        size_t bytes = 4 * (size_t)n;
        snprintf(c->what, sizeof c->what, "n %d, mood %d", n, i / N_LENGTHS);
        float *gate = end_buffer(0, bytes), *up = end_buffer(1, bytes);
        fill_floats(c, gate, (size_t)n, (mood)(i / N_LENGTHS));
        fill_floats(c, up, (size_t)n, (mood)(i / N_LENGTHS));
        for (int32_t j = 0; j < n; j++) /* the edges of exp: -87 and 88 and around */
            if (next_below(c, 8) == 0) gate[j] = gate[j] * 50.0f;
        float *got = end_buffer(2, bytes), *want = end_buffer(3, bytes);
        c->k->glu[act](got, gate, up, n);
        c->ref->glu[act](want, gate, up, n);
        compare_floats(c, "y", got, want, (size_t)n);
        c->k->glu[act](gate, gate, up, n);
        compare_floats(c, "y in place", gate, want, (size_t)n);
    }
}

static void check_silu(check *c)
{
    check_glu_of(c, TG_ACT_SILU);
}

static void check_gelu(check *c)
{
    check_glu_of(c, TG_ACT_GELU_TANH);
}

/* Exact activations from their definitions: x sigmoid(x), and GELU's tanh form (Hendrycks and
 * Gimpel, 2016): x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
static double act_exact(tg_act act, double x)
{
    if (act == TG_ACT_SILU) return x / (1 + exp(-x));
    return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void truth_glu_of(check *c, tg_act act)
{
    for (int i = -100000; i <= 100000; i++) {
        float g = (float)i * 1e-3f, up = 1, y;
        snprintf(c->what, sizeof c->what, "g %.9g", (double)g);
        c->ref->glu[act](&y, &g, &up, 1);
        compare_bound(c, "y", 0, (double)y, act_exact(act, (double)g), fabs((double)g) * 0x1p-21);
    }
}

static void truth_silu(check *c)
{
    truth_glu_of(c, TG_ACT_SILU);
}

static void truth_gelu(check *c)
{
    truth_glu_of(c, TG_ACT_GELU_TANH);
}

static void check_add(check *c)
{
    for (int32_t i = 0; i < N_LENGTHS * N_MOODS; i++) {
        int32_t n = next_length(i % N_LENGTHS);
        size_t bytes = 4 * (size_t)n;
        snprintf(c->what, sizeof c->what, "n %d", n);
        float *x = end_buffer(0, bytes), *got = end_buffer(1, bytes), *want = end_buffer(2, bytes);
        fill_floats(c, x, (size_t)n, (mood)(i / N_LENGTHS));
        fill_floats(c, got, (size_t)n, (mood)(i / N_LENGTHS));
        memcpy(want, got, bytes);
        c->k->add(got, x, n);
        for (int32_t j = 0; j < n; j++)
            want[j] = want[j] + x[j];
        compare_floats(c, "y", got, want, (size_t)n);
    }
}

/* ---- peak rates: exact integers, so the truth is a calculation of another form */

static const uint64_t *draw_words(check *c, int32_t n)
{
    uint64_t *p = end_buffer(0, 8 * (size_t)n);
    for (int32_t i = 0; i < n; i++)
        p[i] = (uint64_t)next_u32(c) << 32 | next_u32(c);
    return p;
}

static void check_sum_words(check *c)
{
    for (int32_t n = 0; n <= 64 * 40; n += 64) {
        snprintf(c->what, sizeof c->what, "n %d", n);
        const uint64_t *p = draw_words(c, n);
        if (c->k->sum_words(p, n) != c->ref->sum_words(p, n)) fail_check("%s: sum", c->what);
    }
}

/* Halves apart, carried by hand. */
static void truth_sum_words(check *c)
{
    const uint64_t *p = draw_words(c, 6400);
    uint64_t low = 0, high = 0;
    for (int32_t i = 0; i < 6400; i++) {
        low += p[i] & 0xffffffffu;
        high += p[i] >> 32;
    }
    if (c->ref->sum_words(p, 6400) != ((high + (low >> 32)) << 32) + (low & 0xffffffffu))
        fail_check("sum of 6400 words");
}

static void draw_products(check *c, uint8_t **u, int8_t **s, bool is_extreme)
{
    *u = end_buffer(0, TG_PEAK_BYTES);
    *s = end_buffer(1, 64);
    for (int32_t i = 0; i < TG_PEAK_BYTES; i++)
        (*u)[i] = is_extreme ? 15 : (uint8_t)next_below(c, 16);
    for (int32_t i = 0; i < 64; i++)
        (*s)[i] = (int8_t)(is_extreme ? -128 : next_below(c, 256) - 128);
}

static void check_sum_products(check *c)
{
    static const int64_t rounds[] = {0, 1, 2, 3, 1000, 4001};
    for (int32_t i = 0; i < 2 * (int32_t)TG_COUNT(rounds); i++) {
        uint8_t *u;
        int8_t *s;
        int64_t n = rounds[i / 2];
        snprintf(c->what, sizeof c->what, "%d rounds", (int)n);
        draw_products(c, &u, &s, i % 2);
        if (c->k->sum_products(u, s, n) != c->ref->sum_products(u, s, n))
            fail_check("%s: sum", c->what);
    }
}

/* One round's sum in 64 bits, times the rounds. */
static void truth_sum_products(check *c)
{
    for (int32_t n = 0; n < 300; n += 37) {
        uint8_t *u;
        int8_t *s;
        int64_t one = 0;
        draw_products(c, &u, &s, n % 2);
        for (int32_t i = 0; i < 64; i++)
            for (int32_t j = i; j < TG_PEAK_BYTES; j += 64)
                one += (int64_t)s[i] * u[j];
        if (c->ref->sum_products(u, s, n) != (uint32_t)(uint64_t)(one * n))
            fail_check("%d rounds: sum", n);
    }
}

#endif
