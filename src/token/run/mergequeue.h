/* SPDX-License-Identifier: Apache-2.0
 * mergequeue.h - which pair of symbols is merged next: the lowest rank, then the leftmost place.
 *
 * A heap. It serves words of vocabularies without splits (neighbors.h) alone: of seven real ones
 * (DeepSeek 3, Gemma 3, GPT-4o, gpt-oss, Llama 2 and 3, Qwen 3) all have splits, so nothing faster,
 * such as a list for each rank, would be met by a text. */
#ifndef TG_TOKEN_MERGEQUEUE_H
#define TG_TOKEN_MERGEQUEUE_H

#include "base/base.h"

/* {0} is empty. */
typedef struct tg_merge_queue {
    uint64_t *at; /* rank << 32 | place */
    size_t n, size;
    bool is_failed; /* memory was refused; pairs may be missing */
} tg_merge_queue;

void tg_merge_queue_begin(tg_merge_queue *q); /* for a new word */
void tg_merge_queue_push(tg_merge_queue *q, int32_t rank, int32_t place);
/* False when there is none. A pair that is gone from the word is still handed out: the caller
 * knows what its symbols are by now. */
bool tg_merge_queue_pop(tg_merge_queue *q, int32_t *rank, int32_t *place);
void tg_merge_queue_deinit(tg_merge_queue *q);

#endif
