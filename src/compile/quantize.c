/* SPDX-License-Identifier: Apache-2.0
 * quantize.c - the search for a block's scale, and its minimum where it has one.
 *
 * Given the codes, the best scale and minimum are a line through 32 points; given those, the best
 * codes are roundings. The two are alternated from a number of starts, because what they reach is
 * only the least error nearby: steps a little wider and narrower than the range asks for, laid from
 * its lower and from its upper end (a narrower one cuts off the other end). The start whose line
 * fits best wins; it is then rounded to f16, and its codes are chosen for the rounded numbers.
 *
 * Every square is weighted by how much its column matters, 1 where there is no calibration.
 * Weights of 1 change no bit: the products with them are exact.
 *
 * The search runs on y = (x - lo) / (hi - lo), so that neither a large minimum nor tiny weights
 * cost digits. Sums go in eight fixed lanes: the same bits from every compiler and machine. */
#include "compile/quantize.h"

#include "format/dtype.h"

#include <math.h>

enum { BLOCK = 32, LANES = 8 };

/* Steps the range is divided into at the start, less `top`. Root mean square error of Gaussian
 * blocks of 4 bits, as a share of the numbers': 0.0782 without a search, 0.0724 from the range
 * alone, 0.0691 from these 7, 0.0688 from 37. A block takes 1.3 us. */
static const float steps_more[] = {-1.2f, -0.8f, -0.4f, 0, 0.4f, 0.8f, 1.2f};

/* The line y = a q + b, and what it misses. */
typedef struct line {
    float a, b, err;
} line;

/* y and weights of a block, 0 beyond its end; sums are weighted. */
typedef struct block {
    float y[BLOCK], w[BLOCK];
    float sum_w, sum_y, sum_yy;
    float top;
} block;

static float add_lanes(const float *s)
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* The nearest code; v may be anything. */
static float round_code(float v, float top)
{
    float c = v > 0 ? v : 0;
    c = c < top ? c : top;
    return (float)(int)(c + 0.5f);
}

/* The line through the points (code, y) where the codes are those of y = a q + b. An error of
 * INFINITY: all codes are equal, and there is no line. */
static line fit(const block *t, float a, float b)
{
    float s_q[LANES] = {0}, s_qq[LANES] = {0}, s_yq[LANES] = {0};
    float inv = 1 / a;
    for (int i = 0; i < BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float q = round_code((t->y[i + j] - b) * inv, t->top), wq = t->w[i + j] * q;
            s_q[j] += wq;
            s_qq[j] += wq * q;
            s_yq[j] += wq * t->y[i + j];
        }
    float q = add_lanes(s_q), spread = add_lanes(s_qq) - q * q / t->sum_w;
    float both = add_lanes(s_yq) - q * t->sum_y / t->sum_w;
    if (!(spread > 0) || !(both > 0)) return (line){a, b, INFINITY};
    line l = {.a = both / spread};
    l.b = (t->sum_y - l.a * q) / t->sum_w;
    l.err = t->sum_yy - t->sum_y * t->sum_y / t->sum_w - both * l.a;
    return l;
}

static line search(const block *t)
{
    line best = {1 / t->top, 0, INFINITY};
    for (size_t i = 0; i < TG_COUNT(steps_more); i++) {
        float a = 1 / (t->top + steps_more[i]);
        float starts[2] = {0, 1 - a * t->top};
        for (int k = 0; k < 2; k++) {
            line l = fit(t, a, starts[k]);
            if (l.err < best.err) best = l;
        }
    }
    for (int i = 0; i < 4; i++) {
        line l = fit(t, best.a, best.b);
        if (!(l.err < best.err)) break;
        best = l;
    }
    return best;
}

/* Numbers to be coded, and the weights of their errors. */
typedef struct numbers {
    const float *x, *w;
    int n;
} numbers;

/* Codes for a scale and minimum as f16 holds them; returns the squared error. */
static double code(uint8_t q[BLOCK], float d, float m, numbers v, float top)
{
    double err = 0;
    for (int i = 0; i < v.n; i++) {
        q[i] = d > 0 ? (uint8_t)round_code((v.x[i] - m) / d, top) : 0;
        double miss = (double)d * q[i] + (double)m - (double)v.x[i];
        err += miss * miss * (double)v.w[i];
    }
    return err;
}

/* The least squares minimum for codes and a scale that are given. */
static float refit_minimum(const uint8_t *q, float d, numbers v)
{
    double sum = 0, sum_w = 0;
    for (int i = 0; i < v.n; i++) {
        sum += ((double)v.x[i] - (double)d * q[i]) * (double)v.w[i];
        sum_w += (double)v.w[i];
    }
    return (float)(sum / sum_w);
}

