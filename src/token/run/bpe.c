/* SPDX-License-Identifier: Apache-2.0
 * bpe.c - byte pair encoding of one word.
 *
 * A word becomes symbols (bytes, or characters), and neighbours are merged, always the pair of the
 * lowest rank, the leftmost of equals, until no pair is in the table. SentencePiece's "best score
 * first" is the same with ranks made of scores, so one loop serves both.
 *
 * Four ways to the same ids. Most vocabularies take tokens from left to right, without merging
 * anything. Where that is not known to be right (neighbors.h), a word that is a token and whose
 * merging was seen by the compiler to give that token is looked up whole; another scans its few
 * pairs, or where it is long (a text without spaces) keeps them in a queue.
 *
 * Measured, MB/s with and without, one thread of a Zen 3, the best of three. From left to right, on
 * 6 MB of Python sources read once: 20.4 and 16.6 (Qwen 3), 12.4 and 6.6 (Gemma 3), 18.7 and 13.0
 * (Llama 3). Words seen before (tokcache.h), on pages of documentation read again: 53.6 and 27.4,
 * 45.8 and 26.0, 62.4 and 31.6. */
#include "token/run/neighbors.h"

#include <string.h>

/* Up to here scanning all pairs for each merge is cheaper than a queue. */
enum { SHORT_WORD = 40, NO_RANK = TG_TOK_NO_RANK };

/* What merging the symbol with its next would give. It is kept in the symbol: a table of megabytes
 * is not asked twice. */
static void find_pair(const tg_tokenizer *t, tg_bpe_symbol *a, int32_t right)
{
    const tg_tok_merge *m = tg_tok_find_merge(t->merges, t->merge_mask, a->id, right);
    bool is_merge =
        m && (uint32_t)m->id < (uint32_t)t->h->n_symbols && m->rank >= 0 && m->rank < t->h->n_ranks;
    a->rank = is_merge ? m->rank : NO_RANK;
    a->merged = is_merge ? m->id : -1;
}

/* ---- symbols of a word */

typedef struct symbols {
    tg_tok_scratch *s;
    const tg_tok_view *v;
    tg_span word;
    int32_t n;
    int32_t unk_begin; /* unknown characters not yet emitted begin here; -1: none */
    int32_t unk_end;
} symbols;

/* Ranks come later, when all symbols are there. */
static void push_symbol(symbols *y, int32_t id, int32_t begin, int32_t end)
{
    y->s->symbols[y->n] = (tg_bpe_symbol){
        .id = id, .rank = NO_RANK, .prev = y->n - 1, .next = y->n + 1, .begin = begin, .end = end};
    y->n++;
}

static void push_unknown(symbols *y)
{
    if (y->unk_begin >= 0) push_symbol(y, y->s->t->h->unk_id, y->unk_begin, y->unk_end);
    y->unk_begin = -1;
}

/* All bytes of a character have symbols, or none is pushed. */
static bool push_bytes(symbols *y, int32_t begin, int32_t end)
{
    const tg_tokenizer *t = y->s->t;
    for (int32_t i = begin; i < end; i++) {
        int32_t id = t->byte_ids[(uint8_t)y->v->ptr[i]];
        if ((uint32_t)id >= (uint32_t)t->h->n_symbols) return false;
    }
    for (int32_t i = begin; i < end; i++)
        push_symbol(y, t->byte_ids[(uint8_t)y->v->ptr[i]], i, i + 1);
    return true;
}

/* The symbol of the character at [begin, end), dressed with the prefix or suffix that its place in
 * the word asks for. */
