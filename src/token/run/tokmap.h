/* SPDX-License-Identifier: Apache-2.0
 * tokmap.h - normalizers that look at one character at a time, and SentencePiece's table of them.
 * */
#ifndef TG_TOKEN_TOKMAP_H
#define TG_TOKEN_TOKMAP_H

#include "base/str.h"

enum { TG_TOK_MAP_BYTES = 16, TG_TOK_MAP_KEEP = -1 };

/* What becomes of a character: the bytes in `out`, whose number is returned (0: nothing is left of
 * it), or TG_TOK_MAP_KEEP. */
typedef int tg_tok_map_fn(int32_t cp, char out[TG_TOK_MAP_BYTES]);

tg_tok_map_fn tg_tok_map_lowercase, tg_tok_map_clean, tg_tok_map_space_cjk,
    tg_tok_map_strip_accents, tg_tok_map_strip_nonspacing, tg_tok_map_nmt, tg_tok_map_byte_chars;

/* ---- SentencePiece's precompiled table
 *
 *   0   4            size in bytes of the double array, little-endian
 *   4   size         units of 32 bits: Darts' format
 *   ..  the rest     replacements in UTF-8, each ended by a 0 */

typedef struct tg_charsmap {
    tg_str units, replacements;
} tg_charsmap;

/* Takes the table apart. `name` is what messages call it. */
TG_MUST_USE tg_status tg_charsmap_parse(tg_charsmap *out, tg_str bytes, const char *name,
                                        tg_err *e);

/* The key that the text begins with, the shortest or the longest: how many bytes it has, and its
 * replacement, which may be empty; 0 when there is none. */
size_t tg_charsmap_find(const tg_charsmap *m, tg_str text, bool is_longest, tg_str *replacement);

/* How many bytes from `at` are one character as a reader sees it: Unicode's grapheme cluster. */
size_t tg_charsmap_cluster_bytes(tg_str text, size_t at);

#endif
