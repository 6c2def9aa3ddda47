/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/pairs.h"

#include "base/mem.h"

void tg_pairs_begin(tg_pairs *p)
{
    p->n = 0;
    p->is_failed = false;
}

static bool grow(tg_pairs *p)
{
    size_t want = p->size * 2 + 256, bytes;
    void *at = tg_mul_size(want, sizeof *p->at, &bytes)
                   ? tg_mem_resize(p->at, p->n * sizeof *p->at, bytes)
                   : NULL;
    p->is_failed = !at;
    if (!at) return false;
    p->at = at;
    p->size = want;
    return true;
}

void tg_pairs_push(tg_pairs *p, int32_t rank, int32_t place)
{
    uint64_t x = (uint64_t)(uint32_t)rank << 32 | (uint32_t)place;
    if (p->is_failed || (p->n == p->size && !grow(p))) return;
    size_t i = p->n++;
    for (; i > 0 && p->at[(i - 1) / 2] > x; i = (i - 1) / 2)
        p->at[i] = p->at[(i - 1) / 2];
    p->at[i] = x;
}

bool tg_pairs_pop(tg_pairs *p, int32_t *rank, int32_t *place)
{
    if (p->is_failed || p->n == 0) return false;
    uint64_t top = p->at[0], x = p->at[--p->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < p->n; i = child) {
        if (child + 1 < p->n && p->at[child + 1] < p->at[child]) child++;
        if (p->at[child] >= x) break;
        p->at[i] = p->at[child];
    }
    p->at[i] = x;
    *rank = (int32_t)(top >> 32);
    *place = (int32_t)(uint32_t)top;
    return true;
}

void tg_pairs_deinit(tg_pairs *p)
{
    tg_mem_free(p->at);
    *p = (tg_pairs){0};
}
