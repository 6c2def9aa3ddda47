/* SPDX-License-Identifier: Apache-2.0
 * kv.h - pages of keys and values: who owns which.
 *
 * A page holds 64 positions of every layer of one KV group. Each group has a pool of pages and, for
 * every row, a table: position / 64 -> page id. This file only counts; the bytes lie in device
 * buffers. Visibility follows from true lengths and positions, so forgetting a rejected draft
 * is trimming a table and copies nothing. A sliding window gives back pages that no later token can
 * see.
 *
 * Always true between calls: a page is in exactly one table entry or on its group's free list. */
#ifndef TG_RUN_KV_H
#define TG_RUN_KV_H

#include "ir/program.h"

typedef struct tg_kv tg_kv;

/* Pools that let all p->batch rows reach p->max_length, with up to step_tokens new tokens at
 * once. */
TG_MUST_USE tg_status tg_kv_new(tg_kv **out, const tg_program *p, int32_t step_tokens, tg_err *e);
void tg_kv_free(tg_kv *kv); /* accepts NULL */

/* Pages in a group's pool: its buffer has as many times page_bytes. */
int32_t tg_kv_n_pages(const tg_kv *kv, int32_t group);
int32_t tg_kv_n_free(const tg_kv *kv, int32_t group);

/* Gives the row pages for positions [n_held, n_positions): it then holds n_positions. TG_E_LIMIT
 * beyond max_length, and nothing changes. */
TG_MUST_USE tg_status tg_kv_acquire(tg_kv *kv, int32_t row, int32_t n_positions, tg_err *e);
/* Forgets positions from n_positions on. */
void tg_kv_trim(tg_kv *kv, int32_t row, int32_t n_positions);
/* Gives back pages that a token at position n_positions or later cannot see. */
void tg_kv_slide(tg_kv *kv, int32_t row, int32_t n_positions);
/* Whether everything that a token at position n_positions may see is still held: the row may go on
 * from there after a trim. */
bool tg_kv_can_resume(const tg_kv *kv, int32_t row, int32_t n_positions);

/* Page ids by position / 64; -1 where none. */
const int32_t *tg_kv_get_table(const tg_kv *kv, int32_t group, int32_t row);

#endif
