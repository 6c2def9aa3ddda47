/* SPDX-License-Identifier: Apache-2.0
 * tokadded.c - added tokens: found in the text before the model sees it.
 *
 * The rule is the reference library's: from left to right, the longest token at the first place
 * where any stands. Conditions beyond the content are checked only afterwards, so a
 * token that is turned down (single_word inside a word) still hides shorter ones behind it. */
#include "token/run/tokblob.h"
#include "token/run/tokunicode.h"

/* By which the library judges single_word. */
static bool is_word_char(int32_t cp)
{
    return tg_unicode_is(TG_UNICODE_WORD, cp);
}

/* The character that ends at `at`; returns its length. */
static size_t decode_before(tg_str text, size_t at, int32_t *cp)
{
    size_t begin = at;
    do
        begin--;
    while (begin > 0 && at - begin < 4 && ((unsigned char)text.ptr[begin] & 0xc0) == 0x80);
    return tg_utf8_decode(text.ptr + begin, at - begin, cp) ? at - begin : 0;
}

static bool is_in_word(tg_str text, size_t begin, size_t end)
{
    int32_t cp;
    if (begin > 0 && decode_before(text, begin, &cp) && is_word_char(cp)) return true;
    return tg_utf8_decode(text.ptr + end, text.len - end, &cp) && is_word_char(cp);
}

/* NULL where no token goes on with this byte, and where a damaged node points backwards. */
static const tg_tok_node *find_child(const tg_tok_node *nodes, uint32_t n_nodes, uint32_t parent,
                                     uint8_t byte, uint32_t *at)
{
    const tg_tok_node *p = &nodes[parent];
    if (p->first_child <= parent || p->first_child >= n_nodes ||
        p->n_children > n_nodes - p->first_child)
        return NULL;
    uint32_t low = p->first_child, high = low + p->n_children;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (nodes[mid].byte == byte) {
            *at = mid;
            return &nodes[mid];
        }
        if (nodes[mid].byte < byte)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* The longest token that begins at `from`: its index, or -1; *end is where it ends. */
static int32_t find_longest(const tg_tokenizer *t, int trie, tg_str text, size_t from, size_t *end)
{
    uint32_t at = 0;
    int32_t best = -1;
    for (size_t i = from; i < text.len; i++) {
        const tg_tok_node *n =
            find_child(t->trie[trie], t->n_nodes[trie], at, (uint8_t)text.ptr[i], &at);
        if (!n) break;
        if (n->added < 0 || n->added >= t->h->n_added) continue;
        best = n->added;
        *end = i + 1;
    }
    return best;
}

int32_t tg_tok_added_find(const tg_tokenizer *t, int trie, tg_str text, size_t from, tg_span *at)
{
    if (t->n_nodes[trie] == 0 || t->trie[trie][0].n_children == 0) return -1;
    /* Most bytes begin no token: one look-up a byte decides that. */
    bool begins[256] = {false};
    const tg_tok_node *nodes = t->trie[trie];
    uint32_t first = nodes[0].first_child, n = nodes[0].n_children;
    if (first >= t->n_nodes[trie] || n > t->n_nodes[trie] - first) return -1;
    for (uint32_t i = 0; i < n; i++)
        begins[nodes[first + i].byte] = true;
    for (size_t i = from; i < text.len; i++) {
        if (!begins[(uint8_t)text.ptr[i]]) continue;
        size_t end = i;
        int32_t k = find_longest(t, trie, text, i, &end);
        if (k < 0) continue;
        *at = (tg_span){(int32_t)i, (int32_t)end};
        return k;
    }
    return -1;
}

bool tg_tok_added_accept(const tg_tokenizer *t, int32_t k, tg_str text, size_t floor, tg_span *at)
{
    uint32_t flags = t->added[k].flags;
    size_t begin = (size_t)at->begin, end = (size_t)at->end, n;
    int32_t cp;
    if ((flags & TG_TOK_ADDED_SINGLE_WORD) && is_in_word(text, begin, end)) return false;
    if (flags & TG_TOK_ADDED_LSTRIP)
        while (begin > floor && (n = decode_before(text, begin, &cp)) && tg_unicode_is_space(cp))
            begin -= n;
    /* To swallow blanks is not to ask for them: without any the token stands all the same. */
    if (flags & TG_TOK_ADDED_RSTRIP)
        while ((n = (size_t)tg_utf8_decode(text.ptr + end, text.len - end, &cp)) &&
               tg_unicode_is_space(cp))
            end += n;
    *at = (tg_span){(int32_t)begin, (int32_t)end};
    return true;
}
