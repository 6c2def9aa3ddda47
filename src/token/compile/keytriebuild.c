/* SPDX-License-Identifier: Apache-2.0 */
#include "token/compile/keytriebuild.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Children of any byte then have a place at or above 1, whatever their unit's base. */
enum { FIRST_PLACE = 256 };

typedef struct builder {
    tg_keytrie_unit *units;
    size_t n_units, size; /* used up to; capacity */
    size_t first_free;    /* no unused unit lies below */
    size_t scan_from;     /* below, units are taken too densely for families to look */
    bool is_failed;
} builder;

static bool is_used(const builder *b, size_t at)
{
    return at < b->n_units && b->units[at].parent != TG_KEYTRIE_NONE;
}

/* Makes units exist up to `n`, unused. */
static bool reserve(builder *b, size_t n)
{
    if (n > b->size && !b->is_failed) {
        size_t want = TG_MAX(n, b->size * 2), bytes;
        void *p = tg_mul_size(want, sizeof *b->units, &bytes)
                      ? tg_mem_resize(b->units, b->size * sizeof *b->units, bytes)
                      : NULL;
        if (p) {
            b->units = p;
            b->size = want;
        } else {
            b->is_failed = true;
        }
    }
    if (b->is_failed) return false;
    for (; b->n_units < n; b->n_units++)
        b->units[b->n_units] = (tg_keytrie_unit){0, TG_KEYTRIE_NONE, -1, 0};
    return true;
}

/* The lowest base that has room for all children. Only children fill the holes, so the search
 * starts over from the end where nineteen of twenty units are taken: otherwise every family would
 * look at all of them. */
static size_t find_base(builder *b, const uint8_t *bytes, size_t n)
{
    while (is_used(b, b->first_free))
        b->first_free++;
    size_t at = n == 1 ? b->first_free : TG_MAX(b->first_free, b->scan_from), begin = at,
           n_used = 0;
    for (;; at++) {
        if (is_used(b, at)) {
            n_used++;
            continue;
        }
        size_t k = 1;
        while (k < n && !is_used(b, at + bytes[k] - bytes[0]))
            k++;
        if (k == n) break;
    }
    if (n > 1 && at > begin && n_used * 20 >= (at - begin) * 19) b->scan_from = at;
    return at - bytes[0];
}

/* Keys of a range have their first `depth` bytes in common, and lead to `unit`. */
typedef struct family {
    size_t low, high, depth;
    uint32_t unit;
} family;

/* Gives the children of a family their units. Returns how many there are, as families. */
static size_t place_children(builder *b, const tg_keytrie_item *items, family f, family *children)
{
    uint8_t bytes[256];
    size_t n = 0, k = f.low;
    /* Shorter keys come first, and of equal ones the greatest id last. */
    for (; k < f.high && items[k].key.len == f.depth; k++)
        b->units[f.unit].id = items[k].id;
    while (k < f.high) {
        size_t low = k;
        uint8_t byte = (uint8_t)items[k].key.ptr[f.depth];
        while (k < f.high && (uint8_t)items[k].key.ptr[f.depth] == byte)
            k++;
        bytes[n] = byte;
        children[n++] = (family){low, k, f.depth + 1, 0};
    }
    if (n == 0) return 0;
    size_t base = find_base(b, bytes, n);
    if (base > UINT32_MAX - 512 || !reserve(b, base + bytes[n - 1] + 1)) {
        b->is_failed = true;
        return 0;
    }
    b->units[f.unit].base = (uint32_t)base;
    for (size_t i = 0; i < n; i++) {
        children[i].unit = (uint32_t)(base + bytes[i]);
        b->units[children[i].unit].parent = f.unit;
        b->units[f.unit].children |= 1u << (bytes[i] & 31);
    }
    return n;
}

static int compare_items(const void *a, const void *b)
{
    const tg_keytrie_item *x = a, *y = b;
    int c = memcmp(x->key.ptr, y->key.ptr, TG_MIN(x->key.len, y->key.len));
    if (c) return c;
    if (x->key.len != y->key.len) return x->key.len < y->key.len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Depth first, so that the units of a key's tail lie side by side. The stack holds the brothers of
 * each ancestor: at most 255 a byte of the longest key, and never more than keys. */
tg_status tg_keytrie_pack(tg_buf *out, tg_keytrie_item *items, size_t n, tg_err *e)
{
    builder b = {.first_free = FIRST_PLACE};
    size_t n_stack = 0;
    family *stack = tg_mem_new_array(n + 257, sizeof *stack);
    if (n) qsort(items, n, sizeof *items, compare_items);
    if (stack && reserve(&b, FIRST_PLACE)) {
        b.units[0].base = FIRST_PLACE;
        if (n) stack[n_stack++] = (family){0, n, 0, 0};
    }
    while (n_stack && !b.is_failed) {
        family f = stack[--n_stack];
        n_stack += place_children(&b, items, f, stack + n_stack);
    }
    bool is_done = stack && !b.is_failed;
    if (is_done) tg_buf_add(out, b.units, b.n_units * sizeof *b.units);
    tg_mem_free(stack);
    tg_mem_free(b.units);
    return is_done ? tg_buf_check(out, e)
                   : tg_fail_nomem(e, b.n_units * sizeof *b.units, "the trie of a vocabulary");
}
