/* SPDX-License-Identifier: Apache-2.0
 * tokwrite.c - lays out the sections of a tokenizer that was built, and writes the blob. */
#include "token/compile/keytriebuild.h"
#include "token/compile/tokbuild.h"
#include "token/compile/tokdfabuild.h"
#include "token/compile/toksplit.h"

#include <stdlib.h>
#include <string.h>

/* ---- tables of the blob */

typedef struct tables {
    tg_buf at[TG_TOK_SECTION_COUNT]; /* bytes of each section that is not the builder's own */
} tables;

static tg_status check_strings(const tables *t, tg_err *e)
{
    if (t->at[TG_TOK_KEYS].len <= INT32_MAX && t->at[TG_TOK_PIECES].len <= INT32_MAX) return TG_OK;
    return tg_fail(e, TG_E_LIMIT, "the vocabulary's strings have more than %d bytes", INT32_MAX);
}

static void make_keys(tg_tok_build *b, tables *t)
{
    for (int32_t i = 0; i <= b->n_entries; i++) {
        uint32_t at = (uint32_t)t->at[TG_TOK_KEYS].len;
        tg_buf_add(&t->at[TG_TOK_KEY_AT], &at, sizeof at);
        if (i == b->n_entries) break;
        const tg_tok_entry *x = &b->entries[i];
        /* An unmapped spelling still is the token's name. */
        tg_str key = x->key.ptr ? x->key : x->text;
        tg_buf_add_str(&t->at[TG_TOK_KEYS], key);
        uint16_t flags = x->is_present ? x->flags : TG_TOKEN_HOLE;
        tg_buf_add(&t->at[TG_TOK_FLAGS], &flags, sizeof flags);
        if (x->is_present && (flags & TG_TOK_IS_MODEL) && x->key.ptr)
            b->h.max_key_bytes =
                TG_MAX(b->h.max_key_bytes, (int32_t)TG_MIN(key.len, (size_t)INT32_MAX));
    }
}

/* Keys and pieces. In most byte-level vocabularies they are equal and stored once. */
static tg_status make_strings(tg_tok_build *b, tables *t, tg_err *e)
{
    int32_t n_vocab = b->h.n_vocab;
    bool has_own_pieces = false;
    make_keys(b, t);
    for (int32_t i = 0; i < n_vocab; i++) {
        const tg_tok_entry *x = &b->entries[i];
        if (!tg_str_is_equal(x->key.ptr ? x->key : x->text, x->piece)) has_own_pieces = true;
        if (tg_tok_entry_has_end(x, 0)) b->h.n_ends = TG_MAX(b->h.n_ends, 1);
        if (tg_tok_entry_has_end(x, 1) || tg_tok_entry_has_end(x, 2)) b->h.n_ends = 3;
    }
    for (int32_t i = 0; (has_own_pieces || b->h.n_ends) && i <= n_vocab; i++) {
        uint32_t at = (uint32_t)t->at[TG_TOK_PIECES].len;
        tg_buf_add(&t->at[TG_TOK_PIECE_AT], &at, sizeof at);
        if (i < n_vocab) tg_buf_add_str(&t->at[TG_TOK_PIECES], b->entries[i].piece);
    }
    return check_strings(t, e);
}

/* Most of what tokens print at an end is the beginning or the end of their piece: no bytes more. */
static tg_status make_ends(tg_tok_build *b, tables *t, tg_err *e)
{
    tg_buf *pieces = &t->at[TG_TOK_PIECES];
    TG_TRY(tg_buf_check(&t->at[TG_TOK_PIECE_AT], e));
    const uint32_t *piece_at = (const void *)tg_buf_cstr(&t->at[TG_TOK_PIECE_AT]);
    for (int32_t k = 0; k < b->h.n_ends; k++)
        for (int32_t i = 0; i < b->h.n_vocab; i++) {
            const tg_tok_entry *x = &b->entries[i];
            tg_str s = tg_tok_entry_has_end(x, k) ? x->ends[k] : x->piece;
            tg_tok_part p = {piece_at[i], (uint32_t)s.len};
            if (tg_str_has_suffix(x->piece, s)) {
                p.at += (uint32_t)(x->piece.len - s.len);
            } else if (!tg_str_has_prefix(x->piece, s)) {
                p.at = (uint32_t)pieces->len;
                tg_buf_add_str(pieces, s);
            }
            tg_buf_add(&t->at[TG_TOK_ENDS], &p, sizeof p);
        }
    TG_TRY(tg_buf_check(pieces, e));
    return check_strings(t, e);
}

