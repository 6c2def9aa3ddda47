/* SPDX-License-Identifier: Apache-2.0
 * tokdfa.h - the patterns of tokenizers as tables: one look-up a character, no backtracking.
 *
 * Patterns of pre-tokenizers are made of sets of characters, alternatives and repetitions, and of
 * looking one character ahead. For these an automaton finds the match that a backtracking engine
 * would: its states are lists of places in the pattern in the order of preference, and a place
 * behind one that has matched is dropped. Which characters a set holds is asked of PCRE2 while
 * compiling, one character at a time, so both agree by construction. Patterns with anything else
 * (look-behind, \A, longer look-ahead) are not built and remain PCRE2's: tokregex.h.
 *
 * Pages of documentation become ids at 53.6 MB/s with an automaton, at 29.6 with PCRE2's machine
 * code (Qwen 3), 62.4 and 28.2 (Llama 3); C sources at 51.9 and 29.9, 62.5 and 16.9 (Zen 3).
 *
 * The image, little-endian, is part of the compiled tokenizer:
 *
 *   tg_dfa_header
 *   uint16 next[n_cells]      row of a state: the next state by class of the character
 *   uint16 page_of[0x1100]    code point / 256 -> page
 *   uint8  pages[n_pages][256] code point -> class
 *
 * A cell holds the first cell of the next state's row, and TG_DFA_MATCH where a match ends in front
 * of the character. Row 0 is the end, row 1 the start. The last class is the end of the text.
 * */
#ifndef TG_TOKEN_TOKDFA_H
#define TG_TOKEN_TOKDFA_H

#include "base/str.h"

enum { TG_DFA_MATCH = 0x8000, TG_DFA_N_PAGES_OF = 0x1100, TG_DFA_ALIGN = 64 };

typedef struct tg_dfa_header {
    uint32_t n_bytes; /* of the image, a multiple of TG_DFA_ALIGN */
    uint32_t n_cells, n_classes, n_pages;
} tg_dfa_header;

/* An image to run; borrowed. `next` NULL: none. */
typedef struct tg_dfa {
    const uint16_t *next, *page_of;
    const uint8_t *pages, *ascii; /* ascii: the page of U+0000 */
    uint32_t n_classes;
} tg_dfa;

/* False when the bytes, aligned to TG_DFA_ALIGN, are no image that can be run without harm. */
bool tg_dfa_open(tg_dfa *d, const void *bytes, size_t n_bytes);

/* The first match at or after `from`, as tg_regex_find. False when looking for it takes more steps
 * than any sane pattern needs. */
TG_MUST_USE bool tg_dfa_find(const tg_dfa *d, tg_str text, size_t from, size_t *begin, size_t *end);

#endif
