/* SPDX-License-Identifier: Apache-2.0
 * tokcache.h - short words whose ids are known already.
 *
 * A text repeats its words, and merging one costs as much as finding twenty here: an entry is one
 * cache line, the tables of a vocabulary are megabytes. A word has one place; another that wants
 * it takes it. Ids never depend on what is held. */
#ifndef TG_TOKEN_TOKCACHE_H
#define TG_TOKEN_TOKCACHE_H

#include "base/base.h"

#include <string.h>

enum { TG_WORD_MAX_BYTES = 24, TG_WORD_MAX_IDS = 6 };

/* A word as three numbers, which together with its length say what its bytes are. */
typedef struct tg_word_key {
    uint64_t part[3];
} tg_word_key;

typedef struct tg_word_entry {
    tg_word_key key;
    int32_t ids[TG_WORD_MAX_IDS];
    uint8_t begin[TG_WORD_MAX_IDS], end[TG_WORD_MAX_IDS]; /* bytes of the word, for each id */
    uint8_t n_bytes, n_ids;                               /* n_bytes 0: empty */
    uint8_t unused[2];
} tg_word_entry;

_Static_assert(sizeof(tg_word_entry) == 64, "an entry is a cache line");

/* {0} is empty. */
typedef struct tg_word_cache {
    tg_word_entry *at;
    uint32_t n_bits; /* 1 << n_bits entries */
    uint32_t n_added;
} tg_word_cache;

/* Keeps a word, whose place may have held another. A table that has taken as many words as it has
 * places grows, up to a bound, and is then empty. */
void tg_word_cache_add(tg_word_cache *c, const tg_word_entry *word);
/* Makes the smallest table where there is none; without memory for it no word is kept. */
void tg_word_cache_begin(tg_word_cache *c);
void tg_word_cache_deinit(tg_word_cache *c);

TG_INLINE uint64_t tg_word_load(const char *p, size_t n)
{
    uint64_t x = 0;
    memcpy(&x, p, n);
    return x;
}

/* Loads overlap, so that none reads beyond the word. */
TG_INLINE tg_word_key tg_word_key_of(const char *p, size_t n)
{
    tg_word_key k = {{0}};
    if (n >= 8) {
        k.part[0] = tg_word_load(p, 8);
        k.part[1] = tg_word_load(p + n - 8, 8);
        if (n > 16) k.part[2] = tg_word_load(p + 8, 8);
    } else if (n >= 4) {
        k.part[0] = tg_word_load(p, 4) | tg_word_load(p + n - 4, 4) << 32;
    } else {
        k.part[0] = (uint64_t)(uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << 8 |
                    (uint64_t)(uint8_t)p[n - 1] << 16;
    }
    return k;
}

TG_INLINE uint64_t tg_word_hash(const tg_word_key *k, size_t n)
{
    uint64_t x = (k->part[0] ^ n) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32 ^ k->part[1]) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 32 ^ k->part[2]) * 0x94d049bb133111ebu;
}

TG_INLINE tg_word_entry *tg_word_place(const tg_word_cache *c, const tg_word_key *k, size_t n)
{
    return &c->at[tg_word_hash(k, n) >> (64 - c->n_bits)];
}

/* The entry of a word of n bytes, or NULL. */
TG_INLINE const tg_word_entry *tg_word_cache_find(const tg_word_cache *c, const tg_word_key *k,
                                                  size_t n)
{
    if (!c->at) return NULL;
    const tg_word_entry *x = tg_word_place(c, k, n);
    bool is_same = x->n_bytes == n && x->key.part[0] == k->part[0] &&
                   x->key.part[1] == k->part[1] && x->key.part[2] == k->part[2];
    return is_same ? x : NULL;
}

#endif
