/* SPDX-License-Identifier: Apache-2.0 */
#include "token/compile/toksplit.h"

#include "token/run/neighbors.h"

#include <string.h>

/* ---- finding them */

typedef struct finder {
    const tg_tok_build *b;
    const tg_tok_slot *slots;
    uint32_t slot_mask;
    tg_tok_split *splits;
    tg_tok_splits view;         /* of `splits` and of the merges */
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

static bool is_known(const finder *f, int32_t id)
{
    return f->splits[id].rank != TG_TOK_SPLIT_NONE;
}

static bool is_split(const finder *f, int32_t id)
{
    return is_known(f, id) && f->splits[id].rank != TG_TOK_SPLIT_LATE;
}

/* Of tokens with the same key, the one that looking it up gives. */
static int32_t find_key(const finder *f, tg_str key)
{
    uint64_t hash = tg_tok_hash(key.ptr, key.len);
    uint32_t k = (uint32_t)hash & f->slot_mask, upper = (uint32_t)(hash >> 32);
    while (f->slots[k].id >= 0 &&
           !(f->slots[k].hash == upper && tg_str_is_equal(f->b->entries[f->slots[k].id].key, key)))
        k = (k + 1) & f->slot_mask;
    return f->slots[k].id;
}

/* The symbol that key[*at] begins, or -1; *at goes behind it. */
static int32_t next_symbol(const finder *f, tg_str key, size_t *at)
{
    if (f->b->h.flags & TG_TOK_BYTE_LEVEL) return f->b->byte_ids[(uint8_t)key.ptr[(*at)++]];
    int32_t cp;
    tg_str c = {key.ptr + *at, (size_t)tg_utf8_decode(key.ptr + *at, key.len - *at, &cp)};
    *at += TG_MAX(c.len, (size_t)1);
    return c.len ? find_key(f, c) : -1;
}

/* Symbols are what a word is made of before any merge. */
static void find_symbols(finder *f)
{
    const tg_tok_build *b = f->b;
    for (int32_t i = 0; i < b->n_entries; i++) {
        const tg_tok_entry *x = &b->entries[i];
        f->splits[i] = (tg_tok_split){.half = {-1, -1}, .rank = TG_TOK_SPLIT_NONE, .shorter = -1};
        if (!(x->flags & TG_TOK_IS_MODEL) || !x->key.ptr || !x->key.len) continue;
        size_t at = 0;
        if (next_symbol(f, x->key, &at) == i && at == x->key.len)
            f->splits[i].rank = TG_TOK_SPLIT_SYMBOL;
    }
}

/* From the lowest rank on: two tokens that stay apart until their merge make one. A merge whose
 * tokens are made later than its own rank is passed by. */
static void find_splits(finder *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const tg_tok_merge *m = f->order[i];
        tg_tok_split *x = &f->splits[m->id];
        if (!is_split(f, m->left) || !is_split(f, m->right) || is_known(f, m->id) ||
            !tg_tok_stay_apart(&f->view, m->left, m->right, TG_TOK_SKIP_OWN))
            continue;
        x->half[0] = m->left;
        x->half[1] = m->right;
        x->rank = m->rank;
    }
}

/* ---- late tokens */

/* By the definition: the lowest rank, the leftmost of equals, until there is none. ranks[k] is that
 * of ids[k] and the next. */
static bool merges_to_itself(const finder *f, int32_t id)
{
    int32_t ids[TG_TOK_LATE_MAX_BYTES], ranks[TG_TOK_LATE_MAX_BYTES];
    tg_str key = f->b->entries[id].key;
    int n = 0;
    for (size_t at = 0; at < key.len; n++)
        if ((ids[n] = next_symbol(f, key, &at)) < 0) return false;
    for (int k = 0; k + 1 < n; k++)
        ranks[k] = tg_tok_rank_of(&f->view, ids[k], ids[k + 1]);
    for (; n > 1; n--) {
        int best = 0;
        for (int k = 1; k + 1 < n; k++)
            if (ranks[k] < ranks[best]) best = k;
        const tg_tok_merge *m =
            tg_tok_find_merge(f->b->merges, f->b->merge_mask, ids[best], ids[best + 1]);
        if (ranks[best] == TG_TOK_NO_RANK || !m) return false;
        ids[best] = m->id;
        size_t n_behind = (size_t)(n - best - 2);
        memmove(ids + best + 1, ids + best + 2, n_behind * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, n_behind * sizeof *ranks);
        if (best > 0) ranks[best - 1] = tg_tok_rank_of(&f->view, ids[best - 1], ids[best]);
        if (n_behind) ranks[best] = tg_tok_rank_of(&f->view, ids[best], ids[best + 1]);
    }
    return ids[0] == id;
}

static void find_late(finder *f)
{
    for (size_t i = 0; i < f->n; i++) {
        int32_t id = f->order[i]->id;
        tg_str key = f->b->entries[id].key;
        if (!is_known(f, id) && key.ptr && key.len <= TG_TOK_LATE_MAX_BYTES &&
            merges_to_itself(f, id))
            f->splits[id].rank = TG_TOK_SPLIT_LATE;
    }
}

