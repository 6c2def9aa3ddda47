/* SPDX-License-Identifier: Apache-2.0 Blocks quantized with the least squared error, against
 * optima found by hand and by a dense search in double precision. */
#include "check.h"
#include "compile/quantize.h"
#include "format/dtype.h"

#include <math.h>

/* A block as a kernel sees it. */
typedef struct quantized {
    uint8_t q[32];
    uint16_t d, m;
} quantized;

static quantized quantize(const float *x, int n, int top)
{
    quantized b;
    memset(&b, 0xab, sizeof b);
    if (!tg_quantize_affine(b.q, &b.d, &b.m, x, NULL, n, top)) fail_msg("a block is refused");
    for (int i = 0; i < 32; i++)
        assert_true(i < n ? b.q[i] <= top : b.q[i] == 0);
    return b;
}

static double error_of(const quantized *b, const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double miss = (double)tg_f16_to_f32(b->d) * b->q[i] + (double)tg_f16_to_f32(b->m) - x[i];
        sum += miss * miss;
    }
    return sum;
}

/* The error of one scale and minimum with the best codes. */
static double error_with(double d, double m, const float *x, int n, int top)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double q = d > 0 ? floor((x[i] - m) / d + 0.5) : 0;
        q = fmin(fmax(q, 0), top);
        sum += (d * q + m - x[i]) * (d * q + m - x[i]);
    }
    return sum;
}

static void find_range(const float *x, int n, double *lo, double *hi)
{
    *lo = *hi = (double)x[0];
    for (int i = 1; i < n; i++) {
        *lo = fmin(*lo, x[i]);
        *hi = fmax(*hi, x[i]);
    }
}

/* Steps from 0.75 to 1.15 of the range's, minima within three steps: 200 by 300 points. Between
 * these points the search may find a smaller error. */
static double search_densely(const float *x, int n, int top)
{
    double lo, hi, best = INFINITY;
    find_range(x, n, &lo, &hi);
    double step = (hi - lo) / top;
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 300; k++) {
            double d = step * (0.75 + 0.002 * i), m = lo + step * (0.02 * k - 3);
            best = fmin(best, error_with(d, m, x, n, top));
        }
    return best;
}

/* The range in equal steps, with the scale and minimum as f16: the codes are
 * those of ggml's quantize_row_q4_1_ref. */
static double error_of_range(const float *x, int n, int top)
{
    double lo, hi, sum = 0;
    find_range(x, n, &lo, &hi);
    float d = (float)(hi - lo) / (float)top, inv = d > 0 ? 1 / d : 0;
    double d16 = tg_f16_to_f32(tg_f32_to_f16(d)), m16 = tg_f16_to_f32(tg_f32_to_f16((float)lo));
    for (int i = 0; i < n; i++) {
        double q = fmin(floorf((x[i] - (float)lo) * inv + 0.5f), top);
        sum += (d16 * q + m16 - x[i]) * (d16 * q + m16 - x[i]);
    }
    return sum;
}

static float gaussian(uint64_t *seed)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) /* uniform in [-1, 1): variance 4 */
        sum += tg_test_uniform(seed);
    return sum / 2;
}

static void numbers_on_a_grid_are_kept_exactly(void **state)
{
    (void)state;
    static const int tops[] = {15, 31};
    for (size_t k = 0; k < 2; k++) {
        float x[32];
        for (int i = 0; i < 32; i++)
            x[i] = -3 + 0.25f * (float)(i * 7 % (tops[k] + 1));
        quantized b = quantize(x, 32, tops[k]);
        assert_true(error_of(&b, x, 32) == 0);
        assert_int_equal(b.d, 0x3400); /* 0.25 */
        assert_int_equal(b.m, 0xc200); /* -3 */
    }
}

/* Codes 0 to 3 for 0, 0.9, 2.1 and 3. The line through the points (code, number): both have mean
 * 1.5, the products of the distances from it sum to 5.1 and the squares of the codes' to 5, so the
 * scale is 1.02 and the minimum 1.5 - 1.5 x 1.02 = -0.03. It misses by 0.03 twice and by 0.09
 * twice: 0.018. The range, 1 x code + 0, misses by 0.1 twice: 0.02. */