/* Only what the model may make of text: other tokens are found in the tries. */
static tg_status make_slots(tg_tok_build *b, tables *t, tg_err *e)
{
    uint32_t size = tg_tok_slots_size((size_t)b->n_entries);
    tg_tok_slot *slots = tg_tok_slots_new(size);
    if (!slots) return tg_tok_build_fail_memory(e, size * sizeof *slots);
    for (int32_t i = 0; i < b->n_entries; i++) {
        const tg_tok_entry *x = &b->entries[i];
        if ((x->flags & (TG_TOK_IS_MODEL | TG_TOK_IS_SYMBOL)) && x->key.ptr && x->key.len)
            tg_tok_slots_insert(slots, size - 1, b->entries, false, i);
    }
    tg_buf_add(&t->at[TG_TOK_SLOTS], slots, size * sizeof *slots);
    tg_mem_free(slots);
    return TG_OK;
}

/* Sets the bits of the seam before byte k of a key, a byte that begins a character: of the two
 * characters there, or of the two bytes where a token of a byte-level vocabulary holds but a part
 * of one of them. Returns how many bits were new. */
static size_t set_seam(tg_str key, size_t k, uint32_t *bits, uint32_t mask)
{
    int32_t left = -1, right = -1;
    size_t begin = k - 1;
    while (begin > 0 && tg_tok_is_tail(key.ptr[begin]))
        begin--;
    bool is_left = tg_utf8_decode(key.ptr + begin, k - begin, &left) == (int)(k - begin);
    bool is_right = tg_utf8_decode(key.ptr + k, key.len - k, &right) > 0;
    uint32_t bit = (is_left && is_right ? tg_tok_seam_hash(left, right)
                                        : tg_tok_byte_seam_hash(key.ptr[k - 1], key.ptr[k])) &
                   mask;
    bool is_new = !(bits[bit >> 5] >> (bit & 31) & 1);
    bits[bit >> 5] |= 1u << (bit & 31);
    return is_new;
}

/* Sets the bits of all neighbours inside keys. */
static size_t set_seams(const tg_tok_build *b, uint32_t *bits, uint32_t mask)
{
    size_t n_new = 0;
    for (int32_t i = 0; i < b->n_entries; i++) {
        const tg_tok_entry *x = &b->entries[i];
        if (!(x->flags & TG_TOK_IS_MODEL) || !x->key.ptr) continue;
        for (size_t k = 1; k < x->key.len; k++)
            if (!tg_tok_is_tail(x->key.ptr[k])) n_new += set_seam(x->key, k, bits, mask);
    }
    return n_new;
}

/* Seams are right where every character has symbols of its own and byte tokens take no part in
 * merges; in a byte-level vocabulary, where every byte has one. */
static bool may_have_seams(const tg_tok_build *b)
{
    if (b->h.word_prefix_bytes || b->h.word_suffix_bytes) return false;
    if (b->h.flags & TG_TOK_BYTE_LEVEL) {
        for (int i = 0; i < 256; i++)
            if (b->byte_ids[i] < 0) return false;
        return true;
    }
    if (!b->may_cut) return false;
    for (uint32_t i = 0; i <= b->merge_mask; i++) {
        const tg_tok_merge *m = &b->merges[i];
        if (m->left < 0) continue;
        if ((b->entries[m->left].flags | b->entries[m->right].flags) & TG_TOKEN_BYTE) return false;
    }
    return true;
}

static tg_status make_seams(tg_tok_build *b, tables *t, tg_err *e)
{
    enum { LEAST_BITS = 1 << 9, MOST_BITS = 1 << 23, COUNT_BITS = 1 << 24 };
    uint32_t n_bits = LEAST_BITS;
    bool has_seams = may_have_seams(b);
    if (has_seams) {
        uint32_t *count = tg_mem_new_array(COUNT_BITS / 32, sizeof *count);
        if (!count) return tg_tok_build_fail_memory(e, COUNT_BITS / 8);
        size_t n_pairs = set_seams(b, count, COUNT_BITS - 1);
        tg_mem_free(count);
        /* One bit in sixteen set: a pair that no token holds is taken for one in 6 % of cases,
         * which costs a cut and never an id. */
        while (n_bits < MOST_BITS && n_bits < 16 * n_pairs)
            n_bits *= 2;
        b->h.flags |= TG_TOK_HAS_SEAMS;
    }
    uint32_t *bits = TG_ARENA_ARRAY(&b->arena, uint32_t, n_bits / 32);
    if (!bits) return tg_tok_build_fail_memory(e, n_bits / 8);
    if (has_seams) set_seams(b, bits, n_bits - 1);
    tg_buf_add(&t->at[TG_TOK_SEAMS], bits, n_bits / 8);
    return TG_OK;
}

