/* SPDX-License-Identifier: Apache-2.0
 * toksplit.h - the last merge of each token, and what follows from it: which tokens may be
 * neighbours.
 *
 * A text's tokens are the one sequence whose neighbours all stay apart: merging the bytes of two of
 * them gives these two again. Whoever can tell that of a pair needs no queue of all pairs of a text
 * (bpe.c). It holds where merging goes through the ranks once, from the lowest on:
 *
 *   - A merge has a greater rank than those that made its two tokens. Many vocabularies have merges
 *     of which that is not true, late ones. Most never happen, since an earlier merge takes parts
 *     of both tokens. A token that a late merge makes has no split, and neighbours that one could
 *     join do not stay apart: a text with either has no such sequence, and is told by that.
 *   - Merges of one rank make one token, and the key of what a merge makes is the keys of its
 *     tokens, side by side. Vocabularies where that is not so have no splits.
 *
 * Merges of other than whole tokens, which merging their own keys gives back, never happen: what is
 * merged within a token is what would be merged were it alone. Private to src/prompt. */
#ifndef TG_PROMPT_TOKSPLIT_H
#define TG_PROMPT_TOKSPLIT_H

#include "prompt/tokbuild.h"

enum { TG_TOK_NO_RANK = INT32_MAX };

/* Borrowed. */
typedef struct tg_tok_splits {
    const tg_tok_merge *merges;
    const tg_tok_split *at; /* [n] */
    uint32_t merge_mask;
    int32_t n;
} tg_tok_splits;

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

/* Whether merging two tokens with splits, side by side, leaves them as they are; until_joined: but
 * for the merge of the two, if there is one. False for ids that no table knows. */
bool tg_tok_stay_apart(const tg_tok_splits *s, int32_t left, int32_t right, bool until_joined);

/* The splits [n_entries] of a vocabulary whose slots are given, without `shorter`. *is_done is
 * false where the vocabulary has none. */
TG_MUST_USE tg_status tg_tok_split_all(tg_tok_build *b, const tg_tok_slot *slots, uint32_t mask,
                                       tg_tok_split *splits, bool *is_done, tg_err *e);

#endif
