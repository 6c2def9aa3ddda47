/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/tokdfa.h"

/* ---- opening */

/* All cells and classes are looked at: they are few, and afterwards no text can lead astray. */
bool tg_dfa_open(tg_dfa *d, const void *bytes, size_t n_bytes)
{
    const tg_dfa_header *h = bytes;
    *d = (tg_dfa){0};
    if (n_bytes < sizeof *h || h->n_bytes > n_bytes || h->n_classes < 1 || h->n_classes > 256 ||
        h->n_cells < 2 * h->n_classes || h->n_cells > TG_DFA_MATCH || h->n_pages < 1 ||
        h->n_pages > TG_DFA_N_PAGES_OF)
        return false;
    size_t pages_at = sizeof *h + ((size_t)h->n_cells + TG_DFA_N_PAGES_OF) * sizeof(uint16_t);
    if (pages_at + (size_t)h->n_pages * 256 > h->n_bytes) return false;
    const uint16_t *next = (const uint16_t *)(const void *)(h + 1), *page_of = next + h->n_cells;
    const uint8_t *pages = (const uint8_t *)bytes + pages_at;
    bool is_good = true;
    for (uint32_t i = 0; i < h->n_cells; i++)
        is_good &= (next[i] & ~TG_DFA_MATCH) <= (int)(h->n_cells - h->n_classes);
    for (uint32_t i = 0; i < TG_DFA_N_PAGES_OF; i++)
        is_good &= page_of[i] < h->n_pages;
    for (uint32_t i = 0; i < h->n_pages * 256; i++)
        is_good &= pages[i] < h->n_classes;
    if (!is_good) return false;
    *d = (tg_dfa){.next = next,
                  .page_of = page_of,
                  .pages = pages,
                  .ascii = pages + page_of[0] * 256,
                  .n_classes = h->n_classes};
    return true;
}

/* ---- running */

/* The class of the character at p, which is not ASCII, and its bytes. The text is valid UTF-8 by
 * contract; one that a damaged file has cut in the middle of a character is read no further. */
static uint32_t class_beyond_ascii(const tg_dfa *d, const unsigned char *p, size_t n_left,
                                   size_t *n)
{
    uint32_t cp = 0xfffd;
    *n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (*n > n_left)
        *n = 1;
    else if (*n == 2)
        cp = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    else if (*n == 3)
        cp = (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    else
        cp = (p[0] & 0x7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    /* Only a damaged text has a code point that is none. */
    uint32_t page = d->page_of[TG_MIN(cp >> 8, (uint32_t)TG_DFA_N_PAGES_OF - 1)];
    return d->pages[page * 256 + (cp & 0xff)];
}

/* The end of the match that begins at `from`, SIZE_MAX when there is none; *reached is where the
 * automaton stopped. */
static size_t match_at(const tg_dfa *d, tg_str text, size_t from, size_t *reached)
{
    const unsigned char *p = (const unsigned char *)text.ptr;
    const uint16_t *next = d->next;
    const uint8_t *ascii = d->ascii;
    size_t i = from, end = SIZE_MAX;
    uint32_t row = d->n_classes;
    while (i < text.len) {
        size_t n = 1;
        uint32_t class = p[i] < 0x80 ? ascii[p[i]] : class_beyond_ascii(d, p + i, text.len - i, &n);
        uint32_t cell = next[row + class];
        if (cell & TG_DFA_MATCH) end = i;
        row = cell & (TG_DFA_MATCH - 1);
        if (row == 0) break;
        i += n;
    }
    if (row && (next[row + d->n_classes - 1] & TG_DFA_MATCH)) end = i;
    *reached = i;
    return end;
}

bool tg_dfa_find(const tg_dfa *d, tg_str text, size_t from, size_t *begin, size_t *end)
{
    /* A match that begins nowhere may still read far from every start. */
    size_t n_steps = 0, limit = 1000000 + text.len * 256;
    for (size_t i = from;;) {
        size_t reached;
        *end = match_at(d, text, i, &reached);
        *begin = *end == SIZE_MAX ? SIZE_MAX : i;
        if (*end != SIZE_MAX || i >= text.len) return true;
        n_steps += reached - i;
        if (n_steps > limit) return false;
        for (i++; i < text.len && ((unsigned char)text.ptr[i] & 0xc0) == 0x80; i++)
            ;
    }
}
