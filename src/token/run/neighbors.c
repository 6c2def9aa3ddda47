/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/neighbors.h"

/* Whether a pair may merge at a rank of at most `until`; "no" is certain. */
static bool may_merge(const tg_tok_splits *s, int32_t left, int32_t right, int32_t until)
{
    if (!s->early) return true;
    uint32_t level = TG_MIN(tg_tok_early_level(until), s->n_levels);
    tg_tok_early_bits x = tg_tok_early_at(left, right, level);
    return (s->early[x.word] & x.mask) == x.mask;
}

/* Undoes the merges of both tokens, the last one first, and looks at the two symbols that face each
 * other after each. They are there from the rank that made them to the rank that takes them. A
 * merge of the two at a rank between would have come first; one at a rank below, a late one, comes
 * as soon as both are there. At the very rank that takes one of them, the leftmost goes first: the
 * left symbol is gone by then, the right one is still there.
 *
 * Most pairs that do not stay apart are told by their innermost bytes, in a table; little of it
 * is ever read, and of most others EARLY says that they never merge. Which of the two is undone is
 * anybody's guess, and still a branch is right: waiting for the answer takes longer than guessing
 * wrong (a quarter of all time). */
bool tg_tok_stay_apart(const tg_tok_splits *s, int32_t left, int32_t right, tg_tok_skipped skipped)
{
    int32_t left_until = TG_TOK_NO_RANK, right_until = TG_TOK_NO_RANK;
    if ((uint32_t)left >= (uint32_t)s->n || (uint32_t)right >= (uint32_t)s->n) return false;
    const tg_tok_split *l = &s->at[left], *r = &s->at[right];
    if (s->bigrams) {
        int32_t rank = s->bigrams[l->last_byte << 8 | r->first_byte];
        if ((rank < l->last_until) & (rank <= r->first_until)) return false;
    }
    for (bool is_asked = skipped == TG_TOK_SKIP_NONE;;) {
        if ((l->n_bytes | r->n_bytes) == 1 && s->bigrams) return true; /* as above */
        if (is_asked && may_merge(s, left, right, TG_MIN(left_until, right_until))) {
            int32_t rank = tg_tok_rank_of(s, left, right);
            if (rank < left_until && rank <= right_until) return false;
        }
        if ((l->rank & r->rank) < 0) return true; /* two symbols */
        /* Ranks fall on the way down; in a damaged table this is what ends it. */
        if (l->rank > r->rank) {
            if (l->rank >= left_until) return false;
            left_until = l->rank;
            left = l->half[1];
            if ((uint32_t)left >= (uint32_t)s->n) return false;
            l = &s->at[left];
            is_asked = true;
        } else {
            if (r->rank >= right_until) return false;
            right_until = r->rank;
            right = r->half[0];
            if ((uint32_t)right >= (uint32_t)s->n) return false;
            r = &s->at[right];
            is_asked |= skipped != TG_TOK_SKIP_LEFT;
        }
    }
}