static int32_t find_symbol(const symbols *y, int32_t begin, int32_t end)
{
    const tg_tokenizer *t = y->s->t;
    const tg_tok_header *h = t->h;
    bool has_prefix = begin > y->word.begin && h->word_prefix_bytes;
    bool has_suffix = end == y->word.end && h->word_suffix_bytes;
    const char *at = y->v->ptr + begin;
    size_t n = (size_t)(end - begin);
    if (!has_prefix && !has_suffix) {
        if (h->flags & TG_TOK_BYTE_LEVEL) return t->byte_ids[(uint8_t)*at];
        return tg_tok_find_key(t, at, n);
    }
    char dressed[128]; /* tg_tokenizer_open bounds both at 60 bytes */
    size_t len = 0;
    if (has_prefix) {
        memcpy(dressed, t->strings + h->word_prefix_at, h->word_prefix_bytes);
        len = h->word_prefix_bytes;
    }
    memcpy(dressed + len, at, n);
    len += n;
    if (has_suffix) {
        memcpy(dressed + len, t->strings + h->word_suffix_at, h->word_suffix_bytes);
        len += h->word_suffix_bytes;
    }
    return tg_tok_find_key(t, dressed, len);
}

/* Known, spelled in bytes, unknown, or dropped, in that order. */
static void push_character(symbols *y, int32_t begin, int32_t end)
{
    const tg_tok_header *h = y->s->t->h;
    int32_t id = find_symbol(y, begin, end);
    if ((uint32_t)id < (uint32_t)h->n_symbols) {
        push_unknown(y);
        push_symbol(y, id, begin, end);
        return;
    }
    /* The reference library does not emit a waiting unknown before the bytes of a character; nor
     * do we, since the ids must be its ids. */
    if ((h->flags & TG_TOK_BYTE_FALLBACK) && push_bytes(y, begin, end)) return;
    if (h->unk_id < 0) return; /* neither: the character is dropped */
    if (y->unk_begin >= 0 && !(h->flags & TG_TOK_FUSE_UNK)) push_unknown(y);
    if (y->unk_begin < 0) y->unk_begin = begin;
    y->unk_end = end;
}

/* Fills s->symbols; a word has at most one symbol a byte. */
static tg_status split_symbols(symbols *y, tg_err *e)
{
    tg_tok_scratch *s = y->s;
    size_t n = (size_t)(y->word.end - y->word.begin);
    if (n + 1 > s->n_symbols) {
        size_t want = TG_MAX(n + 1, (size_t)256);
        tg_mem_free(s->symbols);
        s->symbols = tg_mem_new_array(want, sizeof *s->symbols);
        s->n_symbols = s->symbols ? want : 0;
        if (!s->symbols)
            return tg_fail_nomem(e, want * sizeof *s->symbols, "the symbols of a word");
    }
    bool is_bytes = s->t->h->flags & TG_TOK_BYTE_LEVEL;
    for (int32_t i = y->word.begin, end; i < y->word.end; i = end) {
        int32_t cp,
            len = is_bytes ? 1 : tg_utf8_decode(y->v->ptr + i, (size_t)(y->word.end - i), &cp);
        end = i + TG_MAX(len, 1);
        push_character(y, i, end);
    }
    push_unknown(y);
    if (y->n) s->symbols[y->n - 1].next = -1;
    return TG_OK;
}

/* ---- merging */

static void update_pair(tg_tok_scratch *s, int32_t i)
{
    tg_bpe_symbol *a = &s->symbols[i];
    if (a->next < 0)
        a->rank = NO_RANK;
    else
        find_pair(s->t, a, s->symbols[a->next].id);
}

/* Merges the symbol with its next, which then is dead: no pair is its own. */
static void merge_with_next(tg_tok_scratch *s, int32_t i)
{
    tg_bpe_symbol *a = &s->symbols[i], *b = &s->symbols[a->next];
    a->id = a->merged;
    a->end = b->end;
    a->next = b->next;
    b->rank = NO_RANK;
    if (a->next >= 0) s->symbols[a->next].prev = i;
    update_pair(s, i);
    if (a->prev >= 0) update_pair(s, a->prev);
}

