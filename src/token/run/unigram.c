/* SPDX-License-Identifier: Apache-2.0
 * unigram.c - the likeliest way to cut a word into tokens.
 *
 * Every token has a score, the logarithm of its share in texts, and the best cut has the greatest
 * sum. Places of the word are visited from left to right; each knows the best path that ends there,
 * and every token that begins there offers its end a longer one. Sums are made in the order of the
 * reference library and the first of equals stays, so that ties and roundings fall as there.
 *
 * Where no token reaches across a place, every path goes through it: what lies to the left is
 * emitted and forgotten. A text of one word needs memory for its longest part between such places.
 *
 * Unknown characters side by side are one unknown token, or all their bytes where the vocabulary
 * has them. The reference looks the whole run up once more, as a token; so do we, but for models of
 * SentencePiece's own files (TG_TOK_FLOAT_SUMS), whose library does not. */
#include "token/run/tokblob.h"

enum { NO_PATH = -1 };

typedef struct lattice {
    tg_tok_scratch *s;
    const tg_tok_view *v;
    tg_span word;
    int32_t begin;              /* of the part not yet emitted: path[0] */
    int32_t furthest;           /* no token offered so far ends behind */
    int32_t n_ready;            /* places of `path` that have been set */
    int32_t unk_begin, unk_end; /* unknown characters not yet emitted; begin -1: none */
    uint32_t mask;              /* of `best` */
} lattice;

static tg_status reserve_ring(lattice *l, tg_err *e)
{
    tg_tok_scratch *s = l->s;
    size_t want = 16;
    while (want <= (size_t)s->t->h->max_key_bytes)
        want *= 2;
    if (s->n_best < want) {
        tg_mem_free(s->best);
        s->best = TG_NEW_ARRAY(double, want);
        s->n_best = s->best ? want : 0;
        if (!s->best) return tg_fail_nomem(e, want * sizeof *s->best, "the scores of a word");
    }
    l->mask = (uint32_t)s->n_best - 1;
    return TG_OK;
}

/* Makes places exist up to `end` of the word, without a path to them. */
static tg_status ready_path(lattice *l, int32_t end, tg_err *e)
{
    tg_tok_scratch *s = l->s;
    size_t n = (size_t)(end - l->begin) + 1;
    if (n > s->n_path) {
        size_t want = TG_MAX(n, s->n_path * 2 + 64);
        void *p =
            tg_mem_resize(s->path, (size_t)l->n_ready * sizeof *s->path, want * sizeof *s->path);
        if (!p) return tg_fail_nomem(e, want * sizeof *s->path, "the paths of a word");
        s->path = p;
        s->n_path = want;
    }
    while (l->n_ready < (int32_t)n)
        s->path[l->n_ready++].id = NO_PATH;
    return TG_OK;
}

/* SentencePiece adds in floats. Both terms are floats then, and the exact sum rounded once is their
 * sum, so that ties fall as there. */
static double add_scores(const tg_tokenizer *t, double a, double b)
{
    return t->h->flags & TG_TOK_FLOAT_SUMS ? (double)(float)(a + b) : a + b;
}

/* A token of n bytes at `at` offers its end a path. */
static void offer(lattice *l, int32_t at, int32_t n, double score, int32_t id)
{
    int32_t end = at + n;
    tg_lattice_step *step = &l->s->path[end - l->begin];
    double *best = &l->s->best[(uint32_t)(end - l->word.begin) & l->mask];
    if (end > l->furthest) l->furthest = end;
    if (step->id != NO_PATH && !(score > *best)) return;
    *best = score;
    *step = (tg_lattice_step){id, n};
}

/* All tokens that begin at `at`, where a character of n_char bytes stands. */
static tg_status offer_tokens(lattice *l, int32_t at, int32_t n_char, tg_err *e)
{
    const tg_tokenizer *t = l->s->t;
    double score = l->s->best[(uint32_t)(at - l->word.begin) & l->mask];
    int32_t most = TG_MIN(t->h->max_key_bytes, l->word.end - at);
    uint32_t unit = 0;
    bool has_single = false;
    TG_TRY(ready_path(l, at + TG_MAX(most, n_char), e));
    for (int32_t n = 1; n <= most; n++) {
        unit = tg_keytrie_find_child(&t->key_trie, unit, (uint8_t)l->v->ptr[at + n - 1]);
        if (unit == TG_KEYTRIE_NONE) break;
        int32_t id = t->key_trie.units[unit].id;
        if ((uint32_t)id >= (uint32_t)t->h->n_vocab) continue;
        offer(l, at, n, add_scores(t, t->scores[id], score), id);
        if (n == n_char) has_single = true;
    }
    if (has_single) return TG_OK;
    if (t->h->unk_id < 0) {
        const tg_lattice_step *step = &l->s->path[at + n_char - l->begin];
        double best = l->s->best[(uint32_t)(at + n_char - l->word.begin) & l->mask];
        bool is_best = step->id == NO_PATH || t->h->unk_score + score > best;
        return is_best ? tg_tok_fail_unknown(l->v, at, e) : TG_OK;
    }
    offer(l, at, n_char, add_scores(t, t->h->unk_score, score), t->h->unk_id);
    return TG_OK;
}

