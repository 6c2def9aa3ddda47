/* SPDX-License-Identifier: Apache-2.0
 * token_blocks.h - a plan's instructions over blocks of tokens, depth first (internal to
 * src/device).
 *
 * Instruction by instruction, a step of many tokens drags every value through memory: 512 tokens of
 * a small model's gate and up are 6 MB. Here a thread owns blocks of tokens instead, and takes each
 * through as many instructions as it can before it turns to the next: the block's values stay in
 * the thread's own cache, and a barrier comes only before an instruction that sees other tokens,
 * that is once a layer, before attention. Weights are shared: each block reads a layer's from the
 * cache that all threads share.
 *
 * A token block is a view of the step (tg_step_view): its tokens alone, one thread, and the
 * thread's memory for the values that do not outlive the run. So the same handlers serve both ways,
 * and bits cannot differ. */
#ifndef TG_DEVICE_TOKEN_BLOCKS_H
#define TG_DEVICE_TOKEN_BLOCKS_H

#include "device/step.h"

enum {
    /* Tokens that a step is cut into: few enough for the values of a block to stay in 1 MB. */
    TG_TOKEN_BLOCK_TOKENS = 72,
    /* Rows that a block's memory has room for: the last may be longer. A multiple of 16, see
     * scale_offset. */
    TG_TOKEN_BLOCK_ROWS = 80
};

/* How a plan runs in token blocks; found when it is loaded. */
typedef struct tg_token_blocks {
    const int64_t *offsets; /* per value: place in the block's memory; TG_NONE: in the arena */
    const bool *is_block;   /* per instruction: runs block by block */
    int64_t block_bytes;    /* of the offsets */
} tg_token_blocks;

/* Fills *out; its arrays are taken from `memory`, which holds tg_token_blocks_bytes(plan). False
 * when the plan has values whose memory blocks would fight for: then it runs instruction by
 * instruction. */
size_t tg_token_blocks_bytes(const tg_plan *plan);
bool tg_token_blocks_find(tg_token_blocks *out, const tg_plan *plan, void *memory);

/* The largest step, in tokens, that n_threads run one instruction at a time. */
int32_t tg_token_blocks_most_plain(int32_t n_threads);

/* Whether this step has enough tokens for its threads, and no inputs or results are watched. */
bool tg_token_blocks_is_worth(const tg_step *s);

/* Runs the plan for one thread, as tg_step_run does. */
void tg_token_blocks_run(const tg_step_view *v);

#endif