/* Quadratic in at most SHORT_WORD symbols, which all lie in a few cache lines. */
static void merge_by_scan(tg_tok_scratch *s)
{
    for (;;) {
        int32_t best = -1, rank = NO_RANK;
        for (int32_t i = 0; i >= 0; i = s->symbols[i].next)
            if (s->symbols[i].rank < rank) rank = s->symbols[i].rank, best = i;
        if (best < 0) return;
        merge_with_next(s, best);
    }
}

/* A pair is stale when its symbol has another rank by now; the rank of a dead one is NO_RANK. */
static tg_status merge_by_queue(tg_tok_scratch *s, int32_t n, tg_err *e)
{
    int32_t i, rank;
    tg_merge_queue_begin(&s->queue);
    for (i = 0; i < n; i++)
        if (s->symbols[i].rank != NO_RANK) tg_merge_queue_push(&s->queue, s->symbols[i].rank, i);
    while (tg_merge_queue_pop(&s->queue, &rank, &i)) {
        if (s->symbols[i].rank != rank) continue;
        merge_with_next(s, i);
        int32_t prev = s->symbols[i].prev;
        if (prev >= 0 && s->symbols[prev].rank != NO_RANK)
            tg_merge_queue_push(&s->queue, s->symbols[prev].rank, prev);
        if (s->symbols[i].rank != NO_RANK) tg_merge_queue_push(&s->queue, s->symbols[i].rank, i);
    }
    return s->queue.is_failed ? tg_fail_nomem(e, (size_t)n * 16, "the merges of a word") : TG_OK;
}

static tg_status merge_symbols(tg_tok_scratch *s, int32_t n, tg_err *e)
{
    for (int32_t i = 0; i + 1 < n; i++)
        find_pair(s->t, &s->symbols[i], s->symbols[i + 1].id);
    if (n > SHORT_WORD) return merge_by_queue(s, n, e);
    if (n > 1) merge_by_scan(s);
    return TG_OK;
}

/* ---- a word's ids */

/* Where the id came from that was pushed last, or that stands where spans have come to. */
static void locate(tg_tok_scratch *s, const tg_tok_view *v, int32_t begin, int32_t end)
{
    if (s->is_noting) s->noted[s->n_noted++] = (tg_span){begin, end};
    if (s->spans) tg_tok_locate(s, v, begin, end);
}

static void emit(tg_tok_scratch *s, const tg_tok_view *v, int32_t id, int32_t begin, int32_t end)
{
    tg_ids_push(s->out, id);
    locate(s, v, begin, end);
}

/* What a word's symbols become, and whether the last one was an unknown character. */
typedef struct emitter {
    tg_tok_scratch *s;
    const tg_tok_view *v;
    bool is_unknown;
} emitter;

/* Of unknown characters in a row the first gets the id, where the file wants them fused. */
static void emit_unknown(emitter *x, int32_t begin, int32_t end)
{
    const tg_tok_header *h = x->s->t->h;
    bool joins = x->is_unknown && h->flags & TG_TOK_FUSE_UNK;
    x->is_unknown = true;
    if (!joins) {
        emit(x->s, x->v, h->unk_id, begin, end);
        return;
    }
    if (x->s->is_noting) x->s->noted[x->s->n_noted - 1].end = end;
    if (!x->s->spans || !x->s->spans->len) return;
    const tg_span *o = x->v->origin;
    x->s->spans->ptr[x->s->spans->len - 1].end = o ? o[end - 1].end : x->v->base + end;
}

/* A character that only merges know and that no merge took is spelled in bytes, or unknown. */
static void emit_symbol(emitter *x, const tg_bpe_symbol *y)
{
    const tg_tokenizer *t = x->s->t;
    if (y->id < t->h->n_vocab) {
        if (y->id == t->h->unk_id && t->h->n_symbols > t->h->n_vocab) {
            emit_unknown(x, y->begin, y->end);
            return;
        }
        emit(x->s, x->v, y->id, y->begin, y->end);
        x->is_unknown = false;
        return;
    }
    for (int32_t i = y->begin; i < y->end; i++) {
        int32_t id = t->byte_ids[(uint8_t)x->v->ptr[i]];
        if ((uint32_t)id < (uint32_t)t->h->n_vocab) {
            emit(x->s, x->v, id, i, i + 1);
            x->is_unknown = false;
        } else if (t->h->unk_id >= 0) {
            emit_unknown(x, y->begin, y->end);
            return;
        }
    }
}

