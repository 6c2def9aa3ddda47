/* SPDX-License-Identifier: Apache-2.0
 * tok.h - text to token ids and back.
 *
 * Opens a compiled tokenizer, the blob that compile/tokcompile.h writes, where it lies: borrows it
 * and parses no vocabulary. The blob's bytes are drawn in tokblob.h and docs/tokenizer.md.
 *
 * Ids are those of the Hugging Face tokenizers library for tokenizer.json. For GGUF metadata the
 * declared model and pre-tokenizer decide, never a resemblance. Whatever is not known is refused
 * by its name and its place in the file, never approximated.
 *
 * An open tokenizer is read-only: any number of threads may encode and decode with one. */
#ifndef TG_TOKEN_TOK_H
#define TG_TOKEN_TOK_H

#include "base/str.h"

enum { TG_TOKEN_NONE = -1 }; /* no such id */

/* ---- opening */

typedef struct tg_tokenizer tg_tokenizer;

/* `blob` is borrowed until close and aligned to 64 bytes. Its sections are checked here, its
 * contents when they are used: a damaged blob gives an error or wrong ids, never a bad access. */
TG_MUST_USE tg_status tg_tokenizer_open(tg_tokenizer **out, const void *blob, size_t n_bytes,
                                        tg_err *e);
void tg_tokenizer_close(tg_tokenizer *t); /* accepts NULL */

/* ---- encoding */

/* A growing list of ids, sticky like tg_buf: it reports refused memory once, in tg_ids_check. */
typedef struct tg_ids {
    int32_t *ptr;
    size_t len, size;
    bool is_failed;
} tg_ids;

bool tg_ids_grow(tg_ids *s); /* makes room for one more; false when it is refused */
static inline void tg_ids_push(tg_ids *s, int32_t id)
{
    if ((s->len < s->size && !s->is_failed) || tg_ids_grow(s)) s->ptr[s->len++] = id;
}
TG_MUST_USE tg_status tg_ids_check(const tg_ids *s, tg_err *e);
void tg_ids_clear(tg_ids *s);
void tg_ids_deinit(tg_ids *s);

/* Bytes [begin, end) of a text. */
typedef struct tg_span {
    int32_t begin, end;
} tg_span;

typedef struct tg_spans {
    tg_span *ptr;
    size_t len, size;
    bool is_failed;
} tg_spans;

bool tg_spans_grow(tg_spans *s);
static inline void tg_spans_push(tg_spans *s, int32_t begin, int32_t end)
{
    if ((s->len < s->size && !s->is_failed) || tg_spans_grow(s))
        s->ptr[s->len++] = (tg_span){begin, end};
}
void tg_spans_clear(tg_spans *s);
void tg_spans_deinit(tg_spans *s);

typedef struct tg_encode_options {
    bool add_special;   /* what the post-processor adds: BOS, EOS */
    bool parse_special; /* special tokens in the text become their ids; otherwise plain text */
    tg_spans *spans;    /* NULL, or receives for each id the bytes of the text it stands for;
                           what the post-processor adds has none: (0, 0) or (length, length) */
    /* [n_literal] byte offsets of the text, ascending: a special token that covers one is plain
     * text all the same. Needs `spans`. */
    const int32_t *literal;
    int32_t n_literal;
} tg_encode_options;

/* The longest text one call takes. */
enum { TG_ENCODE_MAX_BYTES = (1 << 30) - 1 };

/* Appends the ids of `text`. Invalid UTF-8 is refused with its byte offset; TG_E_UNSUPPORTED is
 * where a model without an unknown token does not know a part of the text. Time and memory are
 * linear in the text but for long words that need a queue (neighbors.h), which adds a logarithm. */
TG_MUST_USE tg_status tg_tokenizer_encode(tg_ids *out, const tg_tokenizer *t, tg_str text,
                                          const tg_encode_options *o, tg_err *e);

/* ---- decoding */

/* Appends the text of ids. Bytes that are not UTF-8 become U+FFFD by the rules of the file's
 * decoder. An id in the vocabulary that no token has prints nothing; one beyond
 * it is an error that names its place. */