/* ---- tries */

typedef struct trie_item {
    tg_str key;
    int32_t added;
} trie_item;

static int compare_items(const void *a, const void *b)
{
    const trie_item *x = a, *y = b;
    size_t n = TG_MIN(x->key.len, y->key.len);
    int c = n ? memcmp(x->key.ptr, y->key.ptr, n) : 0;
    if (c) return c;
    if (x->key.len != y->key.len) return x->key.len < y->key.len ? -1 : 1;
    return x->added < y->added ? -1 : 1;
}

/* Breadth first, so that children lie together behind their parent. Of equal contents the first in
 * the file counts. */
static tg_status make_trie(tg_tok_build *b, tg_buf *out, bool is_norm, tg_err *e)
{
    trie_item *items = TG_ARENA_ARRAY(&b->arena, trie_item, TG_MAX(b->n_added, 1));
    if (!items) return tg_tok_build_fail_memory(e, (size_t)b->n_added * sizeof *items);
    size_t n = 0, n_bytes = 1;
    for (int32_t i = 0; i < b->n_added; i++) {
        const tg_tok_build_added *a = &b->added[i];
        if (!(a->flags & TG_TOK_ADDED_NORMALIZED) != !is_norm || a->match.len == 0) continue;
        items[n++] = (trie_item){a->match, i};
        n_bytes += a->match.len;
    }
    qsort(items, n, sizeof *items, compare_items);
    typedef struct range {
        size_t low, high, depth;
    } range;
    tg_tok_node *nodes = tg_mem_new_array(n_bytes, sizeof *nodes);
    range *ranges = tg_mem_new_array(n_bytes, sizeof *ranges);
    if (nodes && ranges) {
        size_t n_nodes = 1;
        ranges[0] = (range){0, n, 0};
        for (size_t i = 0; i < n_nodes; i++) {
            range r = ranges[i];
            tg_tok_node *node = &nodes[i];
            node->added = -1;
            node->first_child = (uint32_t)n_nodes;
            size_t k = r.low;
            if (k < r.high && items[k].key.len == r.depth) node->added = items[k].added;
            while (k < r.high && items[k].key.len == r.depth)
                k++;
            while (k < r.high) {
                size_t low = k;
                uint8_t byte = (uint8_t)items[k].key.ptr[r.depth];
                while (k < r.high && (uint8_t)items[k].key.ptr[r.depth] == byte)
                    k++;
                ranges[n_nodes] = (range){low, k, r.depth + 1};
                nodes[n_nodes++].byte = byte;
                node->n_children++;
            }
        }
        tg_buf_add(out, nodes, n_nodes * sizeof *nodes);
    }
    bool is_done = nodes && ranges;
    tg_mem_free(nodes);
    tg_mem_free(ranges);
    return is_done ? TG_OK : tg_tok_build_fail_memory(e, n_bytes * sizeof *nodes);
}

static tg_status make_added(tg_tok_build *b, tables *t, tg_err *e)
{
    for (int32_t i = 0; i < b->n_added; i++) {
        const tg_tok_build_added *a = &b->added[i];
        tg_tok_added x = {.n_bytes = (uint32_t)a->content.len, .id = a->id, .flags = a->flags};
        x.at = tg_tok_build_add_string(b, a->content);
        tg_buf_add(&t->at[TG_TOK_ADDED], &x, sizeof x);
    }
    TG_TRY(make_trie(b, &t->at[TG_TOK_TRIE_RAW], false, e));
    return make_trie(b, &t->at[TG_TOK_TRIE_NORM], true, e);
}

/* ---- what only some models have */

static tg_status make_scores(const tg_tok_build *b, tables *t, tg_err *e)
{
    for (int32_t i = 0; b->h.model == TG_TOK_UNIGRAM && i < b->h.n_vocab; i++)
        tg_buf_add(&t->at[TG_TOK_SCORES], &b->entries[i].score, sizeof b->entries[i].score);
    return tg_buf_check(&t->at[TG_TOK_SCORES], e);
}