static void the_optimum_of_four_numbers_is_the_one_found_by_hand(void **state)
{
    (void)state;
    static const float x[4] = {0, 0.9f, 2.1f, 3};
    static const uint8_t q[4] = {0, 1, 2, 3};
    quantized b = quantize(x, 4, 3);
    assert_memory_equal(b.q, q, 4);
    assert_true(fabsf(tg_f16_to_f32(b.d) - 1.02f) <= 0x1p-11f);
    assert_true(fabsf(tg_f16_to_f32(b.m) + 0.03f) <= 0x1p-10f);
    assert_true(fabs(error_of(&b, x, 4) - 0.018) < 1e-5);
}

/* Within 5 % on the average block and twice on each; the f16 of scale and minimum costs a part. */
static void the_error_is_near_the_least_there_is(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    static const int tops[] = {15, 31};
    for (size_t k = 0; k < 2; k++) {
        double sum = 0, sum_least = 0;
        for (int block = 0; block < 40; block++) {
            float x[32];
            for (int i = 0; i < 32; i++)
                x[i] =
                    gaussian(&seed) * (i == 5 && block % 4 == 0 ? 6 : 1) + (float)(block % 3) * 2;
            quantized b = quantize(x, 32, tops[k]);
            double is = error_of(&b, x, 32), least = search_densely(x, 32, tops[k]);
            if (!(is <= 2 * least)) fail_msg("block %d: %g, least is %g", block, is, least);
            sum += is;
            sum_least += least;
        }
        print_message("top %d: %.4f of the least\n", tops[k], sum / sum_least);
        assert_true(sum <= 1.05 * sum_least);
    }
}

static void the_error_is_never_that_of_the_range_or_more(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    static const float scales[] = {1, 1e-3f, 3e-6f, 1e-8f, 1e-40f, 1.7f};
    for (int block = 0; block < 6000; block++) {
        float x[32], scale = scales[block % 6];
        int n = block % 5 ? 32 : 1 + block / 5 % 32, top = block & 1 ? 15 : 31;
        for (int i = 0; i < 32; i++) {
            x[i] = gaussian(&seed);
            if (block % 7 == 0) x[i] = x[i] * x[i] * x[i];       /* heavy tails */
            if (block % 11 == 0 && i == 3) x[i] *= 300;          /* one that dwarfs the rest */
            if (block % 13 == 0) x[i] = 9 + 0.001f * x[i];       /* far from zero */
            if (block % 17 == 0) x[i] = x[i] > 0 ? 1.0f : -1.0f; /* two values */
            x[i] *= scale;
        }
        quantized b = quantize(x, n, top);
        double is = error_of(&b, x, n), most = error_of_range(x, n, top);
        if (!(is <= most)) fail_msg("block %d of %d: %g, by the range %g", block, n, is, most);
    }
}

/* ---- q4_0 */

static double error_with_scale(double d, const float *x)
{
    double sum = 0;
    for (int i = 0; i < 32; i++) {
        double q = d != 0 ? fmin(fmax(floor(x[i] / d + 0.5), -8), 7) : 0;
        sum += (d * q - x[i]) * (d * q - x[i]);
    }
    return sum;
}

/* Scales of either sign that put the largest magnitude at 5.5 to 10.5 steps. */
static double search_scales_densely(const float *x)
{
    double lo, hi, best = INFINITY;
    find_range(x, 32, &lo, &hi);
    double amax = fmax(-lo, hi);
    for (int k = 0; k < 1000; k++)
        for (int sign = -1; sign <= 1; sign += 2)
            best = fmin(best, error_with_scale(sign * amax / (5.5 + 0.005 * k), x));
    return best;
}

static void without_a_minimum_the_error_is_near_the_least_too(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    double sum = 0, sum_least = 0, sum_plain = 0;
    for (int block = 0; block < 400; block++) {
        float x[32];
        float scale = block % 3 ? 0.05f : 20;
        for (int i = 0; i < 32; i++)
            x[i] = scale * gaussian(&seed) * (i == 5 && block % 4 == 0 ? 5 : 1);
        quantized b;
        if (!tg_quantize_q4_0(b.q, &b.d, x, NULL)) fail_msg("block %d is refused", block);
        double is = 0, most = 0, max = 0;
        for (int i = 0; i < 32; i++) {
            double miss = (double)tg_f16_to_f32(b.d) * (b.q[i] - 8) - x[i];
            assert_true(b.q[i] <= 15);
            is += miss * miss;
            if (fabsf(x[i]) > fabs(max)) max = x[i];
        }
        most = error_with_scale(tg_f16_to_f32(tg_f32_to_f16((float)max / -8)), x);
        if (!(is <= most)) fail_msg("block %d: %g, by the largest number %g", block, is, most);
        sum += is / (scale * scale);
        sum_plain += most / (scale * scale);
        sum_least += search_scales_densely(x) / (scale * scale);
    }
    print_message("%.4f of the least, %.4f of the plain\n", sum / sum_least, sum / sum_plain);
    assert_true(sum <= 1.01 * sum_least && sum < 0.95 * sum_plain);
}

