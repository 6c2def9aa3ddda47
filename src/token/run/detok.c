/* SPDX-License-Identifier: Apache-2.0
 * detok.c - ids back to text, one at a time.
 *
 * A token's piece was made by the compiler; here pieces are put together. It holds back the
 * least that a later token could still change: the beginning of a character; a run of byte tokens,
 * which the reference library makes a string or, when it is none, U+FFFD for every byte; and
 * blanks that are cut if the text ends with them; a token that prints something else at the end;
 * the beginning of what the clean-up replaces.
 *
 *   push -> [last token] -> [bytes of a character | run of byte tokens] -> front cut -> [tail]
 *        -> [clean-up] -> out */
#include "token/run/tokblob.h"

#include <inttypes.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void tg_detok_init(tg_detok *d, const tg_tokenizer *t, bool skip_special)
{
    *d = (tg_detok){.t = t,
                    .skip_special = skip_special,
                    .is_first = true,
                    .held_id = TG_TOKEN_NONE,
                    .before_id = TG_TOKEN_NONE,
                    .n_left = t->h->n_left};
}

void tg_detok_deinit(tg_detok *d)
{
    tg_buf_deinit(&d->held);
    tg_buf_deinit(&d->tail);
    tg_buf_deinit(&d->known);
    *d = (tg_detok){0};
}

/* ---- cleaning up: transformers' clean_up_tokenization_spaces */

/* Each replaces all of its pattern in what the one before it made of the text. */
static const struct {
    const char *what, *with;
} clean_ups[] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};
_Static_assert(TG_COUNT(clean_ups) == sizeof((tg_detok){0}.cleaning),
               "each has a place in tg_detok");

/* A byte on its way through the patterns from k on. The waiting bytes are a beginning of a pattern.
 * When the next byte does not go on, no other beginning lies inside, since a pattern has no blank
 * but in front (and the fifth at its end, where it is complete). */
static void clean_byte(tg_detok *d, tg_buf *out, size_t k, char c)
{
    if (k == TG_COUNT(clean_ups)) {
        tg_buf_add_byte(out, c);
        return;
    }
    const char *what = clean_ups[k].what;
    size_t n = d->cleaning[k];
    if (n && what[n] != c) {
        d->cleaning[k] = 0;
        for (size_t i = 0; i < n; i++)
            clean_byte(d, out, k + 1, what[i]);
        n = 0;
    }
    if (what[n] != c) {
        clean_byte(d, out, k + 1, c);
        return;
    }
    d->cleaning[k] = (uint8_t)(what[n + 1] ? n + 1 : 0);
    for (const char *s = clean_ups[k].with; !what[n + 1] && *s; s++)
        clean_byte(d, out, k + 1, *s);
}