TG_MUST_USE tg_status tg_tokenizer_decode(tg_buf *out, const tg_tokenizer *t, const int32_t *ids,
                                          size_t n_ids, bool skip_special, tg_err *e);

/* The same, one id at a time. Its output is ready to print: whole characters that no later id
 * can change. All of it together, after the flush, equals the decode of all ids at once. */
typedef struct tg_detok {
    const tg_tokenizer *t;
    bool skip_special;
    bool is_first;     /* no token has been let through yet */
    bool is_run;       /* `held` is a run of byte tokens, not the beginning of a character */
    int32_t held_id;   /* a token that prints something else if it is the last; or TG_TOKEN_NONE */
    int32_t before_id; /* the token before */
    int32_t n_left;    /* characters still to be taken off the front */
    int32_t n_tail;    /* characters now in `tail` */
    tg_buf held;       /* bytes that may still become part of a character */
    tg_buf tail;       /* characters that are dropped if nothing follows them */
    tg_buf known;      /* the end of the prompt's text, which is not given out again */
    uint8_t cleaning[10]; /* how much of each pattern of the clean-up is waiting */
    int64_t n_ids;        /* for messages */
} tg_detok;

void tg_detok_init(tg_detok *d, const tg_tokenizer *t, bool skip_special);
/* Before the first push: the ids that stand before, a prompt. Ids pushed afterwards print the
 * text of both less the text of `ids` alone. Ids beyond the vocabulary count for nothing. */
TG_MUST_USE tg_status tg_detok_follow(tg_detok *d, const int32_t *ids, size_t n_ids, tg_err *e);
TG_MUST_USE tg_status tg_detok_push(tg_detok *d, tg_buf *out, int32_t id, tg_err *e);
TG_MUST_USE tg_status tg_detok_flush(tg_detok *d, tg_buf *out, tg_err *e); /* ready for new ids */
void tg_detok_deinit(tg_detok *d);

/* ---- looking */

int32_t tg_tokenizer_n_vocab(const tg_tokenizer *t); /* the largest id and one */
/* TG_TOKEN_NONE where the file names none. */
int32_t tg_tokenizer_bos_id(const tg_tokenizer *t);
int32_t tg_tokenizer_eos_id(const tg_tokenizer *t);
int32_t tg_tokenizer_unk_id(const tg_tokenizer *t);
int32_t tg_tokenizer_pad_id(const tg_tokenizer *t);

typedef enum tg_token_flag {
    TG_TOKEN_SPECIAL = 1, /* skip_special drops it */
    TG_TOKEN_ADDED = 2,   /* found in the text before anything else */
    TG_TOKEN_BYTE = 4,    /* a byte of a character that the vocabulary lacks */
    TG_TOKEN_HOLE = 8,    /* no token has this id */
    TG_TOKEN_UNUSED = 256 /* an id without a meaning, such as a row of padding: prints nothing */
} tg_token_flag;
enum { TG_TOKEN_FLAGS = 15 | TG_TOKEN_UNUSED };

/* What the token prints, borrowed from the blob, and its flags. An id outside the vocabulary gives
 * no bytes and TG_TOKEN_HOLE. */
tg_str tg_tokenizer_get_token(const tg_tokenizer *t, int32_t id, uint32_t *flags);
/* Appends the token as its file spells it ("Ġthe", "<0x0A>"). */
void tg_tokenizer_print_token(tg_buf *out, const tg_tokenizer *t, int32_t id);
/* The token that the file spells so, or TG_TOKEN_NONE. */
int32_t tg_tokenizer_find_token(const tg_tokenizer *t, tg_str spelling);

/* How many ids the post-processor puts before a text. */
int32_t tg_tokenizer_n_prefix(const tg_tokenizer *t);
/* Added tokens in the order of the file; `i` below the count. */
int32_t tg_tokenizer_n_added(const tg_tokenizer *t);
int32_t tg_tokenizer_added_id(const tg_tokenizer *t, int32_t i);

/* Doubts the compiler had, a sentence each; NULL from the first index that has none. */
const char *tg_tokenizer_find_warning(const tg_tokenizer *t, int32_t i);

#endif