/* ---- tokens from left to right */

typedef struct candidate {
    int32_t id, n_bytes; /* id -1: none */
} candidate;

/* The longest whole token that begins at v[at]. */
static candidate find_longest(const tg_tokenizer *t, const tg_tok_view *v, int32_t at, int32_t end)
{
    candidate x = {-1, 0};
    const tg_keytrie trie = t->key_trie;
    const tg_tok_split *splits = t->splits.at;
    const char *text = v->ptr + at;
    uint32_t n_ids = (uint32_t)t->splits.n;
    int32_t n_left = end - at;
    for (uint32_t unit = 0, n = 0; n < (uint32_t)n_left;) {
        unit = tg_keytrie_find_child(&trie, unit, (uint8_t)text[n++]);
        if (unit == TG_KEYTRIE_NONE) break;
        int32_t id = trie.units[unit].id;
        if ((uint32_t)id >= n_ids) continue;
        x = (candidate){id, (int32_t)n};
        __builtin_prefetch(&splits[id]);
    }
    return x;
}

static bool is_dead(const tg_tok_scratch *s, int32_t k)
{
    return s->dead[k >> 5] >> (k & 31) & 1;
}

/* The next token to try at a place where `id` does not fit. Each is shorter: that ends the loop,
 * whatever the tables say. */
static int32_t find_shorter(const tg_tok_splits *p, int32_t id)
{
    int32_t next = p->at[id].shorter;
    bool is_shorter = next >= 0 && next < p->n && p->at[next].n_bytes < p->at[id].n_bytes;
    return is_shorter ? next : -1;
}

/* Merges the bytes of two neighbors, one of them late. */
static bool stay_apart_merged(tg_tok_scratch *s, const tg_tok_view *v, tg_span two, int32_t middle)
{
    symbols y = {.s = s, .v = v, .word = two, .unk_begin = -1};
    if (two.end - two.begin > 2 * TG_TOK_LATE_MAX_BYTES) return false; /* a damaged table */
    if (split_symbols(&y, NULL) != TG_OK || y.n < 2) return false;
    if (merge_symbols(s, y.n, NULL) != TG_OK) return false;
    const tg_bpe_symbol *a = s->symbols;
    return a->end == middle && a->next >= 0 && s->symbols[a->next].next < 0;
}

/* Whether `id`, v's [at, end), may stand behind the last token. A wrong "no" changes no id: it
 * leaves the word without tokens, and to the queue. */
static bool fits(tg_tok_scratch *s, const tg_tok_view *v, int32_t at, int32_t end, int32_t id,
                 tg_tok_skipped skipped)
{
    const tg_tok_splits *p = &s->t->splits;
    int32_t left = s->out->ptr[s->out->len - 1];
    if (p->at[left].rank != TG_TOK_SPLIT_LATE && p->at[id].rank != TG_TOK_SPLIT_LATE)
        return tg_tok_stay_apart(p, left, id, skipped);
    tg_late_pair *x = &s->late[tg_tok_merge_hash(left, id) % TG_COUNT(s->late)];
    if (x->left != left || x->right != id || !x->is_known) {
        tg_span two = {at - p->at[left].n_bytes, end};
        *x = (tg_late_pair){left, id, true, stay_apart_merged(s, v, two, at)};
    }
    return x->stay_apart;
}

