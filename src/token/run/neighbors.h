/* SPDX-License-Identifier: Apache-2.0
 * neighbors.h - how each token is made by merging, and what follows from it: which tokens may be
 * neighbours.
 *
 * A text's tokens are the one sequence whose neighbours all stay apart: merging the bytes of two of
 * them gives these two again. For merging a text, as long as nothing crosses the borders of its
 * tokens, does in each two neighbours what merging those two alone would do, step by step, since a
 * merge that comes first among all comes first among theirs; the first to cross a border would be a
 * merge of two neighbours that do not stay apart. So whoever can tell that of a pair needs no queue
 * of all pairs of a text (bpe.c). Only whole tokens, which merging their own keys gives back, can
 * be among them. They are of three kinds:
 *
 *   - symbols, which no merge makes;
 *   - tokens with a split, the last of the merges that make them. Each of these has a greater rank
 *     than those that made its two tokens, and the same is true of these: what two such tokens do
 *     side by side is told by their splits;
 *   - late ones, in whose making a merge follows that has a lower rank than one before it. Gemma's
 *     runs of blanks are such. Two of them side by side are decided by merging.
 *
 * Some vocabularies cannot be told by this and have no splits: where merges of one rank make
 * different tokens, where the key of what a merge makes is not the keys of its tokens, side by
 * side, and where a late token may be longer than TG_TOK_LATE_MAX_BYTES. */
#ifndef TG_TOKEN_NEIGHBORS_H
#define TG_TOKEN_NEIGHBORS_H

#include "token/run/tokblob.h"

/* The merge of two neighbours, or NULL. Misses are the rule: half of all pairs of a word. */
TG_INLINE const tg_tok_merge *tg_tok_find_merge(const tg_tok_merge *merges, uint32_t mask,
                                                int32_t left, int32_t right)
{
    for (uint32_t i = tg_tok_merge_hash(left, right) & mask, n = 0; n <= mask;
         i = (i + 1) & mask, n++) {
        const tg_tok_merge *m = &merges[i];
        if (m->left < 0) break;
        if (m->left == left && m->right == right) return m;
    }
    return NULL;
}

/* The rank of merging two neighbors; TG_TOK_NO_RANK where nothing merges them. */
TG_INLINE int32_t tg_tok_rank_of(const tg_tok_splits *s, int32_t left, int32_t right)
{
    const tg_tok_merge *m = tg_tok_find_merge(s->merges, s->merge_mask, left, right);
    return m && m->rank >= 0 ? m->rank : TG_TOK_NO_RANK;
}

/* Merges of two tokens side by side that need no look-up. */
typedef enum tg_tok_skipped {
    TG_TOK_SKIP_NONE,
    TG_TOK_SKIP_OWN, /* that of the two, which is to come */
    TG_TOK_SKIP_LEFT /* any of the left one: it is the longest at its place, and whatever it
                         * merged to would be a longer one there */
} tg_tok_skipped;

/* Whether merging two tokens that are not late, side by side, leaves them as they are. False for
 * ids out of range. */
bool tg_tok_stay_apart(const tg_tok_splits *s, int32_t left, int32_t right, tg_tok_skipped skipped);

#endif
