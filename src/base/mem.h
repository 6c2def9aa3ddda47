/* SPDX-License-Identifier: Apache-2.0
 * mem.h - the one door to the heap.
 *
 * Everything handed out is zeroed and aligned to 64 bytes, but for the plain blocks of libraries.
 * Three lifetimes: a heap object lives until its owner closes it; an arena lives until its job is
 * done and frees everything at once; a reservation is address space that costs memory only where it
 * was touched (KV pages, logits).
 *
 * A step allocates nothing: between tg_mem_lock_begin and tg_mem_lock_end any allocation on that
 * thread is our mistake and aborts. tg_mem_fail_after lets a test refuse the n-th allocation. */
#ifndef TG_BASE_MEM_H
#define TG_BASE_MEM_H

#include "base/base.h"

/* NULL when memory is refused. n_bytes of 0 gives a valid pointer. */
void *tg_mem_new(size_t n_bytes);
/* NULL also when count * size wraps. */
void *tg_mem_new_array(size_t count, size_t size);
/* Grows or shrinks, keeping the first min(old, new) bytes and zeroing what is new; on NULL the old
 * block is still valid. `p` may be NULL with old_bytes 0. */
void *tg_mem_resize(void *p, size_t old_bytes, size_t new_bytes);
/* The same, but new bytes hold anything: their pages come when they are written. */
void *tg_mem_grow(void *p, size_t old_bytes, size_t new_bytes);
void tg_mem_free(void *p); /* accepts NULL */
/* Neither zeroed nor aligned beyond 16 bytes: for a library's own many small blocks. */
void *tg_mem_new_plain(size_t n_bytes);

#define TG_NEW(T)          ((T *)tg_mem_new(sizeof(T)))
#define TG_NEW_ARRAY(T, n) ((T *)tg_mem_new_array((size_t)(n), sizeof(T)))

/* Zeroed address space of n_bytes, committed page by page when first touched; NULL if refused. */
void *tg_mem_reserve(size_t n_bytes);
void tg_mem_unreserve(void *p, size_t n_bytes);
/* Asks for pages of 2 MB behind reserved memory that is not touched yet; where the system has none,
 * nothing changes. */
void tg_mem_prefer_large_pages(void *p, size_t n_bytes);

/* A growing list of chunks. {0} is an empty arena; single pieces are never freed. */
typedef struct tg_arena {
    struct tg_arena_chunk *chunks; /* newest first; owned */
    size_t n_bytes;                /* handed out in all */
} tg_arena;

void *tg_arena_alloc(tg_arena *a, size_t n_bytes);
void *tg_arena_alloc_array(tg_arena *a, size_t count, size_t size);
/* A copy with a terminating zero. */
char *tg_arena_copy_str(tg_arena *a, const char *s, size_t n);
void tg_arena_deinit(tg_arena *a); /* frees all pieces; the arena is empty and usable again */

#define TG_ARENA_NEW(a, T)          ((T *)tg_arena_alloc((a), sizeof(T)))
#define TG_ARENA_ARRAY(a, T, count) ((T *)tg_arena_alloc_array((a), (size_t)(count), sizeof(T)))

void tg_mem_lock_begin(void);
void tg_mem_lock_end(void);

/* The n-th allocation from now on this thread, and every later one, is refused; n < 0 ends that. */
void tg_mem_fail_after(int64_t n);
/* Heap blocks now alive in the process: a test compares it before and after. */
int64_t tg_mem_n_alive(void);

#endif
