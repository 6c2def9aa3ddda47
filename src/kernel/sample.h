/* SPDX-License-Identifier: Apache-2.0
 * sample.h - the pieces of choosing a token that tests look at one by one, and the fast road.
 *
 * Two roads lead to the same token. The definition (ref_sample.c) makes every probability and sorts
 * every id. The fast one (tg_sample_fast, inlined into each wide tier) never sorts the vocabulary: it
 * gathers the few ids that can matter above a threshold, and takes them from a heap in the order of
 * the definition until it has enough; only three loops over the vocabulary need vectors. */
#ifndef TG_KERNEL_SAMPLE_H
#define TG_KERNEL_SAMPLE_H

#include "kernel/ref.h"

enum { TG_SAMPLE_BLOCK = 64 };

/* The u of contract 13: uniform in [0, 1), a multiple of 2^-24. */
float tg_sample_uniform(uint64_t seed, int32_t sample_index, int32_t position);

/* "mass" of p [n] and the draw for a u in [0, 1], as kernel.h defines them. The draw returns -1 only
 * if every p is 0. */
float tg_sample_mass(const float *p, int32_t n);
int32_t tg_sample_draw(const float *p, int32_t n, float u);

/* Changes the logits as kernel.h says. */
void tg_sample_adjust_row(float *logits, const tg_sample_params *p, const tg_sample_adjust *adjust);

/* How the scratch of a row is divided. */
typedef struct tg_sample_scratch {
    uint64_t *keys; /* [n_vocab] candidates, a heap: the smallest key is the best id */
    float *p;       /* [n_vocab] */
    float *block;   /* [blocks] maximum, later sum, of each block */
    float *sorted;  /* [blocks] */
} tg_sample_scratch;

tg_sample_scratch tg_sample_scratch_place(void *memory, int32_t n_vocab);

TG_INLINE int32_t tg_sample_blocks(int32_t n_vocab)
{
    return (n_vocab + TG_SAMPLE_BLOCK - 1) / TG_SAMPLE_BLOCK;
}

/* Orders like "logit descending, id ascending": -0 and +0 are equal, bits of negative numbers count
 * down. */
TG_INLINE uint64_t tg_sample_key(float logit, int32_t id)
{
    uint32_t b = tg_f32_bits(logit + 0.0f);
    uint32_t up = b & 0x80000000u ? ~b : b | 0x80000000u;
    return (uint64_t)~up << 32 | (uint32_t)id;
}

TG_INLINE int32_t tg_sample_key_id(uint64_t key)
{
    return (int32_t)(key & 0xffffffffu);
}

/* ---- a heap of keys, smallest first */

static inline void tg_sample_sift(uint64_t *heap, int32_t n, int32_t at)
{
    uint64_t key = heap[at];
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (key <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

static inline void tg_sample_heapify(uint64_t *heap, int32_t n)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        tg_sample_sift(heap, n, i);
}

/* Takes the smallest of n keys, which then stands at heap[n - 1]; the others stay a heap. */
static inline uint64_t tg_sample_pop(uint64_t *heap, int32_t n)
{
    uint64_t best = heap[0];
    heap[0] = heap[n - 1];
    if (n > 1) tg_sample_sift(heap, n - 1, 0);
    heap[n - 1] = best;
    return best;
}

#endif
