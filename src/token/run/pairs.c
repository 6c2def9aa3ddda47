/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/pairs.h"

#include "base/mem.h"

#include <stdlib.h>

/* Below this many symbols a heap of pairs stays in the second cache (16 bytes a symbol). */
enum { LONG_WORD = 8192 };

/* Smaller blocks the allocator serves from pages that it has already. */
enum { BULK_BYTES = 4 << 20 };

void *tg_bulk_new(size_t count, size_t size)
{
    size_t n;
    if (!tg_mul_size(count, size, &n)) return NULL;
    if (n < BULK_BYTES) return tg_mem_new(n);
    void *p = tg_mem_reserve(n);
    if (p) tg_mem_prefer_large_pages(p, n);
    return p;
}

void tg_bulk_free(void *p, size_t n_bytes)
{
    if (n_bytes < BULK_BYTES)
        tg_mem_free(p);
    else if (p)
        tg_mem_unreserve(p, n_bytes);
}

static bool reserve(void **ptr, size_t *size, size_t used, size_t want, size_t item)
{
    if (want <= *size) return true;
    size_t n = TG_MAX(want, *size * 2 + 256), bytes;
    void *p = tg_mul_size(n, item, &bytes) ? tg_mem_resize(*ptr, used * item, bytes) : NULL;
    if (!p) return false;
    *ptr = p;
    *size = n;
    return true;
}

/* ---- the heap */

/* Binary: it is small, or the pairs in it are few. */
static void heap_push(tg_pairs *p, tg_pair_heap *h, uint64_t x)
{
    void *at = h->at;
    if (!reserve(&at, &h->size, h->n, h->n + 1, sizeof *h->at)) {
        p->is_failed = true;
        return;
    }
    h->at = at;
    size_t i = h->n++;
    for (; i > 0 && h->at[(i - 1) / 2] > x; i = (i - 1) / 2)
        h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = x;
}

static uint64_t heap_pop(tg_pair_heap *h)
{
    uint64_t top = h->at[0], x = h->at[--h->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->at[child + 1] < h->at[child]) child++;
        if (h->at[child] >= x) break;
        h->at[i] = h->at[child];
    }
    h->at[i] = x;
    return top;
}

static uint64_t join(int32_t rank, int32_t place)
{
    return (uint64_t)(uint32_t)rank << 32 | (uint32_t)place;
}

/* ---- lists by rank */

/* Takes links that read lists gave back first. A merge reads one and pushes two at most, so that no
 * more are ever alive than twice the word's symbols. */
static void list_push(tg_pairs *p, int32_t rank, int32_t place)
{
    int32_t k = p->link_free;
    if (k >= 0) {
        p->link_free = p->links[k].next;
    } else {
        TG_ASSERT(p->n_links < p->size_links);
        k = (int32_t)p->n_links++;
    }
    p->links[k] = (tg_pair_link){place, -1};
    if (p->head[rank] < 0) {
        p->head[rank] = k;
        heap_push(p, &p->ranks, join(rank, 0));
    } else {
        p->links[p->tail[rank]].next = k;
    }
    p->tail[rank] = k;
}

static int compare_places(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Moves the list of a rank to `taken`, from left to right. It grew while ranks below were worked
 * off from left to right, so it is sorted but where one of them ended. */
static void take_list(tg_pairs *p, int32_t rank)
{
    bool is_sorted = true;
    p->current = rank;
    p->n_taken = p->n_read = 0;
    for (int32_t k = p->head[rank], next; k >= 0; k = next) {
        if (p->n_taken && p->taken[p->n_taken - 1] > p->links[k].place) is_sorted = false;
        p->taken[p->n_taken++] = p->links[k].place;
        next = p->links[k].next;
        p->links[k].next = p->link_free;
        p->link_free = k;
    }
    p->head[rank] = p->tail[rank] = -1;
    if (!is_sorted) qsort(p->taken, p->n_taken, sizeof *p->taken, compare_places);
}

static void free_lists(tg_pairs *p)
{
    tg_bulk_free(p->links, p->size_links * sizeof *p->links);
    tg_bulk_free(p->taken, p->size_links * sizeof *p->taken);
    p->links = NULL;
    p->taken = NULL;
    p->size_links = 0;
}

/* ---- the queue of both */

void tg_pairs_begin(tg_pairs *p, size_t n_symbols, int32_t n_ranks)
{
    p->urgent.n = p->ranks.n = 0;
    p->n_taken = p->n_read = p->n_links = 0;
    p->link_free = -1;
    p->current = INT32_MAX; /* every pair is urgent: only the heap is used */
    if (n_symbols < LONG_WORD) return;
    if (!p->head) {
        p->head = TG_NEW_ARRAY(int32_t, n_ranks);
        p->tail = TG_NEW_ARRAY(int32_t, n_ranks);
        p->n_ranks = n_ranks;
        if (!p->head || !p->tail) {
            p->is_failed = true;
            return;
        }
        for (int32_t i = 0; i < n_ranks; i++)
            p->head[i] = p->tail[i] = -1;
    }
    if (2 * n_symbols > p->size_links) {
        free_lists(p);
        p->links = tg_bulk_new(2 * n_symbols, sizeof *p->links);
        p->taken = tg_bulk_new(2 * n_symbols, sizeof *p->taken);
        p->size_links = 2 * n_symbols;
        if (!p->links || !p->taken) {
            p->is_failed = true;
            return;
        }
    }
    p->current = -1;
}

void tg_pairs_push(tg_pairs *p, int32_t rank, int32_t place)
{
    if (p->is_failed) return;
    /* A rank that is being read, or is behind: only the heap can still bring it in its order. */
    if (rank <= p->current)
        heap_push(p, &p->urgent, join(rank, place));
    else
        list_push(p, rank, place);
}

bool tg_pairs_pop(tg_pairs *p, int32_t *rank, int32_t *place)
{
    if (p->is_failed) return false;
    /* The list and the heap hold no pair above `current`, all other lists none up to it. */
    uint64_t x;
    if (p->n_read == p->n_taken && p->urgent.n == 0) {
        if (p->ranks.n == 0) return false;
        take_list(p, (int32_t)(heap_pop(&p->ranks) >> 32));
        if (p->is_failed) return false;
    }
    if (p->n_read < p->n_taken) {
        x = join(p->current, p->taken[p->n_read]);
        if (p->urgent.n && p->urgent.at[0] < x)
            x = heap_pop(&p->urgent);
        else
            p->n_read++;
    } else {
        x = heap_pop(&p->urgent);
    }
    *rank = (int32_t)(x >> 32);
    *place = (int32_t)(uint32_t)x;
    return true;
}

void tg_pairs_deinit(tg_pairs *p)
{
    tg_mem_free(p->urgent.at);
    tg_mem_free(p->ranks.at);
    tg_mem_free(p->head);
    tg_mem_free(p->tail);
    free_lists(p);
    *p = (tg_pairs){0};
}
