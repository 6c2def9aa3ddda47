/* SPDX-License-Identifier: Apache-2.0
 * form.h - where the pieces of a quantized layout lie inside 64 columns of a tile.
 *
 * layout.h's drawings as one row each. The functions that read a layout take it as a constant and
 * are inlined, so that the compiler folds this table away; no kernel is written per layout. */
#ifndef TG_KERNEL_FORM_H
#define TG_KERNEL_FORM_H

#include "format/layout.h"

/* Byte offsets from the part (64 columns of 16 rows), -1 where the layout has no such piece. In K
 * layouts d and dmin stand once before the four parts. */
typedef struct tg_layout_form {
    int16_t nibbles, bits, pairs, bytes; /* codes; bits and pairs add 16 x, or are the code alone */
    int16_t d, m;                        /* f16 per group and row (q8_f: d is float32) */
    int16_t sc, mn;                      /* K: integer scales and minima per group or sixteenth */
    int16_t part_bytes;
    int16_t zero; /* subtracted from every code */
    bool is_k;    /* 4 parts behind 64 bytes of d, dmin */
    bool is_per16;
} tg_layout_form;

static const tg_layout_form tg_layout_forms[TG_LAYOUT_COUNT] = {
    /*                    nibbles bits pairs bytes   d    m   sc   mn  part zero  k  per16 */
    [TG_LAYOUT_Q4_0] = {0, -1, -1, -1, 512, -1, -1, -1, 576, 8, false, false},
    [TG_LAYOUT_Q4_1] = {0, -1, -1, -1, 512, 576, -1, -1, 640, 0, false, false},
    [TG_LAYOUT_Q5_0] = {0, 512, -1, -1, 640, -1, -1, -1, 704, 16, false, false},
    [TG_LAYOUT_Q5_1] = {0, 512, -1, -1, 640, 704, -1, -1, 768, 0, false, false},
    [TG_LAYOUT_Q8_0] = {-1, -1, -1, 0, 1024, -1, -1, -1, 1088, 128, false, false},
    [TG_LAYOUT_Q8_F] = {-1, -1, -1, 0, 1024, -1, -1, -1, 1152, 128, false, false},
    [TG_LAYOUT_Q4_K] = {0, -1, -1, -1, -1, -1, 512, 544, 576, 0, true, false},
    [TG_LAYOUT_Q5_K] = {0, 512, -1, -1, -1, -1, 640, 672, 704, 0, true, false},
    [TG_LAYOUT_Q6_K] = {0, -1, 512, -1, -1, -1, 768, -1, 832, 32, true, true},
    [TG_LAYOUT_Q2_K] = {-1, -1, 0, -1, -1, -1, 256, 320, 384, 0, true, true},
};

/* X(name, NAME) for each of them: an instance apiece, with the layout as a constant. */
#define TG_EACH_FORM(X)                                                                            \
    X(q4_0, Q4_0)                                                                                  \
    X(q4_1, Q4_1)                                                                                  \
    X(q5_0, Q5_0)                                                                                  \
    X(q5_1, Q5_1)                                                                                  \
    X(q8_0, Q8_0)                                                                                  \
    X(q8_f, Q8_F)                                                                                  \
    X(q4_k, Q4_K)                                                                                  \
    X(q5_k, Q5_K)                                                                                  \
    X(q6_k, Q6_K)                                                                                  \
    X(q2_k, Q2_K)

/* Is anything added to the scaled codes: one number per group, or integer minima per sixteenth
 * (q2_k)? */
TG_INLINE bool tg_form_has_min(tg_layout l)
{
    return tg_layout_forms[l].m >= 0 || tg_layout_forms[l].mn >= 0;
}

TG_INLINE int tg_form_parts(tg_layout l)
{
    return tg_layout_forms[l].is_k ? 4 : 1;
}

/* The part that holds columns 64 i .. 64 i + 63 of a tile, and its quantum's head (K layouts). */
TG_INLINE const uint8_t *tg_form_part(tg_layout l, const uint8_t *tile, int64_t i,
                                      const uint8_t **head)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    if (!f->is_k) {
        *head = NULL;
        return tile + i * f->part_bytes;
    }
    *head = tile + i / 4 * (64 + 4 * f->part_bytes);
    return *head + 64 + i % 4 * f->part_bytes;
}

#endif
