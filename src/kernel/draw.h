/* SPDX-License-Identifier: Apache-2.0
 * draw.h - the pieces of choosing a token that tests look at one by one, and the fast road.
 *
 * Two roads lead to the same token. The definition (ref_sample.c) makes every probability and
 * sorts every id. The fast one (tg_sample_fast, inlined into each wide tier) never sorts the
 * vocabulary: it gathers the few ids that can matter above a threshold, and takes them from a
 * heap in the order of the definition until it has enough; only three loops over the vocabulary
 * need vectors. */
#ifndef TG_KERNEL_DRAW_H
#define TG_KERNEL_DRAW_H

#include "kernel/ref.h"

enum { TG_SAMPLE_BLOCK = 64 };

/* The u of contract 13: uniform in [0, 1), a multiple of 2^-24. */
float tg_sample_uniform(uint64_t seed, int32_t sample_index, int32_t position);

/* "mass" of p [n] and the draw for a u in [0, 1], by kernel_sample.h. The draw returns -1
 * only if every p is 0. */
float tg_sample_mass(const float *p, int32_t n);
int32_t tg_sample_draw(const float *p, int32_t n, float u);

/* Changes the logits as kernel_sample.h says. */
void tg_sample_adjust_row(float *logits, const tg_sample_params *p, const tg_sample_adjust *adjust);

