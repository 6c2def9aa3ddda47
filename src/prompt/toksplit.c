/* SPDX-License-Identifier: Apache-2.0 */
#include "prompt/toksplit.h"

#include <string.h>

/* The rank of tokens without a split; -1 is a symbol's. */
enum { NOT_SPLIT = -2 };

static int32_t rank_of(const tg_tok_splits *s, int32_t left, int32_t right)
{
    const tg_tok_merge *m = tg_tok_find_merge(s->merges, s->merge_mask, left, right);
    return m && m->rank >= 0 ? m->rank : TG_TOK_NO_RANK;
}

/* Undoes the merges of both tokens, the last one first, and looks at the two symbols that face each
 * other after each. They are there from the rank that made them to the rank that takes them. A
 * merge of the two at a rank between would have come first; one at a rank below is late, and where
 * it may happen nothing is known. At the very rank that takes one of
 * them, the leftmost goes first: the left symbol is gone by then, the right one is still there. */
bool tg_tok_stay_apart(const tg_tok_splits *s, int32_t left, int32_t right, bool until_joined)
{
    int32_t left_until = TG_TOK_NO_RANK, right_until = TG_TOK_NO_RANK;
    for (bool is_counted = !until_joined;; is_counted = true) {
        if ((uint32_t)left >= (uint32_t)s->n || (uint32_t)right >= (uint32_t)s->n) return false;
        int32_t rank = is_counted ? rank_of(s, left, right) : TG_TOK_NO_RANK;
        if (rank < left_until && rank <= right_until) return false;
        const tg_tok_split *l = &s->at[left], *r = &s->at[right];
        /* Ranks fall on the way down; in a damaged table this is what ends it. */
        if (l->rank >= left_until || r->rank >= right_until) return false;
        if (l->rank < 0 && r->rank < 0) return true;
        if (l->rank > r->rank) {
            left_until = l->rank;
            left = l->right;
        } else {
            right_until = r->rank;
            right = r->left;
        }
    }
}

/* ---- finding them */

typedef struct finder {
    const tg_tok_build *b;
    tg_tok_split *splits;
    const tg_tok_merge **order; /* by rank */
    uint32_t *first;            /* [n_ranks + 1]: where a rank begins in `order` */
    size_t n;
} finder;

/* By counting: ranks are nearly as many as merges. */
static tg_status sort_merges(finder *f, tg_arena *arena, tg_err *e)
{
    const tg_tok_build *b = f->b;
    size_t size = (size_t)b->merge_mask + 1, n_ranks = (size_t)b->h.n_ranks;
    f->first = TG_ARENA_ARRAY(arena, uint32_t, n_ranks + 1);
    if (!f->first) return tg_fail_nomem(e, n_ranks * 4, "the ranks of merges");
    for (size_t i = 0; i < size; i++)
        if (b->merges[i].left >= 0 && b->merges[i].rank >= 0) f->first[b->merges[i].rank]++, f->n++;
    f->order = TG_ARENA_ARRAY(arena, const tg_tok_merge *, TG_MAX(f->n, (size_t)1));
    if (!f->order) return tg_fail_nomem(e, f->n * sizeof *f->order, "the order of merges");
    uint32_t at = 0;
    for (size_t k = 0; k <= n_ranks; k++) {
        uint32_t n = f->first[k];
        f->first[k] = at;
        at += n;
    }
    for (size_t i = 0; i < size; i++)
        if (b->merges[i].left >= 0 && b->merges[i].rank >= 0)
            f->order[f->first[b->merges[i].rank]++] = &b->merges[i];
    return TG_OK;
}

static bool is_split(const finder *f, int32_t id)
{
    return f->splits[id].rank != NOT_SPLIT;
}

/* Symbols are what a word is made of before any merge: of tokens with the same key, the one that
 * looking it up gives. */
static void find_symbols(finder *f, const tg_tok_slot *slots, uint32_t mask)
{
    const tg_tok_build *b = f->b;
    bool is_bytes = b->h.flags & TG_TOK_BYTE_LEVEL;
    for (int32_t i = 0; i < b->n_entries; i++) {
        const tg_tok_entry *x = &b->entries[i];
        f->splits[i] = (tg_tok_split){-1, -1, NOT_SPLIT, -1};
        if (!(x->flags & TG_TOK_IS_MODEL) || !x->key.ptr || !x->key.len || is_bytes) continue;
        int32_t cp;
        if (tg_utf8_decode(x->key.ptr, x->key.len, &cp) != (int)x->key.len) continue;
        uint64_t hash = tg_tok_hash(x->key.ptr, x->key.len);
        uint32_t k = (uint32_t)hash & mask, upper = (uint32_t)(hash >> 32);
        while (slots[k].id >= 0 &&
               !(slots[k].hash == upper && tg_str_is_equal(b->entries[slots[k].id].key, x->key)))
            k = (k + 1) & mask;
        if (slots[k].id == i) f->splits[i].rank = -1;
    }
    for (int k = 0; is_bytes && k < 256; k++)
        f->splits[b->byte_ids[k]].rank = -1;
}

/* From the lowest rank on: two tokens that stay apart until their merge make one. A merge whose
 * tokens are made later than its own rank is passed by. */
static void find_splits(finder *f)
{
    const tg_tok_build *b = f->b;
    tg_tok_splits s = {b->merges, f->splits, b->merge_mask, b->n_entries};
    for (size_t i = 0; i < f->n; i++) {
        const tg_tok_merge *m = f->order[i];
        if (is_split(f, m->left) && is_split(f, m->right) && !is_split(f, m->id) &&
            tg_tok_stay_apart(&s, m->left, m->right, true))
            f->splits[m->id] = (tg_tok_split){m->left, m->right, m->rank, -1};
    }
}

static bool joins_keys(const tg_tok_build *b, const tg_tok_merge *m)
{
    tg_str l = b->entries[m->left].key, r = b->entries[m->right].key, k = b->entries[m->id].key;
    return l.ptr && r.ptr && k.ptr && k.len == l.len + r.len && tg_str_has_prefix(k, l) &&
           tg_str_has_suffix(k, r);
}

static bool is_known_order(const finder *f)
{
    const tg_tok_merge *before = NULL; /* the last merge that may happen */
    for (size_t i = 0; i < f->n; i++) {
        const tg_tok_merge *m = f->order[i];
        if (!is_split(f, m->left) || !is_split(f, m->right)) continue;
        if (before && before->rank == m->rank && before->id != m->id) return false;
        if (!joins_keys(f->b, m)) return false;
        before = m;
    }
    return true;
}

tg_status tg_tok_split_all(tg_tok_build *b, const tg_tok_slot *slots, uint32_t mask,
                           tg_tok_split *splits, bool *is_done, tg_err *e)
{
    finder f = {.b = b, .splits = splits};
    tg_arena arena = {0};
    tg_status status = sort_merges(&f, &arena, e);
    if (status == TG_OK) {
        find_symbols(&f, slots, mask);
        find_splits(&f);
        *is_done = is_known_order(&f);
    }
    tg_arena_deinit(&arena);
    return status;
}