/* Appends the ids of w from *from on, up to the first character that no token begins with, where
 * *from then is. Takes the longest token that its left neighbour allows; where the rest of the word
 * then has no tokens, the place is dead, and the token before it gives way to a shorter one. A
 * place dies once, so that a word takes time by its length. False when every way is dead. */
static bool find_tokens(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, int32_t *from)
{
    const tg_tok_splits *p = &s->t->splits;
    tg_ids *out = s->out;
    size_t first = out->len;
    int32_t at = *from;
    candidate x = find_longest(s->t, v, at, w.end);
    /* Of the token that is tried as a left neighbour, and of the last one. */
    tg_tok_skipped skipped = TG_TOK_SKIP_LEFT, skipped_last = TG_TOK_SKIP_NONE;
    while (x.id >= 0) {
        int32_t next = at + x.n_bytes;
        if (!is_dead(s, next - w.begin) &&
            (out->len == first || fits(s, v, at, next, x.id, skipped_last))) {
            if (p->at[x.id].n_bytes != x.n_bytes) return false; /* a damaged table */
            tg_ids_push(out, x.id);
            if (out->is_failed) return true; /* the caller's caller finds it */
            at = next;
            skipped_last = skipped;
            skipped = TG_TOK_SKIP_LEFT;
            x = find_longest(s->t, v, at, w.end);
            continue;
        }
        skipped = TG_TOK_SKIP_NONE;
        x.id = find_shorter(p, x.id);
        if (x.id < 0) {
            if (out->len == first) return false;
            s->dead[(at - w.begin) >> 5] |= 1u << ((at - w.begin) & 31);
            x.id = out->ptr[--out->len];
            at -= p->at[x.id].n_bytes;
            skipped_last = TG_TOK_SKIP_NONE; /* not known any more */
        }
        x.n_bytes = p->at[x.id].n_bytes;
        if (x.n_bytes < 1 || x.n_bytes > w.end - at) return false; /* a damaged table */
    }
    *from = at;
    return true;
}

static void locate_run(tg_tok_scratch *s, const tg_tok_view *v, int32_t at, size_t from)
{
    for (size_t i = from; i < s->out->len; i++) {
        int32_t n = s->t->splits.at[s->out->ptr[i]].n_bytes;
        locate(s, v, at, at + n);
        at += n;
    }
}

static tg_status begin_dead(tg_tok_scratch *s, size_t n_bytes, tg_err *e)
{
    size_t n = n_bytes / 32 + 1;
    if (n > s->n_dead) {
        size_t want = TG_MAX(n, (size_t)64);
        tg_mem_free(s->dead);
        s->dead = tg_mem_new_array(want, sizeof *s->dead);
        s->n_dead = s->dead ? want : 0;
        if (!s->dead) return tg_fail_nomem(e, want * sizeof *s->dead, "the places of a word");
    }
    memset(s->dead, 0, n * sizeof *s->dead);
    return TG_OK;
}

/* A character that no token begins with is spelled in bytes, which merge with nothing. */
static bool find_word(tg_tok_scratch *s, const tg_tok_view *v, tg_span w)
{
    const tg_tokenizer *t = s->t;
    for (int32_t at = w.begin; at < w.end;) {
        size_t n_before = s->out->len;
        int32_t begin = at, cp;
        if (!find_tokens(s, v, w, &at)) return false;
        if (s->out->is_failed) return true;
        if (s->spans || s->is_noting) locate_run(s, v, begin, n_before);
        if (at == w.end) break;
        int n = tg_utf8_decode(v->ptr + at, (size_t)(w.end - at), &cp);
        for (int32_t end = at + TG_MAX(n, 1); at < end; at++) {
            int32_t id = t->byte_ids[(uint8_t)v->ptr[at]];
            if ((uint32_t)id >= (uint32_t)t->h->n_vocab) return false;
            emit(s, v, id, at, at + 1);
        }
    }
    return true;
}