static const float ones[BLOCK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static bool is_held(uint16_t f16)
{
    return (f16 & 0x7fff) < 0x7c00;
}

static block begin_block(numbers v, float lo, float range, int top)
{
    block t = {.top = (float)top};
    float sw[LANES] = {0}, s[LANES] = {0}, ss[LANES] = {0};
    for (int i = 0; i < v.n; i++) {
        float y = (v.x[i] - lo) / range, wy = v.w[i] * y;
        t.y[i] = y;
        t.w[i] = v.w[i];
        sw[i % LANES] += v.w[i];
        s[i % LANES] += wy;
        ss[i % LANES] += wy * y;
    }
    t.sum_w = add_lanes(sw);
    t.sum_y = add_lanes(s);
    t.sum_yy = add_lanes(ss);
    return t;
}

bool tg_quantize_affine(uint8_t q[32], uint16_t *d, uint16_t *m, const float *x, const float *w,
                        int n, int top)
{
    numbers v = {x, w ? w : ones, n};
    TG_ASSERT(n >= 1 && n <= BLOCK && top >= 3 && top <= 255);
    float lo = x[0], hi = x[0];
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    for (int i = n; i < BLOCK; i++)
        q[i] = 0;

    /* The range in equal steps: what the search has to beat, after all roundings. */
    float range = hi - lo;
    *d = tg_f32_to_f16(range / (float)top);
    *m = tg_f32_to_f16(lo);
    if (!is_held(*d) || !is_held(*m)) return false;
    double err = code(q, tg_f16_to_f32(*d), tg_f16_to_f32(*m), v, (float)top);
    if (*d == 0) *m = tg_f32_to_f16(refit_minimum(q, 0, v)); /* one number, for f16 */
    if (*d == 0 || err == 0) return true;

    block t = begin_block(v, lo, range, top);
    line l = search(&t);
    uint8_t better[BLOCK] = {0};
    uint16_t d_better = tg_f32_to_f16(l.a * range), m_better = tg_f32_to_f16(lo + l.b * range);
    if (l.err == INFINITY || !is_held(d_better) || !is_held(m_better)) return true;
    float step = tg_f16_to_f32(d_better);
    (void)code(better, step, lo + l.b * range, v, (float)top);
    m_better = tg_f32_to_f16(refit_minimum(better, step, v));
    if (!is_held(m_better)) return true;
    if (!(code(better, step, tg_f16_to_f32(m_better), v, (float)top) < err)) return true;
    *d = d_better;
    *m = m_better;
    for (int i = 0; i < n; i++)
        q[i] = better[i];
    return true;
}

/* ---- without a minimum */

/* Codes for the scale d as f16 holds it; returns the squared error. */
static double code_q4_0(uint8_t q[BLOCK], float d, const float *x, const float *w)
{
    double err = 0;
    for (int i = 0; i < BLOCK; i++) {
        q[i] = d != 0 ? (uint8_t)round_code(x[i] / d + 8, 15) : 8;
        double miss = (double)d * (q[i] - 8) - (double)x[i];
        err += miss * miss * (double)w[i];
    }
    return err;
}

/* The least squares scale for the codes that the scale d gives y; *gain is by how much its error
 * is below that of a scale of 0. */
static float fit_q4_0(const float *y, const float *w, float d, float *gain)
{
    float s_qq[LANES] = {0}, s_yq[LANES] = {0};
    float inv = 1 / d;
    for (int i = 0; i < BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float q = round_code(y[i + j] * inv + 8, 15) - 8;
            s_qq[j] += w[i + j] * q * q;
            s_yq[j] += w[i + j] * q * y[i + j];
        }
    float qq = add_lanes(s_qq), yq = add_lanes(s_yq);
    *gain = qq > 0 ? yq * yq / qq : 0;
    return qq > 0 ? yq / qq : d;
}

/* The largest magnitude, 1 in y, is put at 6.4 to 9.2 steps, with either sign: there are eight
 * steps on one side of zero and seven on the other, and the largest may be cut off. */
static float search_q4_0(const float *y, const float *w)
{
    float best = 0, most = -1, gain;
    for (int k = 0; k < 16; k++) {
        float start = (k & 1 ? 1 : -1) / (6.4f + 0.4f * (float)(k / 2));
        float d = fit_q4_0(y, w, fit_q4_0(y, w, start, &gain), &gain);
        if (gain <= most) continue;
        most = gain;
        best = d;
    }
    return best;
}

bool tg_quantize_q4_0(uint8_t q[32], uint16_t *d, const float *x, const float *w)
{
    if (!w) w = ones;
    float y[BLOCK], amax = 0, max = 0; /* max: the first of the largest magnitude, with its sign */
    for (int i = 0; i < BLOCK; i++) {
        if (!isfinite(x[i])) return false;
        if (fabsf(x[i]) <= amax) continue;
        amax = fabsf(x[i]);
        max = x[i];
    }
    *d = tg_f32_to_f16(max / -8); /* ggml's scale: what the search has to beat */
    if (!is_held(*d)) return false;
    if ((*d & 0x7fff) == 0) *d = 0; /* of the two zeros one */
    double err = code_q4_0(q, tg_f16_to_f32(*d), x, w);
    if (amax < 0x1p-100f || err == 0) return true; /* a scale of 0; or nothing to gain */
    for (int i = 0; i < BLOCK; i++)
        y[i] = x[i] / amax;
    uint8_t better[BLOCK];
    uint16_t d_better = tg_f32_to_f16(search_q4_0(y, w) * amax);
    if (!is_held(d_better) || !(code_q4_0(better, tg_f16_to_f32(d_better), x, w) < err))
        return true;
    *d = d_better;
    for (int i = 0; i < BLOCK; i++)
        q[i] = better[i];
    return true;
}
