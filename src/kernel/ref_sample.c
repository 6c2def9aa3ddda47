/* SPDX-License-Identifier: Apache-2.0
 * ref_sample.c - the definition of choosing a token: every probability, every id sorted. */
#include "kernel/draw.h"

size_t tg_sample_scratch_bytes(int32_t n_vocab)
{
    size_t n = tg_align_up((size_t)n_vocab, 16),
           blocks = tg_align_up((size_t)tg_sample_blocks(n_vocab), 16);
    return n * (sizeof(uint64_t) + sizeof(float)) + 2 * blocks * sizeof(float);
}

tg_sample_scratch tg_sample_scratch_place(void *memory, int32_t n_vocab)
{
    size_t n = tg_align_up((size_t)n_vocab, 16),
           blocks = tg_align_up((size_t)tg_sample_blocks(n_vocab), 16);
    uint64_t *keys = memory;
    float *p = (float *)(void *)(keys + n);
    return (tg_sample_scratch){.keys = keys, .p = p, .block = p + n, .maxima = p + n + blocks};
}

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
float tg_sample_uniform(uint64_t seed, int32_t sample_index, int32_t position)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c[4] = {(uint32_t)position, (uint32_t)sample_index, 0, 0};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
        memcpy(c, next, sizeof c);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return (float)(c[0] >> 8) * 0x1p-24f;
}

void tg_sample_adjust_row(float *logits, const tg_sample_params *p, const tg_sample_adjust *adjust)
{
    for (int32_t i = 0; i < p->n_adjust; i++) {
        const tg_sample_adjust *a = &adjust[p->adjust_at + i];
        float l = logits[a->id] + a->bias;
        if (a->is_counted && p->repeat_penalty != 0 && p->repeat_penalty != 1)
            l = l > 0 ? l / p->repeat_penalty : l * p->repeat_penalty;
        if (a->n_completion > 0) {
            l = l - p->presence;
            l = l - p->frequency * (float)a->n_completion;
        }
        logits[a->id] = l;
    }
}

static float sum_block(const float *p, int32_t from, int32_t n)
{
    float lane[16] = {0};
    int32_t to = TG_MIN(from + TG_SAMPLE_BLOCK, n);
    for (int32_t i = from; i < to; i++)
        lane[i % 16] = lane[i % 16] + p[i];
    return tg_fold_sum16(lane);
}

float tg_sample_mass(const float *p, int32_t n)
{
    float mass = 0;
    for (int32_t i = 0; i < n; i += TG_SAMPLE_BLOCK)
        mass = mass + sum_block(p, i, n);
    return mass;
}

int32_t tg_sample_draw(const float *p, int32_t n, float u)
{
    float t = u * tg_sample_mass(p, n), before = 0;
    int32_t last = -1;
    for (int32_t from = 0; from < n; from += TG_SAMPLE_BLOCK) {
        float after = before + sum_block(p, from, n), r = before;
        int32_t to = TG_MIN(from + TG_SAMPLE_BLOCK, n);
        for (int32_t i = from; i < to; i++) {
            r = r + p[i];
            if (p[i] > 0) last = i;
            if (after > t && r > t && p[i] > 0) return i;
        }
        if (after > t) return last; /* its sum in sequence rounded below its sum in lanes */
        before = after;
    }
    return last;
}

/* Drops what top_k, min_p and top_p do not keep: sets its p to 0. */
static void filter(const tg_sample_params *s, const float *logits, int32_t n, float *p,
                   uint64_t *keys)
{
    bool is_ordered = s->top_k > 0 || (s->top_p > 0 && s->top_p < 1);
    for (int32_t i = 0; i < n && is_ordered; i++)
        keys[i] = tg_sample_key(logits[i], i);
    if (is_ordered) tg_sample_heapify(keys, n);
    for (int32_t left = n; left > 0 && is_ordered; left--) /* best at the end */
        tg_sample_pop(keys, left);
    if (s->top_k > 0)
        for (int32_t rank = s->top_k; rank < n; rank++)
            p[tg_sample_key_id(keys[n - 1 - rank])] = 0;
    for (int32_t i = 0; i < n; i++)
        if (p[i] < s->min_p) p[i] = 0;
    if (!(s->top_p > 0 && s->top_p < 1)) return;
    float target = s->top_p * tg_sample_mass(p, n), run = 0;
    int32_t rank = 0;
    while (rank < n && (rank == 0 || run < target))
        run = run + p[tg_sample_key_id(keys[n - 1 - rank++])];
    for (; rank < n; rank++)
        p[tg_sample_key_id(keys[n - 1 - rank])] = 0;
}

int32_t tg_ref_sample_row(float *logits, int32_t n_vocab, const tg_sample_params *s,
                          const tg_sample_adjust *adjust, void *scratch)
{
    tg_sample_adjust_row(logits, s, adjust);
    int32_t best = -1;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) return -1;
        if (logits[i] > -INFINITY && (best < 0 || logits[i] > logits[best])) best = i;
    }
    if (best < 0 || s->temperature == 0) return best;
    tg_sample_scratch x = tg_sample_scratch_place(scratch, n_vocab);
    for (int32_t i = 0; i < n_vocab; i++)
        x.p[i] = tg_exp_ref((logits[i] - logits[best]) / s->temperature);
    filter(s, logits, n_vocab, x.p, x.keys);
    return tg_sample_draw(x.p, n_vocab, tg_sample_uniform(s->seed, s->sample_index, s->position));
}