/* *is_done is false, and nothing was appended, where no tokens were found: in a damaged table. */
static tg_status merge_by_tokens(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, bool *is_done,
                                 tg_err *e)
{
    size_t n_ids = s->out->len, n_spans = s->spans ? s->spans->len : 0;
    int32_t n_noted = s->n_noted;
    TG_TRY(begin_dead(s, (size_t)(w.end - w.begin), e));
    *is_done = find_word(s, v, w);
    if (!*is_done) {
        s->out->len = n_ids;
        if (s->spans) s->spans->len = n_spans;
        s->n_noted = n_noted;
    }
    return tg_ids_check(s->out, e);
}

tg_status tg_bpe_merge(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    bool is_done = false;
    if (s->t->h->flags & TG_TOK_HAS_SPLITS) TG_TRY(merge_by_tokens(s, v, word, &is_done, e));
    if (is_done) return TG_OK;
    symbols y = {.s = s, .v = v, .word = word, .unk_begin = -1};
    TG_TRY(split_symbols(&y, e));
    TG_TRY(merge_symbols(s, y.n, e));
    emitter x = {s, v, false};
    for (int32_t i = y.n ? 0 : -1; i >= 0; i = s->symbols[i].next)
        emit_symbol(&x, &s->symbols[i]);
    return TG_OK;
}

/* Looks the word up whole: true when that settles it. With ignore_merges any token will do for a
 * word, whatever merging would make of it. Others are found as fast from left to right. */
static bool encode_whole(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, bool is_part)
{
    const tg_tok_header *h = s->t->h;
    bool any_will_do = !is_part && h->flags & TG_TOK_IGNORE_MERGES;
    if ((h->flags & TG_TOK_HAS_SPLITS && !any_will_do) || w.end - w.begin > h->max_key_bytes)
        return false;
    int32_t id = tg_tok_find_key(s->t, v->ptr + w.begin, (size_t)(w.end - w.begin));
    if (id < 0 || id >= h->n_vocab) return false;
    if (!any_will_do && !(s->t->flags[id] & TG_TOK_IS_WHOLE)) return false;
    emit(s, v, id, w.begin, w.end);
    return true;
}

/* ---- words seen before */

typedef tg_status encode_fn(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, tg_err *e);
static encode_fn encode_word, encode_part;

static void emit_known(tg_tok_scratch *s, const tg_tok_view *v, int32_t at, const tg_word_entry *x)
{
    for (int i = 0; i < x->n_ids; i++)
        emit(s, v, x->ids[i], at + x->begin[i], at + x->end[i]);
}

/* A word of one byte needs no cache: where symbols are bytes and not dressed, it is its symbol. In
 * vocabularies that cut numbers into digits such words are many. */
static bool encode_byte(tg_tok_scratch *s, const tg_tok_view *v, tg_span w)
{
    const tg_tokenizer *t = s->t;
    int32_t id = t->byte_ids[(uint8_t)v->ptr[w.begin]];
    uint32_t wanted = TG_TOK_BYTE_LEVEL | TG_TOK_HAS_SEAMS;
    bool is_token = (t->h->flags & wanted) == wanted && (uint32_t)id < (uint32_t)t->h->n_vocab;
    if (is_token) emit(s, v, id, w.begin, w.end);
    return is_token;
}

/* What encoding [w.begin, w.end) gave: ids from `from` on, and the bytes noted for each. */
static void remember(tg_tok_scratch *s, tg_word_cache *cache, const tg_word_key *key, tg_span w,
                     size_t from, int32_t first)
{
    size_t n = s->out->len - from;
    if (n > TG_WORD_MAX_IDS || s->out->is_failed) return;
    tg_word_entry x = {.key = *key, .n_bytes = (uint8_t)(w.end - w.begin), .n_ids = (uint8_t)n};
    for (size_t i = 0; i < n; i++) {
        tg_span at = s->noted[first + (int32_t)i];
        x.ids[i] = s->out->ptr[from + i];
        x.begin[i] = (uint8_t)(at.begin - w.begin);
        x.end[i] = (uint8_t)(at.end - w.begin);
    }
    tg_word_cache_add(cache, &x);
}

