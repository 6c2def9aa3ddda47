/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/tokcache.h"

#include "base/mem.h"

/* From 4 KiB, since most calls see a short text, to 1 MiB, a second cache. */
enum { LEAST_BITS = 6, MOST_BITS = 14 };

static void resize(tg_word_cache *c, uint32_t n_bits)
{
    tg_word_entry *at = TG_NEW_ARRAY(tg_word_entry, 1 << n_bits);
    if (!at) return;
    tg_mem_free(c->at);
    *c = (tg_word_cache){.at = at, .n_bits = n_bits};
}

void tg_word_cache_begin(tg_word_cache *c)
{
    if (!c->at) resize(c, LEAST_BITS);
}

void tg_word_cache_add(tg_word_cache *c, const tg_word_entry *word)
{
    if (!c->at) return;
    *tg_word_place(c, &word->key, word->n_bytes) = *word;
    if (++c->n_added < 1u << c->n_bits || c->n_bits == MOST_BITS) return;
    resize(c, TG_MIN(c->n_bits + 2, (uint32_t)MOST_BITS));
    c->n_added = 0;
}

void tg_word_cache_deinit(tg_word_cache *c)
{
    tg_mem_free(c->at);
    *c = (tg_word_cache){0};
}