/* 7 and -7 with 0 and 1 between: a scale of 1 or -1 has codes for all of them, where -7 / -8 has
 * not. */
static void a_scale_that_fits_is_found_whatever_its_sign(void **state)
{
    (void)state;
    static const float numbers[8] = {7, -7, 0, 1, -2, 3, 5, -4};
    for (int sign = -1; sign <= 1; sign += 2) {
        float x[32];
        for (int i = 0; i < 32; i++)
            x[i] = numbers[i % 8] * (float)sign;
        quantized b;
        assert_true(tg_quantize_q4_0(b.q, &b.d, x, NULL));
        assert_int_equal(b.d & 0x7fff, 0x3c00);
        assert_true(error_with_scale(tg_f16_to_f32(b.d), x) == 0);
        for (int i = 0; i < 32; i++)
            assert_true(tg_f16_to_f32(b.d) * (float)(b.q[i] - 8) == x[i]);
    }
    float zeros[32] = {0}, tiny[32] = {[3] = 1e-42f}, bad[32] = {[9] = NAN}, big[32] = {[9] = 1e6f};
    quantized b;
    assert_true(tg_quantize_q4_0(b.q, &b.d, zeros, NULL) && b.d == 0 && b.q[0] == 8);
    assert_true(tg_quantize_q4_0(b.q, &b.d, tiny, NULL) && (b.d & 0x7fff) == 0 && b.q[3] == 8);
    assert_false(tg_quantize_q4_0(b.q, &b.d, bad, NULL));
    assert_false(tg_quantize_q4_0(b.q, &b.d, big, NULL));
}

/* ---- weights */

static double square_of_miss(double q, double d, double m, double x)
{
    return (d * q + m - x) * (d * q + m - x);
}

/* Weighted errors of quantize and of other ways. For q4_0 m is 0 and codes begin at -8. */
static double weighted_error(double d, double m, const float *x, const float *w, int low, int top)
{
    double sum = 0;
    for (int i = 0; i < 32; i++) {
        double q = d != 0 ? fmin(fmax(floor((x[i] - m) / d + 0.5), low), top) : 0;
        sum += w[i] * square_of_miss(q, d, m, x[i]);
    }
    return sum;
}

/* Steps from 0.4 to 1.15 of the range's, as a number that does not matter may be cut off. */
static double search_weighted(const float *x, const float *w, int top)
{
    double lo, hi, best = INFINITY;
    find_range(x, 32, &lo, &hi);
    double step = (hi - lo) / top;
    for (int i = 0; i < 150; i++)
        for (int k = 0; k < 400; k++) {
            double d = step * (0.4 + 0.005 * i), m = lo + step * (0.03 * k - 3);
            best = fmin(best, weighted_error(d, m, x, w, 0, top));
        }
    return best;
}

static double search_scales_weighted(const float *x, const float *w)
{
    double lo, hi, best = INFINITY;
    find_range(x, 32, &lo, &hi);
    double amax = fmax(-lo, hi);
    for (int k = 0; k < 2000; k++)
        for (int sign = -1; sign <= 1; sign += 2)
            best = fmin(best, weighted_error(sign * amax / (5.5 + 0.01 * k), 0, x, w, -8, 7));
    return best;
}

/* A block of numbers and weights as activations give them: most within a few times of each other,
 * and in every fourth block one of a thousand times the others. */
static void fill_weighted(float *x, float *w, int block, uint64_t *seed)
{
    for (int i = 0; i < 32; i++) {
        float v = gaussian(seed);
        x[i] = gaussian(seed);
        w[i] = v * v + 0.01f;
    }
    if (block % 4 == 0) w[block / 4 % 32] = 1000;
}

