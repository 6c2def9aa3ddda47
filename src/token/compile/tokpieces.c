/* SPDX-License-Identifier: Apache-2.0 */
#include "token/compile/tokpieces.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const tg_str tg_piece_mark = {"\xe2\x96\x81", 3};

/* ---- tokens */

static tg_status check_piece(const tg_tok_pieces *p, int32_t i, tg_err *e)
{
    int32_t type = tg_tok_piece_type(p, i);
    if (type < TG_PIECE_NORMAL || type > TG_PIECE_BYTE)
        return tg_fail(e, TG_E_CORRUPT, "%s of token %" PRId32 " is %" PRId32 "; known are 1 to 6",
                       p->type_key, i, type);
    size_t bad = tg_utf8_find_invalid(p->texts[i]);
    if (bad < p->texts[i].len)
        return tg_fail(e, TG_E_CORRUPT, "token %" PRId32 " is not UTF-8 at byte %zu", i, bad);
    return TG_OK;
}

static tg_status check_doubles(const tg_tok_build *b, const tg_tok_pieces *p, tg_err *e)
{
    for (int32_t i = 0; i < p->n; i++) {
        int32_t last = b->entries[i].flags & TG_TOK_IS_MODEL && p->texts[i].len
                           ? tg_tok_build_find(b, p->texts[i])
                           : i;
        if (last != i)
            return tg_fail(e, TG_E_CORRUPT,
                           "tokens %" PRId32 " and %" PRId32 " are both spelled '%.*s'; nothing "
                           "says which one a text means",
                           i, last, (int)TG_MIN(p->texts[i].len, (size_t)80), p->texts[i].ptr);
    }
    return TG_OK;
}

tg_status tg_tok_pieces_declare(tg_tok_build *b, const tg_tok_pieces *p, tg_err *e)
{
    enum { N_SYMBOLS = 64 }; /* more than any vocabulary was seen to lack */
    TG_TRY(tg_tok_build_reserve(b, TG_MIN(p->n, TG_TOK_MAX_ID) + N_SYMBOLS, e));
    for (int32_t i = 0; i < p->n; i++) {
        TG_TRY(check_piece(p, i, e));
        int32_t type = tg_tok_piece_type(p, i);
        /* What the model may make of text: not control pieces, whose spelling in a text is text. */
        bool is_text = type == TG_PIECE_NORMAL || type == TG_PIECE_USER || type == TG_PIECE_UNUSED;
        uint16_t flags = is_text ? TG_TOK_IS_MODEL : 0;
        if (type == TG_PIECE_CONTROL || type == TG_PIECE_UNKNOWN) flags |= TG_TOKEN_SPECIAL;
        TG_TRY(tg_tok_build_add_token(b, i, p->texts[i], flags, e));
        if (type != TG_PIECE_CONTROL && type != TG_PIECE_USER && type != TG_PIECE_UNKNOWN) continue;
        if (type == TG_PIECE_USER && p->keeps_users) continue;
        b->entries[i].flags |= TG_TOKEN_ADDED;
        uint32_t added = type == TG_PIECE_USER ? p->user_flags : TG_TOK_ADDED_SPECIAL;
        if (p->texts[i].len) TG_TRY(tg_tok_build_add_added(b, p->texts[i], i, added, e));
    }
    TG_TRY(tg_tok_build_index(b, e));
    return check_doubles(b, p, e);
}

tg_str tg_piece_unmark(tg_tok_build *b, tg_str text)
{
    char *s = tg_tok_build_room(b, text.len);
    size_t n = 0;
    for (size_t i = 0; s && i < text.len;) {
        bool is_mark = tg_str_has_prefix((tg_str){text.ptr + i, text.len - i}, tg_piece_mark);
        s[n++] = is_mark ? ' ' : text.ptr[i];
        i += is_mark ? tg_piece_mark.len : 1;
    }
    if (s) tg_tok_build_give_back(b, text.len - n);
    return (tg_str){s, n};
}

/* Without types, the spelling <0x..> alone says what a byte token is. */
tg_status tg_tok_pieces_mark(tg_tok_build *b, const tg_tok_pieces *p, int *n_bytes, tg_err *e)
{
    *n_bytes = 0;
    for (int32_t i = 0; i < p->n; i++) {
        tg_tok_entry *x = &b->entries[i];
        int32_t type = tg_tok_piece_type(p, i);
        int byte = type == TG_PIECE_BYTE || !p->types ? tg_tok_parse_byte(x->text) : -1;
        if (type == TG_PIECE_BYTE && byte < 0)
            return tg_fail(e, TG_E_CORRUPT,
                           "token %" PRId32 " '%.*s' is a byte by its type and not spelled <0x..>",
                           i, (int)TG_MIN(x->text.len, (size_t)80), x->text.ptr);
        if (byte >= 0) {
            char c = (char)byte;
            x->piece = tg_tok_build_copy(b, (tg_str){&c, 1});
            x->flags = (uint16_t)((x->flags & ~TG_TOK_IS_MODEL) | TG_TOKEN_BYTE);
            *n_bytes += b->byte_ids[byte] < 0;
            b->byte_ids[byte] = i;
        } else if (type == TG_PIECE_NORMAL || type == TG_PIECE_UNUSED) {
            x->piece = tg_piece_unmark(b, x->text);
        }
        if (!x->piece.ptr) return tg_fail_nomem(e, x->text.len, "compiling a tokenizer");
    }
    return tg_tok_build_index(b, e);
}

