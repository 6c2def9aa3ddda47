/* SPDX-License-Identifier: Apache-2.0
 * sampling.h - what the sampler is told: parameters of a wanted row, and tokens to treat
 * differently.
 *
 * Plain data without padding: it lies in a step's input image (ir/io.h) as it is. */
#ifndef TG_FORMAT_SAMPLING_H
#define TG_FORMAT_SAMPLING_H

#include "base/base.h"

/* How a token is chosen from one row of logits. Zero is greedy. */
typedef struct tg_sample_params {
    float temperature;    /* 0: argmax */
    float top_p;          /* in (0, 1); 0 or 1: off */
    float min_p;          /* in [0, 1): 0: off */
    float repeat_penalty; /* > 0; 0 or 1: off. Tokens of prompt and answer: l > 0 ? l / p : l * p */
    float presence;       /* subtracted once from tokens that the answer holds; 0: off */
    float frequency;      /* subtracted once per occurrence in the answer; 0: off */
    int32_t top_k;        /* 0: off */
    int32_t position;     /* of the token being drawn: the generator's counter */
    uint64_t seed;        /* with sample_index the generator's key */
    int32_t sample_index;
    int32_t n_adjust;  /* entries for this row */
    int32_t adjust_at; /* first of them in the step's table */
    int32_t reserved;
} tg_sample_params;

/* A token whose logit is changed before anything else: penalties and bias, ids ascending, once
 * each. */
typedef struct tg_sample_adjust {
    int32_t id;
    int32_t n_completion; /* occurrences in the completion so far; an entry alone: in the text */
    float bias;           /* added first */
    int32_t is_counted;   /* 1: prompt or answer holds it; 0: only the bias applies */
} tg_sample_adjust;

#endif
