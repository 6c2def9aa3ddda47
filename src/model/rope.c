/* SPDX-License-Identifier: Apache-2.0
 * rope.c - rotary tables: from a rope specification to cosines and sines.
 *
 * A wrong bit here is an angle that is wrong by (position x 2^-24), so the steps are those of the
 * transformers library (modeling_rope_utils.py), each rounded to float32 where it rounds. Powers,
 * cosines and sines are computed in double and rounded once: the libraries' float versions
 * differ by a unit between processors, and an artifact must have the same bytes everywhere. */
#include "model/model.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

/* theta^(2i / rotary_dim), with the exponent rounded to float32 first. */
static float find_power(double theta, int32_t rotary_dim, int32_t i)
{
    float exponent = (float)(2 * i) / (float)rotary_dim;
    return (float)pow((double)(float)theta, (double)exponent);
}

/* NTK-aware base: grows with how much longer than the training length a text is. */
static double find_dynamic_theta(const tg_rope_spec *s, int32_t length)
{
    double longest = TG_MAX(length, s->original_max_positions);
    double ratio = s->factor * longest / s->original_max_positions - (s->factor - 1);
    return s->theta * pow(ratio, (double)s->rotary_dim / (s->rotary_dim - 2));
}

/* Long wavelengths are stretched by the factor, short ones left, those between blended. */
static float scale_llama3(const tg_rope_spec *s, float freq)
{
    float context = (float)s->original_max_positions, factor = (float)s->factor;
    float low = (float)s->low_freq_factor;
    float wavelength = (float)two_pi / freq;

    if (wavelength < (float)(s->original_max_positions / s->high_freq_factor)) return freq;
    if (wavelength > (float)(s->original_max_positions / s->low_freq_factor)) return freq / factor;
    float smooth = (context / wavelength - low) / (float)(s->high_freq_factor - s->low_freq_factor);
    return (1.0f - smooth) * freq / factor + smooth * freq;
}

/* The dimension whose wave turns `rotations` times in the training length. */
static double find_yarn_dim(const tg_rope_spec *s, double rotations)
{
    return s->rotary_dim * log(s->original_max_positions / (rotations * two_pi)) /
           (2 * log(s->theta));
}

static void fill_yarn(const tg_rope_spec *s, float *out)
{
    double low = find_yarn_dim(s, s->beta_fast), high = find_yarn_dim(s, s->beta_slow);
    if (s->is_truncated) {
        low = floor(low);
        high = ceil(high);
    }
    low = TG_MAX(low, 0.0);
    high = TG_MIN(high, (double)s->rotary_dim - 1);
    if (low == high) high += 0.001;

    for (int32_t i = 0; i < s->rotary_dim / 2; i++) {
        float power = find_power(s->theta, s->rotary_dim, i);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1.0f - ramp;
        out[i] = 1.0f / ((float)s->factor * power) * (1.0f - keep) + 1.0f / power * keep;
    }
}

void tg_rope_freqs(const tg_rope_spec *s, int32_t length, float *out)
{
    TG_ASSERT(s->rotary_dim > 0 && s->rotary_dim % 2 == 0);
    if (s->kind == TG_ROPE_YARN) {
        fill_yarn(s, out);
        return;
    }

    bool is_long = s->kind == TG_ROPE_LONGROPE && length > s->original_max_positions;
    const double *divisors = is_long ? s->long_freqs : s->freqs;
    double theta = s->kind == TG_ROPE_DYNAMIC ? find_dynamic_theta(s, length) : s->theta;
    for (int32_t i = 0; i < s->rotary_dim / 2; i++) {
        float power = find_power(theta, s->rotary_dim, i);
        if (s->kind == TG_ROPE_LONGROPE) {
            out[i] = 1.0f / ((float)divisors[i] * power);
            continue;
        }
        out[i] = 1.0f / power;
        if (s->kind == TG_ROPE_LINEAR) out[i] /= (float)s->factor;
        if (s->kind == TG_ROPE_LLAMA3) out[i] = scale_llama3(s, out[i]);
        if (divisors) out[i] /= (float)divisors[i];
    }
}

static bool depends_on_length(const tg_rope_spec *s)
{
    return s->kind == TG_ROPE_LONGROPE || s->kind == TG_ROPE_DYNAMIC;
}

int32_t tg_rope_original_length(const tg_hparams *h, int32_t max_length)
{
    for (int i = 0; i < TG_MAX_ROPES; i++) {
        const tg_rope_spec *s = &h->ropes[i];
        if (depends_on_length(s) && max_length > s->original_max_positions)
            return s->original_max_positions;
    }
    return 0;
}

tg_status tg_rope_check_lengths(const tg_hparams *h, const char *file, tg_err *e)
{
    const tg_rope_spec *a = &h->ropes[0], *b = &h->ropes[1];
    if (!depends_on_length(a) || !depends_on_length(b)) return TG_OK;
    if (a->original_max_positions == b->original_max_positions) return TG_OK;
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: the rope tables of global and of sliding layers have the original lengths "
                   "%d and %d; only equal ones are supported.",
                   file, a->original_max_positions, b->original_max_positions);
}

/* Rows [first, first + n) of the table for texts of `length` tokens. */
static void fill_table(const tg_rope_spec *s, int32_t length, int32_t first, int32_t n,
                       float *table)
{
    float freqs[TG_MAX_ROTARY_DIM / 2];
    int32_t half = s->rotary_dim / 2;
    float factor = (float)s->attention_factor;
    TG_ASSERT(s->rotary_dim <= TG_MAX_ROTARY_DIM && first >= 0 && first + n <= length);

    tg_rope_freqs(s, length, freqs);
    for (int32_t row = 0; row < n; row++, table += s->rotary_dim) {
        for (int32_t i = 0; i < half; i++) {
            float angle = (float)(first + row) * freqs[i];
            table[i] = (float)cos((double)angle) * factor;
            table[half + i] = (float)sin((double)angle) * factor;
        }
    }
}

void tg_rope_fill(const tg_rope_spec *s, int32_t original_length, int32_t max_length, int32_t first,
                  int32_t n, float *table)
{
    int32_t n_short = TG_MIN(TG_MAX(original_length - first, 0), n);
    if (n_short > 0) fill_table(s, original_length, first, n_short, table);
    if (n > n_short)
        fill_table(s, max_length, first + n_short - original_length, n - n_short,
                   table + (int64_t)n_short * s->rotary_dim);
}
