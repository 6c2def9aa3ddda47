/* SPDX-License-Identifier: Apache-2.0 */
#include "run/kv.h"

enum { PAGE = TG_KV_PAGE_TOKENS };

typedef struct pool {
    int32_t n_pages, n_free, window;
    int32_t *free;  /* [n_pages] a stack: what was used last is warm */
    int32_t *table; /* [batch][pages_per_row] */
} pool;

struct tg_kv {
    int32_t n_groups, batch, max_length, pages_per_row;
    int32_t *n_held; /* [batch] positions */
    pool pools[TG_MAX_KV_GROUPS];
    tg_arena arena;
};

static bool new_pool(tg_kv *kv, pool *p, int32_t window, int32_t step_tokens)
{
    int64_t per_row = kv->pages_per_row;
    /* A window's keys, a step's tokens, and a page begun at either end. */
    if (window > 0) per_row = TG_MIN(per_row, tg_div_up((int64_t)window + step_tokens, PAGE) + 1);
    p->window = window;
    p->n_pages = p->n_free = (int32_t)(per_row * kv->batch);
    p->free = TG_ARENA_ARRAY(&kv->arena, int32_t, p->n_pages);
    int64_t n_entries = (int64_t)kv->batch * kv->pages_per_row;
    p->table = TG_ARENA_ARRAY(&kv->arena, int32_t, n_entries);
    if (!p->free || !p->table) return false;
    for (int32_t i = 0; i < p->n_pages; i++)
        p->free[i] = p->n_pages - 1 - i;
    for (int64_t i = 0; i < n_entries; i++)
        p->table[i] = -1;
    return true;
}

tg_status tg_kv_new(tg_kv **out, const tg_program *p, int32_t step_tokens, tg_err *e)
{
    *out = NULL;
    tg_kv *kv = TG_NEW(tg_kv);
    if (!kv) return tg_fail_nomem(e, sizeof *kv, "the page tables");
    kv->n_groups = p->n_kv_groups;
    kv->batch = p->batch;
    kv->max_length = p->max_length;
    kv->pages_per_row = (int32_t)tg_div_up(p->max_length, PAGE);
    kv->n_held = TG_ARENA_ARRAY(&kv->arena, int32_t, p->batch);
    bool is_ok = kv->n_held != NULL;
    for (int32_t g = 0; is_ok && g < kv->n_groups; g++)
        is_ok = new_pool(kv, &kv->pools[g], p->kv_groups[g].window, step_tokens);
    if (!is_ok) {
        tg_kv_free(kv);
        return tg_fail_nomem(e, (size_t)p->batch, "the page tables");
    }
    *out = kv;
    return TG_OK;
}

void tg_kv_free(tg_kv *kv)
{
    if (!kv) return;
    tg_arena_deinit(&kv->arena);
    tg_mem_free(kv);
}

int32_t tg_kv_n_pages(const tg_kv *kv, int32_t group)
{
    return kv->pools[group].n_pages;
}

int32_t tg_kv_n_free(const tg_kv *kv, int32_t group)
{
    return kv->pools[group].n_free;
}

static int32_t *row_table(const tg_kv *kv, const pool *p, int32_t row)
{
    return p->table + (int64_t)row * kv->pages_per_row;
}

/* Returns the entries [begin, end) of a table to the pool. */
static void give_back(pool *p, int32_t *table, int32_t begin, int32_t end)
{
    for (int32_t i = end - 1; i >= begin; i--) {
        if (table[i] < 0) continue;
        p->free[p->n_free++] = table[i];
        table[i] = -1;
    }
}

static int32_t pages_of(int32_t n_positions)
{
    return (int32_t)tg_div_up(n_positions, PAGE);
}

tg_status tg_kv_acquire(tg_kv *kv, int32_t row, int32_t n_positions, tg_err *e)
{
    if (n_positions > kv->max_length)
        return tg_fail(e, TG_E_LIMIT, "position %d is beyond the model's max-length of %d",
                       n_positions - 1, kv->max_length);
    int32_t begin = pages_of(kv->n_held[row]), end = pages_of(n_positions);
    for (int32_t g = 0; g < kv->n_groups; g++) {
        pool *p = &kv->pools[g];
        /* Pools are sized for every row at its longest, so a page is always there. */
        for (int32_t i = begin; i < end; i++) {
            TG_ASSERT(p->n_free > 0);
            row_table(kv, p, row)[i] = p->free[--p->n_free];
        }
    }
    kv->n_held[row] = TG_MAX(kv->n_held[row], n_positions);
    return TG_OK;
}

void tg_kv_trim(tg_kv *kv, int32_t row, int32_t n_positions)
{
    if (n_positions >= kv->n_held[row]) return;
    int32_t begin = pages_of(n_positions), end = pages_of(kv->n_held[row]);
    for (int32_t g = 0; g < kv->n_groups; g++)
        give_back(&kv->pools[g], row_table(kv, &kv->pools[g], row), begin, end);
    kv->n_held[row] = n_positions;
}

/* The first position that a token at `position` attends to. */
static int32_t first_visible(const pool *p, int32_t position)
{
    return p->window > 0 ? TG_MAX(position - p->window + 1, 0) : 0;
}

void tg_kv_slide(tg_kv *kv, int32_t row, int32_t n_positions)
{
    for (int32_t g = 0; g < kv->n_groups; g++) {
        pool *p = &kv->pools[g];
        give_back(p, row_table(kv, p, row), 0, first_visible(p, n_positions) / PAGE);
    }
}

bool tg_kv_can_resume(const tg_kv *kv, int32_t row, int32_t n_positions)
{
    if (n_positions > kv->n_held[row]) return false;
    for (int32_t g = 0; g < kv->n_groups; g++) {
        const pool *p = &kv->pools[g];
        for (int32_t i = first_visible(p, n_positions) / PAGE; i < pages_of(n_positions); i++)
            if (row_table(kv, p, row)[i] < 0) return false;
    }
    return true;
}

const int32_t *tg_kv_get_table(const tg_kv *kv, int32_t group, int32_t row)
{
    return row_table(kv, &kv->pools[group], row);
}
