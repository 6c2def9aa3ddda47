/* SPDX-License-Identifier: Apache-2.0
 * trial.h - what a step that verifies drafts costs, beside a plain step; and medians.
 *
 * Cases take turns, a few milliseconds apart, so that a slow moment of the machine hits a step and
 * the plain step it is held against. */
#ifndef TG_APP_TRIAL_H
#define TG_APP_TRIAL_H

#include "app/session.h"

enum { TG_MAX_VERIFIED = 8 }; /* tokens of a step: beyond, drafting does not pay */

/* A median with its range. */
typedef struct tg_sample {
    double median, min, max;
} tg_sample;

typedef struct tg_verification {
    bool is_longest_only; /* asked: one case, of the most tokens */
    int32_t n_rows, depth, speculation;
    int32_t n_cases;                   /* 0: not measured */
    int32_t n_tokens[TG_MAX_VERIFIED]; /* of a row, by case; the first is 1 unless longest only */
    tg_sample ms[TG_MAX_VERIFIED];     /* of a step */
    tg_sample ratios[TG_MAX_VERIFIED]; /* to the plain step of the same round */
} tg_verification;

/* Steps of 1, 2, ... tokens a row, as many as the model's speculation allows, in n_rows rows that
 * hold `depth` tokens each; four rounds a repetition. */
TG_MUST_USE tg_status tg_verification_run(tg_verification *v, tg_session *s, int32_t n_rows,
                                          int32_t depth, int32_t n_repetitions, tg_err *e);
void tg_verification_print(const tg_verification *v, tg_buf *out);
/* Appends the member "verify". */
void tg_verification_report(const tg_verification *v, tg_buf *out);

/* Ascending; NaN, a speed without a step, stays where it is. */
void tg_sort(double *x, int32_t n);
/* Of sorted numbers; the mean of the middle two when n is even, as Python's statistics.median has
 * it. */
double tg_median(const double *sorted, int32_t n);

#endif