/* The longest token that a token's key begins with, found on the way along the trie. */
static void find_shorter(const tg_tok_build *b, const tables *t, tg_tok_split *splits)
{
    tg_str units = tg_buf_str(&t->at[TG_TOK_KEY_TRIE]);
    tg_keytrie trie = {(const void *)units.ptr, (uint32_t)(units.len / sizeof(tg_keytrie_unit))};
    for (int32_t i = 0; i < b->h.n_vocab; i++) {
        if (splits[i].rank == TG_TOK_SPLIT_NONE) continue;
        tg_str key = b->entries[i].key;
        uint32_t unit = 0;
        for (size_t k = 0; k + 1 < key.len && unit != TG_KEYTRIE_NONE; k++) {
            unit = tg_keytrie_find_child(&trie, unit, (uint8_t)key.ptr[k]);
            if (unit != TG_KEYTRIE_NONE && trie.units[unit].id >= 0)
                splits[i].shorter = trie.units[unit].id;
        }
    }
}

/* Where no character is unknown: otherwise it would have to be told which are. */
static tg_status make_splits(tg_tok_build *b, tables *t, tg_err *e)
{
    if (b->h.model != TG_TOK_BPE || !(b->h.flags & TG_TOK_HAS_SEAMS) ||
        b->n_entries != b->h.n_vocab)
        return TG_OK;
    tg_buf *slots = &t->at[TG_TOK_SLOTS];
    TG_TRY(tg_buf_check(slots, e));
    TG_TRY(tg_buf_check(&t->at[TG_TOK_FLAGS], e));
    tg_tok_split *splits = TG_ARENA_ARRAY(&b->arena, tg_tok_split, b->n_entries);
    tg_keytrie_item *items = TG_ARENA_ARRAY(&b->arena, tg_keytrie_item, b->n_entries);
    if (!splits || !items) return tg_tok_build_fail_memory(e, (size_t)b->n_entries * sizeof *items);
    bool is_done = false;
    uint32_t mask = (uint32_t)(slots->len / sizeof(tg_tok_slot) - 1);
    TG_TRY(tg_tok_split_all(b, (const void *)slots->ptr, mask, splits, &is_done, e));
    if (!is_done) return TG_OK;
    uint16_t *flags = (void *)t->at[TG_TOK_FLAGS].ptr;
    size_t n = 0;
    for (int32_t i = 0; i < b->n_entries; i++) {
        if (splits[i].rank == TG_TOK_SPLIT_NONE) continue;
        flags[i] |= TG_TOK_IS_WHOLE;
        items[n++] = (tg_keytrie_item){b->entries[i].key, i};
    }
    TG_TRY(tg_keytrie_pack(&t->at[TG_TOK_KEY_TRIE], items, n, e));
    find_shorter(b, t, splits);
    tg_buf_add(&t->at[TG_TOK_SPLITS], splits, (size_t)b->n_entries * sizeof *splits);
    TG_TRY(tg_tok_split_add_bigrams(&t->at[TG_TOK_BIGRAMS], b, splits, e));
    TG_TRY(tg_tok_split_add_early(&t->at[TG_TOK_EARLY], b, splits, e));
    b->h.flags |= TG_TOK_HAS_SPLITS;
    return TG_OK;
}

static tg_status make_key_trie(tg_tok_build *b, tables *t, tg_err *e)
{
    if (b->h.model != TG_TOK_UNIGRAM && b->h.model != TG_TOK_WORDPIECE) return TG_OK;
    tg_keytrie_item *items = TG_ARENA_ARRAY(&b->arena, tg_keytrie_item, TG_MAX(b->n_entries, 1));
    if (!items) return tg_tok_build_fail_memory(e, (size_t)b->n_entries * sizeof *items);
    size_t n = 0;
    for (int32_t i = 0; i < b->n_entries; i++) {
        const tg_tok_entry *x = &b->entries[i];
        if ((x->flags & TG_TOK_IS_MODEL) && x->key.ptr && x->key.len)
            items[n++] = (tg_keytrie_item){x->key, i};
    }
    return tg_keytrie_pack(&t->at[TG_TOK_KEY_TRIE], items, n, e);
}

/* ---- writing */

static void pad(tg_buf *blob)
{
    while (blob->len % TG_TOK_ALIGN && !blob->is_failed)
        tg_buf_add_byte(blob, 0);
}

