/* SPDX-License-Identifier: Apache-2.0
 * keytriebuild.h - lays out the double array that run/keytrie.h walks. */
#ifndef TG_TOKEN_KEYTRIEBUILD_H
#define TG_TOKEN_KEYTRIEBUILD_H

#include "token/run/keytrie.h"

typedef struct tg_keytrie_item {
    tg_str key; /* not empty */
    int32_t id;
} tg_keytrie_item;

/* Appends the units of `items`, which it sorts. Of equal keys the greatest id counts. */
TG_MUST_USE tg_status tg_keytrie_pack(tg_buf *out, tg_keytrie_item *items, size_t n, tg_err *e);

#endif