/* How the scratch of a row is divided. */
typedef struct tg_sample_scratch {
    uint64_t *keys; /* [n_vocab] candidates, a heap: the smallest key is the best id */
    float *p;       /* [n_vocab] */
    float *block;   /* [blocks] maximum, later sum, of each block */
    float *maxima;  /* [blocks] */
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
    uint32_t b = tg_f32_to_bits(logit + 0.0f);
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

/* Ascending. */
static inline void tg_sample_sort(uint64_t *keys, int32_t n)
{
    tg_sample_heapify(keys, n);
    for (int32_t left = n; left > 0; left--)
        tg_sample_pop(keys, left);
    for (int32_t i = 0, j = n - 1; i < j; i++, j--) {
        uint64_t k = keys[i];
        keys[i] = keys[j];
        keys[j] = k;
    }
}

/* ---- the fast road */

/* The three loops over the vocabulary, by tier.
 *   scan: the maximum of each block of 64 into block[], and of all; false if a logit is NaN or
 *   +inf.
 *   gather: keys of all logits >= least, from blocks whose maximum is; returns how many.
 *   weigh: p[i] = exp((logit - max) / temperature), 0 where p < min_p; block[] = sum16 of each. */
typedef struct tg_sample_loops {
    bool (*scan)(const float *logits, int32_t n, float *block, float *max);
    int32_t (*gather)(const float *logits, int32_t n, const float *block, float least,
                      uint64_t *keys);
    void (*weigh)(const float *logits, int32_t n, float max, const tg_sample_params *s, float *p,
                  float *block);
} tg_sample_loops;

/* The sum16 of the ids from *i on that share a block; the others of the block are dropped, so
 * +0. */
static inline float tg_sample_top_block(const uint64_t *ids, const float *p, int32_t n, int32_t *i)
{
    float lane[16] = {0};
    uint64_t block = ids[*i] / TG_SAMPLE_BLOCK;
    for (; *i < n && ids[*i] / TG_SAMPLE_BLOCK == block; ++*i)
        lane[ids[*i] % 16] = lane[ids[*i] % 16] + p[ids[*i]];
    return tg_fold_sum16(lane);
}

/* Mass of few ids, ascending. */
static inline float tg_sample_top_mass(const uint64_t *ids, const float *p, int32_t n)
{
    float mass = 0;
    for (int32_t i = 0; i < n;)
        mass = mass + tg_sample_top_block(ids, p, n, &i);
    return mass;
}

/* The draw among few ids, ascending. */
static inline int32_t tg_sample_top_draw(const uint64_t *ids, const float *p, int32_t n, float u)
{
    float t = u * tg_sample_top_mass(ids, p, n), before = 0;
    for (int32_t i = 0; i < n;) {
        int32_t from = i, last = -1;
        float after = before + tg_sample_top_block(ids, p, n, &i), r = before;
        for (int32_t j = from; j < i && after > t; j++) {
            r = r + p[ids[j]];
            if (p[ids[j]] > 0) last = (int32_t)ids[j];
            if (last >= 0 && r > t) return last;
        }
        if (after > t) return last;
        before = after;
    }
    return -1;
}

/* The draw among all ids, with the sums of their blocks. */
static inline int32_t tg_sample_all_draw(const float *p, const float *block, int32_t n, float u)
{
    int32_t n_blocks = tg_sample_blocks(n), b = 0, last = -1;
    float mass = 0, before = 0;
    for (int32_t i = 0; i < n_blocks; i++)
        mass = mass + block[i];
    float t = u * mass;
    while (b + 1 < n_blocks && !(before + block[b] > t))
        before = before + block[b++];
    for (int32_t i = b * TG_SAMPLE_BLOCK; i < n && i < (b + 1) * TG_SAMPLE_BLOCK; i++) {
        before = before + p[i];
        if (p[i] > 0) last = i;
        if (p[i] > 0 && before > t) return i;
    }
    return last;
}

static inline void tg_sample_keys_to_ids(uint64_t *keys, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        keys[i] = (uint64_t)tg_sample_key_id(keys[i]);
    tg_sample_sort(keys, n);
}

/* top_k: the keys it keeps, in any order, at the returned place. The k-th largest of the blocks'
 * maxima is no larger than the k-th largest logit, so what lies above it is enough, and little
 * more. */
static inline uint64_t *tg_sample_top_k(const tg_sample_loops *v, const float *logits, int32_t n,
                                        int32_t k, const tg_sample_scratch *x)
{
    int32_t n_blocks = tg_sample_blocks(n);
    float least = -INFINITY;
    if (k <= n_blocks) {
        for (int32_t b = 0; b < n_blocks; b++)
            x->keys[b] = tg_sample_key(x->block[b], b);
        tg_sample_heapify(x->keys, n_blocks);
        for (int32_t i = 0; i < k; i++)
            least = x->block[tg_sample_key_id(tg_sample_pop(x->keys, n_blocks - i))];
    }
    int32_t n_found = v->gather(logits, n, x->block, least, x->keys);
    tg_sample_heapify(x->keys, n_found);
    for (int32_t i = 0; i < k; i++)
        tg_sample_pop(x->keys, n_found - i);
    return x->keys + n_found - k;
}

/* top_p alone: how many of the best ids it keeps, their keys at *kept; -1: all. Candidates are
 * gathered above a threshold that is lowered only when they do not suffice. */
static inline int32_t tg_sample_top_p(const tg_sample_loops *v, const float *logits, int32_t n,
                                      float max, const tg_sample_params *s, float target,
                                      const tg_sample_scratch *x, uint64_t **kept)
{
    static const float depths[] = {4, 12, INFINITY};
    for (size_t i = 0; i < TG_COUNT(depths); i++) {
        float least = max - depths[i] * s->temperature, run = 0;
        int32_t n_found = v->gather(logits, n, x->maxima, least, x->keys), n_kept = 0;
        tg_sample_heapify(x->keys, n_found);
        while (n_kept < n_found && (n_kept == 0 || run < target)) {
            uint64_t key = tg_sample_pop(x->keys, n_found - n_kept++);
            run = run + x->p[tg_sample_key_id(key)];
        }
        *kept = x->keys + n_found - n_kept;
        if (run >= target) return n_kept;
    }
    return -1;
}

TG_INLINE int32_t tg_sample_fast(const tg_sample_loops *v, float *logits, int32_t n,
                                 const tg_sample_params *s, const tg_sample_adjust *adjust,
                                 void *scratch)
{
    tg_sample_scratch x = tg_sample_scratch_place(scratch, n);
    bool has_top_p = s->top_p > 0 && s->top_p < 1;
    float max;
    tg_sample_adjust_row(logits, s, adjust);
    if (!v->scan(logits, n, x.block, &max) || max == -INFINITY) return -1;
    if (s->temperature == 0) {
        int32_t i = 0;
        while (x.block[i / TG_SAMPLE_BLOCK] != max)
            i += TG_SAMPLE_BLOCK;
        while (logits[i] != max)
            i++;
        return i;
    }
    float u = tg_sample_uniform(s->seed, s->sample_index, s->position);
    if (s->top_k > 0 && s->top_k < n) {
        int32_t k = s->top_k;
        uint64_t *keys = tg_sample_top_k(v, logits, n, k, &x);
        for (int32_t i = 0; i < k; i++) {
            int32_t id = tg_sample_key_id(keys[i]);
            float e = tg_exp_ref((logits[id] - max) / s->temperature);
            x.p[id] = e < s->min_p ? 0 : e;
        }
        tg_sample_keys_to_ids(keys, k);
        if (has_top_p) {
            float target = s->top_p * tg_sample_top_mass(keys, x.p, k), run = 0;
            int32_t n_kept = 0;
            for (int32_t i = 0; i < k; i++)
                keys[i] = tg_sample_key(logits[keys[i]], (int32_t)keys[i]);
            tg_sample_sort(keys, k);
            while (n_kept < k && (n_kept == 0 || run < target))
                run = run + x.p[tg_sample_key_id(keys[n_kept++])];
            k = n_kept;
            tg_sample_keys_to_ids(keys, k);
        }
        return tg_sample_top_draw(keys, x.p, k, u);
    }
    /* The maxima move aside: weigh puts sums where they were. */
    memcpy(x.maxima, x.block, (size_t)tg_sample_blocks(n) * sizeof *x.block);
    v->weigh(logits, n, max, s, x.p, x.block);
    if (!has_top_p) return tg_sample_all_draw(x.p, x.block, n, u);
    float mass = 0;
    for (int32_t b = 0; b < tg_sample_blocks(n); b++)
        mass = mass + x.block[b];
    uint64_t *kept;
    int32_t n_kept = tg_sample_top_p(v, logits, n, max, s, s->top_p * mass, &x, &kept);
    if (n_kept < 0) return tg_sample_all_draw(x.p, x.block, n, u);
    tg_sample_keys_to_ids(kept, n_kept);
    return tg_sample_top_draw(kept, x.p, n_kept, u);
}

#endif