static bool joins_keys(const tg_tok_build *b, const tg_tok_merge *m)
{
    tg_str l = b->entries[m->left].key, r = b->entries[m->right].key, k = b->entries[m->id].key;
    return l.ptr && r.ptr && k.ptr && k.len == l.len + r.len && tg_str_has_prefix(k, l) &&
           tg_str_has_suffix(k, r);
}

/* Whether all that neighbors.h asks for is so. */
static bool is_told_by_neighbours(const finder *f)
{
    const tg_tok_merge *before = NULL; /* the last merge that may happen in the order of ranks */
    for (size_t i = 0; i < f->n; i++) {
        const tg_tok_merge *m = f->order[i];
        if (!is_known(f, m->left) || !is_known(f, m->right)) continue;
        if (!joins_keys(f->b, m)) return false;
        if (!is_known(f, m->id) && f->b->entries[m->id].key.len > TG_TOK_LATE_MAX_BYTES)
            return false;
        if (!is_split(f, m->left) || !is_split(f, m->right)) continue;
        if (before && before->rank == m->rank && before->id != m->id) return false;
        before = m;
    }
    return true;
}

/* ---- what makes telling fast */

static void set_ends(finder *f)
{
    const tg_tok_split *at = f->splits;
    for (int32_t i = 0; i < f->b->n_entries; i++) {
        tg_tok_split *x = &f->splits[i];
        tg_str key = f->b->entries[i].key;
        if (!is_known(f, i)) continue;
        x->first_until = x->last_until = TG_TOK_NO_RANK;
        for (const tg_tok_split *y = x; y->rank >= 0; y = &at[y->half[0]])
            x->first_until = y->rank;
        for (const tg_tok_split *y = x; y->rank >= 0; y = &at[y->half[1]])
            x->last_until = y->rank;
        x->n_bytes = (int32_t)key.len;
        x->first_byte = (uint8_t)key.ptr[0];
        x->last_byte = (uint8_t)key.ptr[key.len - 1];
    }
}

tg_status tg_tok_split_all(tg_tok_build *b, const tg_tok_slot *slots, uint32_t mask,
                           tg_tok_split *splits, bool *is_done, tg_err *e)
{
    finder f = {.b = b, .slots = slots, .slot_mask = mask, .splits = splits};
    f.view = (tg_tok_splits){
        .merges = b->merges, .at = splits, .merge_mask = b->merge_mask, .n = b->n_entries};
    tg_arena arena = {0};
    tg_status status = sort_merges(&f, &arena, e);
    if (status == TG_OK) {
        find_symbols(&f);
        find_splits(&f);
        find_late(&f);
        set_ends(&f);
        *is_done = is_told_by_neighbours(&f);
    }
    tg_arena_deinit(&arena);
    return status;
}

tg_status tg_tok_split_add_bigrams(tg_buf *out, const tg_tok_build *b, const tg_tok_split *splits,
                                   tg_err *e)
{
    int32_t *ranks = TG_NEW_ARRAY(int32_t, TG_TOK_N_BYTE_PAIRS);
    if (!ranks) return tg_fail_nomem(e, TG_TOK_N_BYTE_PAIRS * sizeof *ranks, "the ranks of bytes");
    for (int i = 0; i < TG_TOK_N_BYTE_PAIRS; i++)
        ranks[i] = TG_TOK_NO_RANK;
    for (uint32_t i = 0; i <= b->merge_mask; i++) {
        const tg_tok_merge *m = &b->merges[i];
        if (m->left < 0 || m->rank < 0) continue;
        const tg_tok_split *l = &splits[m->left], *r = &splits[m->right];
        if (l->n_bytes == 1 && r->n_bytes == 1) ranks[l->first_byte << 8 | r->first_byte] = m->rank;
    }
    tg_buf_add(out, ranks, TG_TOK_N_BYTE_PAIRS * sizeof *ranks);
    tg_mem_free(ranks);
    return tg_buf_check(out, e);
}

/* A token with a split is made by that merge and no other: the two tokens of another do not stay
 * apart until it, which is found further inside. */
static bool may_happen(const tg_tok_split *splits, const tg_tok_merge *m)
{
    const tg_tok_split *x = &splits[m->id];
    if (splits[m->left].rank == TG_TOK_SPLIT_NONE || splits[m->right].rank == TG_TOK_SPLIT_NONE)
        return false;
    return x->rank < 0 || (x->half[0] == m->left && x->half[1] == m->right);
}

tg_status tg_tok_split_add_early(tg_buf *out, const tg_tok_build *b, const tg_tok_split *splits,
                                 tg_err *e)
{
    uint32_t n_levels = tg_tok_early_level(b->h.n_ranks), n = 1u << (n_levels - 1);
    uint32_t *words = TG_NEW_ARRAY(uint32_t, n);
    if (!words) return tg_fail_nomem(e, n * sizeof *words, "the early merges");
    for (uint32_t i = 0; i <= b->merge_mask; i++) {
        const tg_tok_merge *m = &b->merges[i];
        if (m->left < 0 || m->rank < 0 || !may_happen(splits, m)) continue;
        for (uint32_t k = tg_tok_early_level(m->rank); k <= n_levels; k++) {
            tg_tok_early_bits x = tg_tok_early_at(m->left, m->right, k);
            words[x.word] |= x.mask;
        }
    }
    tg_buf_add(out, words, n * sizeof *words);
    tg_mem_free(words);
    return tg_buf_check(out, e);
}