/* ---- merges made of scores */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int compare_scores(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Ranks by falling score; equal scores get equal ranks, so that the leftmost pair wins. */
static tg_status rank_scores(tg_tok_build *b, const tg_tok_pieces *p, int32_t **out, tg_err *e)
{
    scored *order = TG_ARENA_ARRAY(&b->arena, scored, p->n);
    int32_t *rank = TG_ARENA_ARRAY(&b->arena, int32_t, p->n);
    if (!order || !rank)
        return tg_fail_nomem(e, (size_t)p->n * sizeof *order, "the scores of tokens");
    for (int32_t i = 0; i < p->n; i++) {
        order[i] = (scored){p->scores[i], i};
        if (p->scores[i] != p->scores[i])
            return tg_fail(e, TG_E_CORRUPT, "%s[%" PRId32 "] is not a number", p->score_key, i);
    }
    qsort(order, (size_t)p->n, sizeof *order, compare_scores);
    for (int32_t i = 1; i < p->n; i++)
        rank[order[i].id] = rank[order[i - 1].id] + (order[i].score < order[i - 1].score);
    *out = rank;
    return TG_OK;
}

/* Characters that occur only inside tokens become symbols, for the merges that need them. */
static tg_status add_symbols(tg_tok_build *b, tg_err *e)
{
    enum { N_CODE_POINTS = 0x110000 };
    uint32_t *seen = TG_ARENA_ARRAY(&b->arena, uint32_t, N_CODE_POINTS / 32);
    if (!seen) return tg_fail_nomem(e, N_CODE_POINTS / 8, "compiling a tokenizer");
    b->h.n_vocab = b->n_entries;
    for (int32_t i = 0; i < b->h.n_vocab; i++) {
        tg_str text = b->entries[i].text;
        if (!(b->entries[i].flags & TG_TOK_IS_MODEL)) continue;
        int32_t cp;
        for (size_t k = 0, n; k < text.len; k += n) {
            n = (size_t)tg_utf8_decode(text.ptr + k, text.len - k, &cp);
            if (seen[cp >> 5] >> (cp & 31) & 1) continue;
            seen[cp >> 5] |= 1u << (cp & 31);
            tg_str c = {text.ptr + k, n};
            if (tg_tok_build_find(b, c) < 0)
                TG_TRY(tg_tok_build_add_token(b, b->n_entries, c, TG_TOK_IS_SYMBOL, e));
        }
    }
    return tg_tok_build_index(b, e);
}

/* Each cut of each token between characters where both parts are tokens: counted, and added as a
 * merge once `rank` is known. */
static size_t visit_cuts(tg_tok_build *b, const int32_t *rank)
{
    size_t n = 0;
    for (int32_t i = 0; i < b->n_entries; i++) {
        tg_str text = b->entries[i].text;
        if (!(b->entries[i].flags & TG_TOK_IS_MODEL)) continue;
        for (size_t k = 1; k < text.len; k++) {
            if (((unsigned char)text.ptr[k] & 0xc0) == 0x80) continue;
            int32_t l = tg_tok_build_find(b, (tg_str){text.ptr, k});
            if (l < 0) continue;
            int32_t r = tg_tok_build_find(b, (tg_str){text.ptr + k, text.len - k});
            if (r < 0) continue;
            n++;
            if (rank) tg_tok_build_add_merge(b, l, r, rank[i], i);
        }
    }
    return n;
}

tg_status tg_tok_build_merge_cuts(tg_tok_build *b, const int32_t *rank, tg_err *e)
{
    TG_TRY(tg_tok_build_begin_merges(b, visit_cuts(b, NULL), e));
    visit_cuts(b, rank);
    return TG_OK;
}

tg_status tg_tok_pieces_merge(tg_tok_build *b, const tg_tok_pieces *p, tg_err *e)
{
    int32_t *rank = NULL;
    TG_TRY(rank_scores(b, p, &rank, e));
    TG_TRY(add_symbols(b, e));
    return tg_tok_build_merge_cuts(b, rank, e);
}
