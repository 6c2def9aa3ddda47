/* SPDX-License-Identifier: Apache-2.0
 * pairs.h - which pair of symbols is merged next: the lowest rank, then the leftmost place.
 *
 * For words of a few thousand symbols it is a heap. In longer ones a heap outgrows the caches and
 * each pop waits for memory, so pairs wait in a list of their rank: most ranks of a long word have
 * many pairs, and a list is read from left to right. Only pairs that turn up with a rank already
 * reached go through the heap. Ten million letters take half to a third of a heap's time. */
#ifndef TG_TOKEN_PAIRS_H
#define TG_TOKEN_PAIRS_H

#include "base/base.h"

/* Zeroed memory for the items of a word. A long word's is address space that is committed when
 * touched, in pages of 2 MB where the system has them: it is walked in no order that small pages
 * would be kind to. Freed with the size it was made with. */
void *tg_bulk_new(size_t count, size_t size);
void tg_bulk_free(void *p, size_t n_bytes); /* accepts NULL */

typedef struct tg_pair_heap {
    uint64_t *at; /* rank << 32 | place */
    size_t n, size;
} tg_pair_heap;

typedef struct tg_pair_link {
    int32_t place, next; /* next of its rank; -1: the last */
} tg_pair_link;

/* {0} is empty. */
typedef struct tg_pairs {
    tg_pair_heap urgent;  /* pairs of ranks up to `current` */
    tg_pair_heap ranks;   /* ranks above it that have a list */
    int32_t *head, *tail; /* [n_ranks] into links; -1: none */
    tg_pair_link *links;
    int32_t *taken; /* the list of rank `current`, sorted; read up to n_read */
    size_t n_links, size_links, n_taken, n_read; /* `taken` has the size of `links` */
    int32_t current, n_ranks, link_free;
    bool is_failed; /* memory was refused; pairs may be missing */
} tg_pairs;

/* For a word of n symbols; ranks are below n_ranks. */
void tg_pairs_begin(tg_pairs *p, size_t n_symbols, int32_t n_ranks);
void tg_pairs_push(tg_pairs *p, int32_t rank, int32_t place);
/* False when there is none. A pair that is gone from the word is still handed out: the caller
 * knows what its symbols are by now. */
bool tg_pairs_pop(tg_pairs *p, int32_t *rank, int32_t *place);
void tg_pairs_deinit(tg_pairs *p);

#endif