static void put_out(tg_detok *d, tg_buf *out, const char *bytes, size_t n)
{
    if (!(d->t->h->flags & TG_TOK_CLEAN_UP)) {
        tg_buf_add(out, bytes, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        clean_byte(d, out, 0, bytes[i]);
}

/* What waited for the rest of a pattern. */
static void end_cleaning(tg_detok *d, tg_buf *out)
{
    for (size_t k = 0; k < TG_COUNT(clean_ups); k++) {
        size_t n = d->cleaning[k];
        d->cleaning[k] = 0;
        for (size_t i = 0; i < n; i++)
            clean_byte(d, out, k + 1, clean_ups[k].what[i]);
    }
}

/* ---- the ends of the text */

/* `tail` holds up to n_right characters that are cut if the text ends here. */
static void emit_past_front(tg_detok *d, tg_buf *out, const char *bytes, size_t n)
{
    const tg_tok_header *h = d->t->h;
    if (h->n_right == 0) {
        put_out(d, out, bytes, n);
        return;
    }
    for (size_t i = 0; i < n;) {
        int32_t cp = -1;
        int len = TG_MAX(tg_utf8_decode(bytes + i, n - i, &cp), 1);
        if (cp != h->right_cp) { /* something follows what was held: it stays */
            put_out(d, out, d->tail.ptr, d->tail.len);
            tg_buf_clear(&d->tail);
            d->n_tail = 0;
            put_out(d, out, bytes + i, (size_t)len);
        } else if (d->n_tail == h->n_right) {
            put_out(d, out, bytes + i, (size_t)len); /* one more of them: the first may go */
        } else {
            tg_buf_add(&d->tail, bytes + i, (size_t)len);
            d->n_tail++;
        }
        i += (size_t)len;
    }
}

/* Everything that is printed goes through here, whole characters at a time. */
static void emit(tg_detok *d, tg_buf *out, const char *bytes, size_t n)
{
    while (d->n_left > 0 && n > 0) {
        int32_t cp = -1;
        size_t len = (size_t)TG_MAX(tg_utf8_decode(bytes, n, &cp), 1);
        if (cp != d->t->h->left_cp) {
            d->n_left = 0;
            break;
        }
        d->n_left--;
        bytes += len;
        n -= len;
    }
    emit_past_front(d, out, bytes, n);
}

/* ---- one stream of bytes */

typedef enum utf8_state { UTF8_BROKEN, UTF8_BEGUN, UTF8_WHOLE } utf8_state;

/* Whether 1 to 4 bytes are a character, or the beginning of one. */
static utf8_state classify(const unsigned char *b, size_t n)
{
    int32_t cp;
    if (tg_utf8_decode((const char *)b, n, &cp) == (int)n) return UTF8_WHOLE;
    size_t want = b[0] >= 0xf0 && b[0] <= 0xf4  ? 4
                  : b[0] >= 0xe0 && b[0] < 0xf0 ? 3
                  : b[0] >= 0xc2 && b[0] < 0xe0 ? 2
                                                : 0;
    if (n >= want) return UTF8_BROKEN;
    if (n == 1) return UTF8_BEGUN;
    /* The second byte is bounded by the first: no overlong forms, surrogates, or beyond 10FFFF. */
    unsigned char low = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    if (b[1] < low || b[1] > high) return UTF8_BROKEN;
    return n == 2 || (b[2] & 0xc0) == 0x80 ? UTF8_BEGUN : UTF8_BROKEN;
}

/* One U+FFFD for each longest piece that could have become a character: the rule of Unicode's
 * chapter 3.9 and of the reference library. */
static void push_stream_byte(tg_detok *d, tg_buf *out, char byte)
{
    tg_buf_add_byte(&d->held, byte);
    if (d->held.is_failed) return;
    switch (classify((const unsigned char *)d->held.ptr, d->held.len)) {
    case UTF8_BEGUN: return;
    case UTF8_WHOLE: emit(d, out, d->held.ptr, d->held.len); break;
    case UTF8_BROKEN:
        emit(d, out, replacement, 3);
        /* The byte that broke the character begins another. */
        if (d->held.len > 1) {
            tg_buf_clear(&d->held);
            push_stream_byte(d, out, byte);
            return;
        }
        break;
    }
    tg_buf_clear(&d->held);
}

/* Whole characters go out as they lie; only a broken one is looked at byte by byte. */
static void push_stream(tg_detok *d, tg_buf *out, tg_str bytes)
{
    size_t i = 0;
    while (i < bytes.len) {
        if (d->held.len == 0) {
            tg_str rest = {bytes.ptr + i, bytes.len - i};
            size_t whole = tg_utf8_find_invalid(rest);
            if (whole) emit(d, out, rest.ptr, whole);
            i += whole;
            if (i == bytes.len) break;
        }
        push_stream_byte(d, out, bytes.ptr[i++]);
    }
}

/* ---- runs of byte tokens */

/* The library decides about the run as a whole, so nothing of it can be printed before its end. */
static void end_run(tg_detok *d, tg_buf *out)
{
    if (!d->is_run) return;
    d->is_run = false;
    tg_str run = tg_buf_str(&d->held);
    if (tg_utf8_find_invalid(run) == run.len)
        emit(d, out, run.ptr, run.len);
    else
        for (size_t i = 0; i < run.len; i++)
            emit(d, out, replacement, 3);
    tg_buf_clear(&d->held);
}

/* ---- tokens */

static void push_piece(tg_detok *d, tg_buf *out, int32_t id, bool is_last)
{
    uint32_t flags = d->t->h->flags, token;
    bool is_first = d->is_first;
    d->is_first = false;
    int end = (is_first ? TG_TOK_AT_FIRST : 0) | (is_last ? TG_TOK_AT_LAST : 0);
    tg_tokenizer_get_token(d->t, id, &token);
    tg_str piece = tg_tok_piece_at(d->t, id, end);
    if (flags & TG_TOK_LOSSY_BYTES) {
        push_stream(d, out, piece);
        return;
    }
    if ((flags & TG_TOK_BYTE_RUNS) && (token & TG_TOKEN_BYTE)) {
        d->is_run = true;
        tg_buf_add_str(&d->held, piece);
        return;
    }
    end_run(d, out);
    if ((flags & TG_TOK_JOIN_SPACES) && !is_first) emit(d, out, " ", 1);
    emit(d, out, piece.ptr, piece.len);
}

static bool is_repeated(tg_detok *d, int32_t id)
{
    int32_t before = d->before_id;
    d->before_id = id;
    return before >= 0 && tg_str_is_equal(tg_tok_key(d->t, before), tg_tok_key(d->t, id));
}

/* Takes out of out[from, ..) what the prompt's text already showed, whole characters at a time. */
static void drop_known(tg_detok *d, tg_buf *out, size_t from)
{
    size_t n = 0, n_new = out->len - from;
    const char *known = d->known.ptr;
    if (d->known.len == 0 || n_new == 0) return;
    while (n < d->known.len && n < n_new && known[n] == out->ptr[from + n])
        n++;
    while (n < n_new && n > 0 && tg_tok_is_tail(out->ptr[from + n]))
        n--;
    bool goes_on = n == n_new;
    memmove(out->ptr + from, out->ptr + from + n, n_new - n + 1);
    out->len -= n;
    memmove(d->known.ptr, known + n, d->known.len - n + 1);
    d->known.len = goes_on ? d->known.len - n : 0;
}

tg_status tg_detok_follow(tg_detok *d, const int32_t *ids, size_t n_ids, tg_err *e)
{
    tg_buf out = {0};
    tg_status s = TG_OK;
    for (size_t i = 0; i < n_ids && s == TG_OK; i++) {
        if (ids[i] < 0 || ids[i] >= d->t->h->n_vocab) continue;
        tg_buf_clear(&out);
        s = tg_detok_push(d, &out, ids[i], e);
    }
    d->n_ids = 0;
    /* What the prompt's text would end with, if nothing followed. */
    tg_detok end = *d;
    end.held = end.tail = (tg_buf){0};
    tg_buf_add_str(&end.held, tg_buf_str(&d->held));
    tg_buf_add_str(&end.tail, tg_buf_str(&d->tail));
    tg_buf_clear(&out);
    if (s == TG_OK) s = tg_buf_check(&end.held, e);
    if (s == TG_OK) s = tg_buf_check(&end.tail, e);
    if (s == TG_OK) s = tg_detok_flush(&end, &out, e);
    tg_buf_deinit(&end.held);
    tg_buf_deinit(&end.tail);
    d->known = out;
    return s;
}

tg_status tg_detok_push(tg_detok *d, tg_buf *out, int32_t id, tg_err *e)
{
    uint32_t flags;
    size_t n_before = out->len;
    tg_tokenizer_get_token(d->t, id, &flags);
    if (id < 0 || id >= d->t->h->n_vocab)
        return tg_fail(e, TG_E_ARGUMENT,
                       "id %" PRId32 " at place %" PRId64
                       " is no token; the vocabulary has ids 0 to "
                       "%" PRId32,
                       id, d->n_ids, d->t->h->n_vocab - 1);
    d->n_ids++;
    if (flags & (TG_TOKEN_HOLE | TG_TOKEN_UNUSED)) return TG_OK;
    if (d->skip_special && (flags & TG_TOKEN_SPECIAL)) return TG_OK;
    if ((d->t->h->flags & TG_TOK_DROP_REPEATS) && is_repeated(d, id)) return TG_OK;
    if (d->t->h->n_ends > 1) {
        int32_t before = d->held_id;
        d->held_id = id;
        if (before >= 0) push_piece(d, out, before, false);
    } else {
        push_piece(d, out, id, false);
    }
    TG_TRY(tg_buf_check(&d->held, e));
    TG_TRY(tg_buf_check(&d->tail, e));
    TG_TRY(tg_buf_check(out, e));
    drop_known(d, out, n_before);
    return TG_OK;
}

tg_status tg_detok_flush(tg_detok *d, tg_buf *out, tg_err *e)
{
    size_t n_before = out->len;
    if (d->held_id >= 0) push_piece(d, out, d->held_id, true);
    end_run(d, out);
    if (d->held.len) emit(d, out, replacement, 3); /* a character that was never finished */
    end_cleaning(d, out);
    /* Blanks left in the tail end the text and are cut. */
    tg_buf_clear(&d->held);
    tg_buf_clear(&d->tail);
    d->n_tail = 0;
    d->is_first = true;
    d->held_id = d->before_id = TG_TOKEN_NONE;
    d->n_left = d->t->h->n_left;
    d->n_ids = 0;
    TG_TRY(tg_buf_check(out, e));
    drop_known(d, out, n_before);
    tg_buf_clear(&d->known);
    return TG_OK;
}

tg_status tg_tokenizer_decode(tg_buf *out, const tg_tokenizer *t, const int32_t *ids, size_t n_ids,
                              bool skip_special, tg_err *e)
{
    tg_detok d;
    tg_detok_init(&d, t, skip_special);
    tg_status s = TG_OK;
    for (size_t i = 0; i < n_ids && s == TG_OK; i++)
        s = tg_detok_push(&d, out, ids[i], e);
    if (s == TG_OK) s = tg_detok_flush(&d, out, e);
    tg_detok_deinit(&d);
    return s;
}
