/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/mergequeue.h"

#include "base/mem.h"

void tg_merge_queue_begin(tg_merge_queue *q)
{
    q->n = 0;
    q->is_failed = false;
}

static bool grow(tg_merge_queue *q)
{
    size_t want = q->size * 2 + 256, bytes;
    void *at = tg_mul_size(want, sizeof *q->at, &bytes)
                   ? tg_mem_resize(q->at, q->n * sizeof *q->at, bytes)
                   : NULL;
    q->is_failed = !at;
    if (!at) return false;
    q->at = at;
    q->size = want;
    return true;
}

void tg_merge_queue_push(tg_merge_queue *q, int32_t rank, int32_t place)
{
    uint64_t x = (uint64_t)(uint32_t)rank << 32 | (uint32_t)place;
    if (q->is_failed || (q->n == q->size && !grow(q))) return;
    size_t i = q->n++;
    for (; i > 0 && q->at[(i - 1) / 2] > x; i = (i - 1) / 2)
        q->at[i] = q->at[(i - 1) / 2];
    q->at[i] = x;
}

bool tg_merge_queue_pop(tg_merge_queue *q, int32_t *rank, int32_t *place)
{
    if (q->is_failed || q->n == 0) return false;
    uint64_t top = q->at[0], x = q->at[--q->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < q->n; i = child) {
        if (child + 1 < q->n && q->at[child + 1] < q->at[child]) child++;
        if (q->at[child] >= x) break;
        q->at[i] = q->at[child];
    }
    q->at[i] = x;
    *rank = (int32_t)(top >> 32);
    *place = (int32_t)(uint32_t)top;
    return true;
}

void tg_merge_queue_deinit(tg_merge_queue *q)
{
    tg_mem_free(q->at);
    *q = (tg_merge_queue){0};
}
