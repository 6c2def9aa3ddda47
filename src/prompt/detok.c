/* SPDX-License-Identifier: Apache-2.0
 * detok.c - ids back to text, one at a time.
 *
 * A token's piece was made by the compiler; here pieces are put together. What is held back is the
 * least that a later token could still change: the beginning of a character; a run of byte tokens,
 * of which the reference library makes a string or, when it is none, U+FFFD for every byte; and
 * blanks that are cut if the text ends with them.
 *
 *   push -> [held: bytes of a character | run of byte tokens] -> front cut -> [tail] -> out */
#include "prompt/tokblob.h"

#include <inttypes.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void tg_detok_init(tg_detok *d, const tg_tokenizer *t, bool skip_special)
{
    *d = (tg_detok){.t = t, .skip_special = skip_special, .is_first = true, .n_left = t->h->n_left};
}

void tg_detok_deinit(tg_detok *d)
{
    tg_buf_deinit(&d->held);
    tg_buf_deinit(&d->tail);
    *d = (tg_detok){0};
}

/* ---- the ends of the text */

/* `tail` holds up to n_right characters that are cut if the text ends here. */
static void emit_past_front(tg_detok *d, tg_buf *out, const char *bytes, size_t n)
{
    const tg_tok_header *h = d->t->h;
    if (h->n_right == 0) {
        tg_buf_add(out, bytes, n);
        return;
    }
    for (size_t i = 0; i < n;) {
        int32_t cp = -1;
        int len = TG_MAX(tg_utf8_decode(bytes + i, n - i, &cp), 1);
        if (cp != h->right_cp) { /* something follows what was held: it stays */
            tg_buf_add_str(out, tg_buf_str(&d->tail));
            tg_buf_clear(&d->tail);
            d->n_tail = 0;
            tg_buf_add(out, bytes + i, (size_t)len);
        } else if (d->n_tail == h->n_right) {
            tg_buf_add(out, bytes + i, (size_t)len); /* one more of them: the first may go */
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
        /* The byte that broke the character begins anew. */
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

/* The first token prints without its marks of a blank, wherever in it they stand. */
static void emit_first(tg_detok *d, tg_buf *out, tg_str key)
{
    for (size_t i = 0; i < key.len;) {
        int32_t cp = -1;
        size_t n = (size_t)TG_MAX(tg_utf8_decode(key.ptr + i, key.len - i, &cp), 1);
        if (cp != d->t->h->drop_cp) emit(d, out, key.ptr + i, n);
        i += n;
    }
}

static void push_piece(tg_detok *d, tg_buf *out, int32_t id, tg_str piece, bool is_byte)
{
    uint32_t flags = d->t->h->flags;
    bool is_first = d->is_first;
    d->is_first = false;
    if (flags & TG_TOK_LOSSY_BYTES) {
        push_stream(d, out, piece);
        return;
    }
    if ((flags & TG_TOK_BYTE_RUNS) && is_byte) {
        d->is_run = true;
        tg_buf_add_str(&d->held, piece);
        return;
    }
    end_run(d, out);
    if ((flags & TG_TOK_JOIN_SPACES) && !is_first) emit(d, out, " ", 1);
    if ((flags & TG_TOK_DROP_FIRST) && is_first)
        emit_first(d, out, tg_tok_key(d->t, id));
    else
        emit(d, out, piece.ptr, piece.len);
}

tg_status tg_detok_push(tg_detok *d, tg_buf *out, int32_t id, tg_err *e)
{
    uint32_t flags;
    tg_str piece = tg_tokenizer_get_token(d->t, id, &flags);
    if (flags & TG_TOKEN_HOLE)
        return tg_fail(e, TG_E_ARGUMENT,
                       "id %" PRId32 " at place %" PRId64
                       " is no token; the vocabulary has ids 0 to "
                       "%" PRId32,
                       id, d->n_ids, d->t->h->n_vocab - 1);
    d->n_ids++;
    if (d->skip_special && (flags & TG_TOKEN_SPECIAL)) return TG_OK;
    push_piece(d, out, id, piece, flags & TG_TOKEN_BYTE);
    TG_TRY(tg_buf_check(&d->held, e));
    TG_TRY(tg_buf_check(&d->tail, e));
    return tg_buf_check(out, e);
}

tg_status tg_detok_flush(tg_detok *d, tg_buf *out, tg_err *e)
{
    end_run(d, out);
    if (d->held.len) emit(d, out, replacement, 3); /* a character that was never finished */
    /* What is left in the tail ends the text and is cut. */
    tg_buf_clear(&d->held);
    tg_buf_clear(&d->tail);
    d->n_tail = 0;
    d->is_first = true;
    d->n_left = d->t->h->n_left;
    d->n_ids = 0;
    return tg_buf_check(out, e);
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