static tg_str find_section(const tg_tok_build *b, const tables *t, int k)
{
    if (k == TG_TOK_STEPS) return tg_buf_str(&b->steps);
    if (k == TG_TOK_STRINGS) return tg_buf_str(&b->strings);
    if (k == TG_TOK_BYTE_IDS) return (tg_str){(const char *)b->byte_ids, sizeof b->byte_ids};
    if (k == TG_TOK_MERGES)
        return (tg_str){(const char *)b->merges, ((size_t)b->merge_mask + 1) * sizeof *b->merges};
    return tg_buf_str(&t->at[k]);
}

/* Room for all of the blob at once: a buffer that grows is there twice when it does, and ends half
 * as large again as what it holds. */
static void reserve_blob(const tg_tok_build *b, const tables *t, tg_buf *blob)
{
    size_t n = tg_align_up(sizeof b->h, TG_TOK_ALIGN);
    for (int k = 0; k < TG_TOK_SECTION_COUNT; k++)
        n += tg_align_up(find_section(b, t, k).len, TG_TOK_ALIGN);
    tg_buf_reserve(blob, n);
}

/* What is in the blob need not be there a second time. */
static void free_section(tg_tok_build *b, tables *t, int k)
{
    tg_buf_deinit(&t->at[k]);
    if (k != TG_TOK_MERGES) return;
    tg_mem_free(b->merges);
    b->merges = NULL;
}

/* `blob` is empty before. The header goes first as a place to fill, and in the end again with the
 * offsets of the sections. */
static tg_status write_blob(tg_tok_build *b, tables *t, tg_buf *blob, tg_err *e)
{
    tg_tok_header *h = &b->h;
    bool has_pieces = t->at[TG_TOK_PIECE_AT].len > 0;
    memcpy(h->magic, TG_TOK_MAGIC, sizeof h->magic);
    h->version = TG_TOK_VERSION;
    h->header_bytes = sizeof *h;
    for (int k = 0; k < TG_TOK_SECTION_COUNT; k++)
        TG_TRY(tg_buf_check(&t->at[k], e));
    reserve_blob(b, t, blob);
    tg_buf_add(blob, h, sizeof *h);
    pad(blob);
    for (int k = 0; k < TG_TOK_SECTION_COUNT; k++) {
        tg_str s = find_section(b, t, k);
        h->sections[k] = (tg_tok_range){blob->len, s.len};
        /* Pieces that equal the keys are the keys. */
        if ((k == TG_TOK_PIECE_AT || k == TG_TOK_PIECES) && !has_pieces) {
            h->sections[k] = h->sections[k == TG_TOK_PIECES ? TG_TOK_KEYS : TG_TOK_KEY_AT];
            if (k == TG_TOK_PIECE_AT) h->sections[k].n_bytes = ((uint64_t)h->n_vocab + 1) * 4;
            continue;
        }
        tg_buf_add_str(blob, s);
        pad(blob);
        free_section(b, t, k);
    }
    TG_TRY(tg_buf_check(&b->strings, e));
    TG_TRY(tg_buf_check(&b->steps, e));
    TG_TRY(tg_buf_check(blob, e));
    h->n_bytes = blob->len;
    memcpy(blob->ptr, h, sizeof *h);
    return TG_OK;
}

/* Marks the tokens whose key, merged or cut in the best way, gives them back. Models that take the
 * longest token have no other way to do it. */
static tg_status mark_whole(tg_tok_build *b, const tg_tokenizer *t, uint16_t *flags, tg_err *e)
{
    static tg_tok_encode_fn *const searches[TG_TOK_MODEL_COUNT] = {
        [TG_TOK_BPE] = tg_bpe_merge, [TG_TOK_UNIGRAM] = tg_unigram_search};
    tg_tok_encode_fn *search = searches[b->h.model];
    tg_ids ids = {0};
    tg_tok_scratch s = {.t = t, .out = &ids, .pinned = -1};
    tg_status status = TG_OK;
    for (int32_t i = 0; search && i < b->h.n_vocab && status == TG_OK; i++) {
        const tg_tok_entry *x = &b->entries[i];
        tg_err why = {0};
        if (flags[i] & TG_TOK_IS_WHOLE) continue; /* it has a split */
        if (!(x->flags & TG_TOK_IS_MODEL) || !x->key.ptr || !x->key.len) continue;
        tg_ids_clear(&ids);
        tg_tok_view v = {x->key.ptr, x->key.len, NULL, 0};
        status = search(&s, &v, (tg_span){0, (int32_t)x->key.len}, &why);
        /* A key with a character that no token is: whoever writes it gets the error. */
        if (status == TG_E_UNSUPPORTED) {
            status = TG_OK;
            continue;
        }
        if (status != TG_OK) status = tg_fail(e, why.status, "%s", why.msg);
        if (status == TG_OK) status = tg_ids_check(&ids, e);
        if (ids.len == 1 && ids.ptr[0] == i) flags[i] |= TG_TOK_IS_WHOLE;
    }
    tg_tok_scratch_deinit(&s);
    tg_ids_deinit(&ids);
    return status;
}