static void weighted_errors_are_near_the_least_there_is(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    double sum[2] = {0}, least[2] = {0}, plain[2] = {0};
    for (int block = 0; block < 80; block++) {
        float x[32], w[32];
        quantized b, c;
        fill_weighted(x, w, block, &seed);
        assert_true(tg_quantize_affine(b.q, &b.d, &b.m, x, w, 32, 15));
        assert_true(tg_quantize_affine(c.q, &c.d, &c.m, x, NULL, 32, 15));
        for (int i = 0; i < 32; i++) {
            sum[0] += w[i] * square_of_miss(b.q[i], tg_f16_to_f32(b.d), tg_f16_to_f32(b.m), x[i]);
            plain[0] += w[i] * square_of_miss(c.q[i], tg_f16_to_f32(c.d), tg_f16_to_f32(c.m), x[i]);
        }
        least[0] += search_weighted(x, w, 15);
        assert_true(tg_quantize_q4_0(b.q, &b.d, x, w));
        assert_true(tg_quantize_q4_0(c.q, &c.d, x, NULL));
        for (int i = 0; i < 32; i++) {
            sum[1] += w[i] * square_of_miss(b.q[i] - 8, tg_f16_to_f32(b.d), 0, x[i]);
            plain[1] += w[i] * square_of_miss(c.q[i] - 8, tg_f16_to_f32(c.d), 0, x[i]);
        }
        least[1] += search_scales_weighted(x, w);
    }
    for (int k = 0; k < 2; k++)
        print_message("%s: %.4f of the least, %.4f of the unweighted\n", k ? "q4_0" : "q4_1",
                      sum[k] / least[k], sum[k] / plain[k]);
    assert_true(sum[0] <= 1.2 * least[0] && sum[0] < 0.7 * plain[0]);
    assert_true(sum[1] <= 1.1 * least[1] && sum[1] < 0.8 * plain[1]);
}

static void equal_weights_are_none(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    for (int block = 0; block < 100; block++) {
        float x[32], w[32];
        quantized a, b;
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        for (int i = 0; i < 32; i++) {
            x[i] = gaussian(&seed);
            w[i] = 4;
        }
        assert_true(tg_quantize_affine(a.q, &a.d, &a.m, x, NULL, 32, 31));
        assert_true(tg_quantize_affine(b.q, &b.d, &b.m, x, w, 32, 31));
        assert_memory_equal(&a, &b, sizeof a);
        assert_true(tg_quantize_q4_0(a.q, &a.d, x, NULL) && tg_quantize_q4_0(b.q, &b.d, x, w));
        assert_memory_equal(&a, &b, sizeof a);
    }
}

static void equal_numbers_have_no_scale_and_zeros_stay(void **state)
{
    (void)state;
    static const float values[] = {0, 1.5f, -0.1f, 65504, 1e-7f, 1e-42f};
    for (size_t k = 0; k < TG_COUNT(values); k++) {
        float x[32];
        for (int i = 0; i < 32; i++)
            x[i] = values[k];
        quantized b = quantize(x, 32, 15);
        assert_int_equal(b.d, 0);
        assert_int_equal(b.m, tg_f32_to_f16(values[k]));
    }
}

static void what_lies_beyond_the_end_does_not_matter(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    for (int n = 1; n < 32; n++) {
        float x[32], y[32];
        for (int i = 0; i < 32; i++) {
            x[i] = gaussian(&seed);
            y[i] = i < n ? x[i] : NAN;
        }
        quantized a = quantize(x, n, 15), b = quantize(y, n, 15);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

static void what_f16_cannot_hold_is_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, -65520, 1e6f, 3e38f};
    for (size_t k = 0; k < TG_COUNT(bad); k++) {
        float x[32] = {0};
        quantized b;
        x[9] = bad[k];
        assert_false(tg_quantize_affine(b.q, &b.d, &b.m, x, NULL, 32, 15));
    }
    float both[2] = {-3e38f, 3e38f}; /* the range itself overflows */
    quantized b;
    assert_false(tg_quantize_affine(b.q, &b.d, &b.m, both, NULL, 2, 15));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_on_a_grid_are_kept_exactly),
        cmocka_unit_test(the_optimum_of_four_numbers_is_the_one_found_by_hand),
        cmocka_unit_test(the_error_is_near_the_least_there_is),
        cmocka_unit_test(the_error_is_never_that_of_the_range_or_more),
        cmocka_unit_test(without_a_minimum_the_error_is_near_the_least_too),
        cmocka_unit_test(weighted_errors_are_near_the_least_there_is),
        cmocka_unit_test(equal_weights_are_none),
        cmocka_unit_test(a_scale_that_fits_is_found_whatever_its_sign),
        cmocka_unit_test(equal_numbers_have_no_scale_and_zeros_stay),
        cmocka_unit_test(what_lies_beyond_the_end_does_not_matter),
        cmocka_unit_test(what_f16_cannot_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