/* Looks a short word up among those seen, or encodes it and keeps what came out. A word may be
 * made of parts that come through here too; what they note is the word's. */
static tg_status encode_known(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, bool is_part,
                              tg_err *e)
{
    /* With ignore_merges the same bytes may give other ids as a word than as a part of one. */
    tg_word_cache *cache = &s->known[is_part && (s->t->h->flags & TG_TOK_IGNORE_MERGES)];
    encode_fn *encode = is_part ? encode_part : encode_word;
    size_t n = (size_t)(w.end - w.begin);
    if (n > TG_WORD_MAX_BYTES) return encode(s, v, w, e);
    if (n == 1 && encode_byte(s, v, w)) return TG_OK;
    tg_word_key key = tg_word_key_of(v->ptr + w.begin, n);
    const tg_word_entry *x = tg_word_cache_find(cache, &key, n);
    if (x) {
        emit_known(s, v, w.begin, x);
        return TG_OK;
    }
    bool was_noting = s->is_noting;
    if (!was_noting) s->n_noted = 0;
    int32_t first = s->n_noted;
    size_t from = s->out->len;
    s->is_noting = true;
    tg_status status = encode(s, v, w, e);
    s->is_noting = was_noting;
    if (status == TG_OK) remember(s, cache, &key, w, from, first);
    return status;
}

/* ---- parts of words */

/* A part between seams. Merging it alone gives what merging the whole would give it. */
static tg_status encode_part(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, tg_err *e)
{
    return encode_whole(s, v, w, true) ? TG_OK : tg_bpe_merge(s, v, w, e);
}

static bool has_seam_bit(const tg_tokenizer *t, uint32_t hash)
{
    uint32_t bit = hash & t->seam_mask;
    return t->seams[bit >> 5] >> (bit & 31) & 1;
}

static tg_status encode_uncut(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, tg_err *e)
{
    return encode_whole(s, v, w, false) ? TG_OK : tg_bpe_merge(s, v, w, e);
}

/* Cuts the word where no token holds the two characters side by side: no merge can reach across,
 * so the parts' ids are the word's. It makes one long word, such as a text of a vocabulary without
 * pre-tokenizer, into many short ones. */
static tg_status encode_between_seams(tg_tok_scratch *s, const tg_tok_view *v, tg_span w, tg_err *e)
{
    const tg_tokenizer *t = s->t;
    bool is_bytes = t->h->flags & TG_TOK_BYTE_LEVEL; /* whose tokens may hold parts of characters */
    int32_t begin = w.begin, left, right;
    int n = tg_utf8_decode(v->ptr + w.begin, (size_t)(w.end - w.begin), &left);
    for (int32_t i = w.begin + TG_MAX(n, 1); i < w.end; i += TG_MAX(n, 1), left = right) {
        n = tg_utf8_decode(v->ptr + i, (size_t)(w.end - i), &right);
        if (has_seam_bit(t, tg_tok_seam_hash(left, right)) ||
            (is_bytes && has_seam_bit(t, tg_tok_byte_seam_hash(v->ptr[i - 1], v->ptr[i]))))
            continue;
        TG_TRY(encode_known(s, v, (tg_span){begin, i}, true, e));
        begin = i;
    }
    if (begin > w.begin) return encode_known(s, v, (tg_span){begin, w.end}, true, e);
    return encode_uncut(s, v, w, e);
}

static tg_status encode_word(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    bool has_seams = s->t->h->flags & TG_TOK_HAS_SEAMS;
    return has_seams ? encode_between_seams(s, v, word, e) : encode_uncut(s, v, word, e);
}

tg_status tg_bpe_encode(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    return word.begin < word.end ? encode_known(s, v, word, false, e) : TG_OK;
}