/* ---- from paths to ids */

static void emit_unknown(lattice *l)
{
    const tg_tokenizer *t = l->s->t;
    int32_t begin = l->unk_begin, end = l->unk_end, id = -1;
    if (begin < 0) return;
    l->unk_begin = -1;
    const char *text = l->v->ptr + begin;
    if (end - begin <= t->h->max_key_bytes && !(t->h->flags & TG_TOK_FLOAT_SUMS))
        id = tg_tok_find_key(t, text, (size_t)(end - begin));
    bool has_bytes =
        (uint32_t)id >= (uint32_t)t->h->n_vocab && (t->h->flags & TG_TOK_BYTE_FALLBACK);
    for (int32_t i = 0; has_bytes && i < end - begin; i++)
        has_bytes = (uint32_t)t->byte_ids[(uint8_t)text[i]] < (uint32_t)t->h->n_vocab;
    if (!has_bytes) {
        tg_tok_emit(l->s, l->v, (uint32_t)id < (uint32_t)t->h->n_vocab ? id : t->h->unk_id, begin,
                    end);
        return;
    }
    for (int32_t i = 0; i < end - begin; i++)
        tg_tok_emit(l->s, l->v, t->byte_ids[(uint8_t)text[i]], begin, end);
}

/* Emits the best path to `end` and begins a new part there. Steps are known by where they end;
 * walking back, each is put down where it begins, in the place of one that was just read. */
static void emit_part(lattice *l, int32_t end)
{
    tg_lattice_step *path = l->s->path, step = path[end - l->begin];
    for (int32_t at = end - l->begin; at > 0;) {
        at -= step.n_bytes;
        tg_lattice_step before = path[at];
        path[at] = step;
        step = before;
    }
    for (int32_t at = 0; at < end - l->begin; at += path[at].n_bytes) {
        int32_t begin = l->begin + at, id = path[at].id;
        if (id == l->s->t->h->unk_id) {
            if (l->unk_begin < 0) l->unk_begin = begin;
            l->unk_end = begin + path[at].n_bytes;
        } else {
            emit_unknown(l);
            tg_tok_emit(l->s, l->v, id, begin, begin + path[at].n_bytes);
        }
    }
    l->begin = end;
    l->n_ready = 1;
}

tg_status tg_unigram_search(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    lattice l = {
        .s = s, .v = v, .word = word, .begin = word.begin, .furthest = word.begin, .unk_begin = -1};
    bool is_bytes = s->t->h->flags & TG_TOK_BYTE_LEVEL;
    TG_TRY(reserve_ring(&l, e));
    TG_TRY(ready_path(&l, word.begin, e));
    s->best[0] = 0;
    for (int32_t at = word.begin, n; at < word.end; at += n) {
        int32_t cp;
        n = is_bytes ? 1 : TG_MAX(tg_utf8_decode(v->ptr + at, (size_t)(word.end - at), &cp), 1);
        if (at == l.furthest && at > l.begin) emit_part(&l, at);
        TG_TRY(offer_tokens(&l, at, n, e));
    }
    emit_part(&l, word.end);
    emit_unknown(&l);
    return TG_OK;
}

tg_status tg_unigram_encode(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    int32_t n = word.end - word.begin;
    if (n <= 0) return TG_OK;
    /* Most words of prose are tokens; the compiler saw which are their own best path. */
    if (n <= s->t->h->max_key_bytes) {
        int32_t id = tg_tok_find_key(s->t, v->ptr + word.begin, (size_t)n);
        if ((uint32_t)id < (uint32_t)s->t->h->n_vocab && (s->t->flags[id] & TG_TOK_IS_WHOLE)) {
            tg_tok_emit(s, v, id, word.begin, word.end);
            return TG_OK;
        }
    }
    return tg_unigram_search(s, v, word, e);
}