/* The finished blob is opened to find out what only an open tokenizer can. */
static tg_status refine(tg_tok_build *b, tg_buf *blob, tg_err *e)
{
    tg_tokenizer *open = NULL;
    TG_TRY(tg_tokenizer_open(&open, blob->ptr, blob->len, e));
    void *flags = blob->ptr + b->h.sections[TG_TOK_FLAGS].at;
    tg_status s = mark_whole(b, open, flags, e);
    tg_tokenizer_close(open);
    return s;
}

/* One pattern's, where it has one; what is wrong with a pattern is said when it is opened. */
static tg_status add_dfa(tg_tok_build *b, tg_tok_step *step, tg_buf *images, tg_err *e)
{
    tg_buf pattern = {0};
    bool is_built = false;
    size_t at = images->len;
    tg_str source = {b->strings.ptr + step->a_at, step->a_bytes};
    tg_status s = tg_regex_translate(&pattern, source, e);
    if (s == TG_OK) s = tg_dfa_build(images, tg_buf_str(&pattern), &is_built, e);
    tg_buf_deinit(&pattern);
    if (is_built) step->dfa = (uint32_t)(at / TG_DFA_ALIGN) + 1;
    return s;
}

static tg_status make_dfas(tg_tok_build *b, tables *t, tg_err *e)
{
    tg_tok_step *steps = (void *)b->steps.ptr;
    for (int32_t i = 0; i < b->h.n_norm + b->h.n_pre; i++)
        if (steps[i].op == TG_TOK_SPLIT_REGEX || steps[i].op == TG_TOK_REPLACE_REGEX)
            TG_TRY(add_dfa(b, &steps[i], &t->at[TG_TOK_DFA], e));
    return TG_OK;
}

static tg_status finish(tg_tok_build *b, tables *t, tg_buf *blob, tg_err *e)
{
    if (b->h.n_vocab < 1) return tg_fail(e, TG_E_CORRUPT, "the tokenizer's vocabulary is empty");
    if (!b->merges) TG_TRY(tg_tok_build_begin_merges(b, 0, e));
    tg_mem_free(b->index); /* spellings have been found */
    b->index = NULL;
    TG_TRY(make_strings(b, t, e));
    TG_TRY(make_ends(b, t, e));
    TG_TRY(make_slots(b, t, e));
    TG_TRY(make_seams(b, t, e));
    b->h.n_added = b->n_added;
    b->h.n_prefix = (int32_t)b->prefix.len;
    b->h.n_suffix = (int32_t)b->suffix.len;
    tg_buf_add(&t->at[TG_TOK_AFFIX], b->prefix.ptr, b->prefix.len * sizeof(int32_t));
    tg_buf_add(&t->at[TG_TOK_AFFIX], b->suffix.ptr, b->suffix.len * sizeof(int32_t));
    TG_TRY(make_added(b, t, e));
    TG_TRY(make_scores(b, t, e));
    TG_TRY(make_key_trie(b, t, e));
    TG_TRY(make_splits(b, t, e));
    TG_TRY(make_dfas(b, t, e));
    tg_buf out = {0};
    tg_status s = write_blob(b, t, &out, e);
    if (s == TG_OK) s = refine(b, &out, e);
    if (s == TG_OK && blob->len == 0) { /* as it always is but in tests: 33 MB need no copy */
        tg_buf_deinit(blob);
        *blob = out;
        return TG_OK;
    }
    if (s == TG_OK) tg_buf_add_str(blob, tg_buf_str(&out));
    if (s == TG_OK) s = tg_buf_check(blob, e);
    tg_buf_deinit(&out);
    return s;
}

tg_status tg_tok_build_finish(tg_tok_build *b, tg_buf *blob, tg_err *e)
{
    tables t = {0};
    if (b->h.n_vocab == 0) b->h.n_vocab = b->n_entries;
    b->h.n_symbols = b->n_entries;
    tg_status s = finish(b, &t, blob, e);
    for (int k = 0; k < TG_TOK_SECTION_COUNT; k++)
        tg_buf_deinit(&t.at[k]);
    return s;
}
