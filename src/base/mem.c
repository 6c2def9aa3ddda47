/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, CHUNK_BYTES = 64 * 1024, LARGE_PAGE = 2 << 20 };

/* The chunk's payload follows its header, which fills one alignment unit. */
struct tg_arena_chunk {
    struct tg_arena_chunk *next;
    size_t used, size;
};
_Static_assert(sizeof(struct tg_arena_chunk) <= ALIGN, "the header must fit before the payload");

static atomic_llong n_alive;
static _Thread_local int lock_depth;
static _Thread_local int64_t fail_after = -1;

static bool is_refused(void)
{
    TG_ASSERT(lock_depth == 0 && "allocation inside a step");
    if (fail_after < 0) return false;
    if (fail_after == 0) return true;
    fail_after--;
    return false;
}

/* n_bytes made a multiple of ALIGN, or NULL. */
static void *allocate(size_t *n_bytes)
{
    size_t padded;
    if (is_refused() || !tg_add_size(*n_bytes, ALIGN, &padded)) return NULL;
    *n_bytes = tg_align_up(*n_bytes ? *n_bytes : 1, ALIGN);
    void *p = aligned_alloc(ALIGN, *n_bytes);
    if (p) atomic_fetch_add_explicit(&n_alive, 1, memory_order_relaxed);
    return p;
}

void *tg_mem_new(size_t n_bytes)
{
    void *p = allocate(&n_bytes);
    if (p) memset(p, 0, n_bytes);
    return p;
}

void *tg_mem_new_plain(size_t n_bytes)
{
    if (is_refused()) return NULL;
    void *p = malloc(n_bytes ? n_bytes : 1);
    if (p) atomic_fetch_add_explicit(&n_alive, 1, memory_order_relaxed);
    return p;
}

void *tg_mem_new_array(size_t count, size_t size)
{
    size_t n;
    return tg_mul_size(count, size, &n) ? tg_mem_new(n) : NULL;
}

/* The block p becomes q; NULL, and p stays, where q is. */
static void *move(void *p, size_t old_bytes, void *q, size_t new_bytes)
{
    if (!q) return NULL;
    if (p) memcpy(q, p, TG_MIN(old_bytes, new_bytes));
    tg_mem_free(p);
    return q;
}

void *tg_mem_resize(void *p, size_t old_bytes, size_t new_bytes)
{
    return move(p, old_bytes, tg_mem_new(new_bytes), new_bytes);
}

void *tg_mem_grow(void *p, size_t old_bytes, size_t new_bytes)
{
    size_t padded = new_bytes;
    return move(p, old_bytes, allocate(&padded), new_bytes);
}

void tg_mem_free(void *p)
{
    if (!p) return;
    atomic_fetch_sub_explicit(&n_alive, 1, memory_order_relaxed);
    free(p);
}

/* Address space of whole large pages is what Linux (6.7 on) also places at a multiple of one. */
static size_t reserved_bytes(size_t n_bytes)
{
    if (n_bytes < LARGE_PAGE || n_bytes > SIZE_MAX - LARGE_PAGE) return TG_MAX(n_bytes, 1);
    return tg_align_up(n_bytes, LARGE_PAGE);
}

void *tg_mem_reserve(size_t n_bytes)
{
    if (is_refused()) return NULL;
    void *p = mmap(NULL, reserved_bytes(n_bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void tg_mem_unreserve(void *p, size_t n_bytes)
{
    if (p) munmap(p, reserved_bytes(n_bytes));
}

void tg_mem_prefer_large_pages(void *p, size_t n_bytes)
{
    (void)madvise(p, n_bytes, MADV_HUGEPAGE);
}

void *tg_arena_alloc(tg_arena *a, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - 2 * ALIGN) return NULL;
    size_t need = tg_align_up(n_bytes, ALIGN);
    struct tg_arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < need) {
        size_t size = TG_MAX(need, (size_t)CHUNK_BYTES);
        c = tg_mem_new(size + ALIGN);
        if (!c) return NULL;
        c->size = size;
        c->next = a->chunks;
        a->chunks = c;
    }
    void *p = (char *)c + ALIGN + c->used;
    c->used += need;
    a->n_bytes += need;
    return p;
}

void *tg_arena_alloc_array(tg_arena *a, size_t count, size_t size)
{
    size_t n;
    return tg_mul_size(count, size, &n) ? tg_arena_alloc(a, n) : NULL;
}

char *tg_arena_copy_str(tg_arena *a, const char *s, size_t n)
{
    char *p = n < SIZE_MAX ? tg_arena_alloc(a, n + 1) : NULL;
    if (p && n) memcpy(p, s, n);
    return p;
}

void tg_arena_deinit(tg_arena *a)
{
    while (a->chunks) {
        struct tg_arena_chunk *next = a->chunks->next;
        tg_mem_free(a->chunks);
        a->chunks = next;
    }
    a->n_bytes = 0;
}

void tg_mem_lock_begin(void)
{
    lock_depth++;
}

void tg_mem_lock_end(void)
{
    TG_ASSERT(lock_depth > 0);
    lock_depth--;
}

void tg_mem_fail_after(int64_t n)
{
    fail_after = n;
}

int64_t tg_mem_n_alive(void)
{
    return atomic_load_explicit(&n_alive, memory_order_relaxed);
}
