/* SPDX-License-Identifier: Apache-2.0
 * keytrie.h - a set of keys, read along a text: which of them begin here?
 *
 * A double array: the child of unit u by byte c lies at u.base + c, and is its child if its
 * `parent` says so. One look at memory a byte, whatever the number of keys, and no pointers: the
 * array is a section of the compiled tokenizer. Unit 0 is the root. */
#ifndef TG_TOKEN_KEYTRIE_H
#define TG_TOKEN_KEYTRIE_H

#include "base/str.h"

#define TG_KEYTRIE_NONE UINT32_MAX /* no such unit; the parent of a unit that is not used */

typedef struct tg_keytrie_unit {
    uint32_t base, parent;
    int32_t id;        /* the key that ends here, or -1 */
    uint32_t children; /* bit c % 32 of each child's byte c */
} tg_keytrie_unit;

_Static_assert(sizeof(tg_keytrie_unit) == 16, "layouts of the blob");

/* Borrowed. */
typedef struct tg_keytrie {
    const tg_keytrie_unit *units;
    uint32_t n_units; /* at least 1 where it is walked */
} tg_keytrie;

/* The child of a unit below n_units, or TG_KEYTRIE_NONE. Whatever the units hold, no unit outside
 * the array is looked at. */
TG_INLINE uint32_t tg_keytrie_find_child(const tg_keytrie *t, uint32_t unit, uint8_t byte)
{
    if (!(t->units[unit].children >> (byte & 31) & 1)) return TG_KEYTRIE_NONE;
    uint64_t at = (uint64_t)t->units[unit].base + byte;
    return at < t->n_units && t->units[at].parent == unit ? (uint32_t)at : TG_KEYTRIE_NONE;
}

#endif
