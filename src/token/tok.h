/* SPDX-License-Identifier: Apache-2.0
 * tok.h - text to token ids and back.
 *
 * Two halves with one form between them. Compiling reads what a checkpoint says about its
 * tokenizer (tokenizer.json, or the metadata of a GGUF file) and writes a blob: it may be slow and
 * may allocate. Running opens the blob where it lies, borrows it, and parses no vocabulary. The
 * blob's bytes are drawn in tokblob.h and docs/tokenizer.md.
 *
 * Ids are those of the Hugging Face tokenizers library for tokenizer.json. For GGUF metadata the
 * declared model and pre-tokenizer decide, never a resemblance. Whatever is not known is refused
 * by its name and its place in the file, never approximated.
 *
 * An open tokenizer is read-only: any number of threads may encode and decode with one. */
#ifndef TG_TOKEN_TOK_H
#define TG_TOKEN_TOK_H

#include "base/str.h"

/* ---- compiling */

/* Appends the blob made of a tokenizer.json. `config` is the text of tokenizer_config.json beside
 * it and may be empty: from it come the names of the special ids and add_bos_token. */
TG_MUST_USE tg_status tg_tokenizer_compile_json(tg_buf *blob, tg_str json, tg_str config,
                                                tg_err *e);

/* The small files beside a vocabulary that says nothing of these itself; empty: absent. */
typedef struct tg_tokenizer_texts {
    tg_str config;             /* tokenizer_config.json */
    tg_str special_tokens_map; /* special_tokens_map.json */
    tg_str added_tokens;       /* added_tokens.json, where the config has no added_tokens_decoder */
} tg_tokenizer_texts;

/* Appends the blob made of a SentencePiece model, the file that is mostly called tokenizer.model.
 * Ids are those of the sentencepiece library; added tokens, and what stands around a text, are
 * those of transformers' Llama tokenizer: "legacy" of the config says whether each text between
 * added tokens begins with a blank (true, as when it is absent) or only the first. */
TG_MUST_USE tg_status tg_tokenizer_compile_sentencepiece(tg_buf *blob, tg_str model,
                                                         const tg_tokenizer_texts *texts,
                                                         tg_err *e);

/* Appends the blob made of a tiktoken file: lines of a token in base64 and its rank. Ids are those
 * of the tiktoken library with the pattern and the special tokens of the tokenizer_class that the
 * config names; a class that is not known is refused, since the file does not say them. */
TG_MUST_USE tg_status tg_tokenizer_compile_tiktoken(tg_buf *blob, tg_str file,
                                                    const tg_tokenizer_texts *texts, tg_err *e);
/* Whether a file is a tiktoken file: by its first line, since names tell nothing. */
bool tg_tokenizer_is_tiktoken(tg_str file);

/* Appends the blob made of GPT-2's pair of files, vocab.json and merges.txt. Ids are those of the
 * transformers class that the config names (GPT-2, Qwen 2; GPT-2 where it names none). */
TG_MUST_USE tg_status tg_tokenizer_compile_merges(tg_buf *blob, tg_str vocab, tg_str merges,
                                                  const tg_tokenizer_texts *texts, tg_err *e);

/* A yes-or-no key of a file that may be absent. */
typedef enum tg_given { TG_GIVEN_ABSENT = 0, TG_GIVEN_FALSE, TG_GIVEN_TRUE } tg_given;

enum { TG_TOKEN_NONE = -1 }; /* no such id */

/* What GGUF metadata says under tokenizer.ggml.*; everything is borrowed until the call returns.
 * The ids must be set: TG_TOKEN_NONE where the key is absent, so {0} is not a valid value. */
typedef struct tg_gguf_vocab {
    tg_str model;         /* tokenizer.ggml.model */
    tg_str pre;           /* tokenizer.ggml.pre; empty: absent */
    const tg_str *tokens; /* [n_tokens] */
    const float *scores;  /* [n_tokens] or NULL */
    const int32_t *types; /* [n_tokens] or NULL: all normal */
    const tg_str *merges; /* [n_merges] "left right" */
    int32_t n_tokens, n_merges;
    int64_t bos_id, eos_id, unk_id, pad_id; /* as in the file: checked against n_tokens */
    int64_t cls_id, sep_id;                 /* of model "bert" only */
    tg_given add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
    tg_given lowercase, strip_accents; /* tokenizer.ggml.normalizer.* */
    tg_str charsmap;                   /* tokenizer.ggml.precompiled_charsmap; empty: absent */
    tg_str model_name;                 /* general.name: some tokens swallow blanks by it alone */
} tg_gguf_vocab;

TG_MUST_USE tg_status tg_tokenizer_compile_gguf(tg_buf *blob, const tg_gguf_vocab *v, tg_err *e);

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
} tg_encode_options;

/* The longest text one call takes. */
enum { TG_ENCODE_MAX_BYTES = (1 << 30) - 1 };

/* Appends the ids of `text`. Invalid UTF-8 is refused with its byte offset; TG_E_UNSUPPORTED is
 * where a model without an unknown token does not know a part of the text. Time and memory are
 * linear in the text but for long words that need a queue (toksplit.h), which adds a logarithm. */
TG_MUST_USE tg_status tg_tokenizer_encode(tg_ids *out, const tg_tokenizer *t, tg_str text,
                                          const tg_encode_options *o, tg_err *e);

/* ---- decoding */

/* Appends the text of ids. Bytes that are not UTF-8 become U+FFFD by the rules of the file's
 * decoder. An id that is no token is an error that names its place. */
TG_MUST_USE tg_status tg_tokenizer_decode(tg_buf *out, const tg_tokenizer *t, const int32_t *ids,
                                          size_t n_ids, bool skip_special, tg_err *e);

/* The same, one id at a time. What comes out is ready to print: whole characters that no later id
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
    uint8_t cleaning[10]; /* how much of each pattern of the clean-up is waiting */
    int64_t n_ids;        /* for messages */
} tg_detok;

void tg_detok_init(tg_detok *d, const tg_tokenizer *t, bool skip_special);
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
    TG_TOKEN_HOLE = 8     /* no token has this id */
} tg_token_flag;

/* What the token prints, borrowed from the blob, and its flags. An id outside the vocabulary gives
 * no bytes and TG_TOKEN_HOLE. */
tg_str tg_tokenizer_get_token(const tg_tokenizer *t, int32_t id, uint32_t *flags);
/* Appends the token as its file spells it ("Ġthe", "<0x0A>"). */
void tg_tokenizer_print_token(tg_buf *out, const tg_tokenizer *t, int32_t id);
/* The token that the file spells so, or TG_TOKEN_NONE. */
int32_t tg_tokenizer_find_token(const tg_tokenizer *t, tg_str spelling);

/* Added tokens in the order of the file; `i` below the count. */
int32_t tg_tokenizer_n_added(const tg_tokenizer *t);
int32_t tg_tokenizer_added_id(const tg_tokenizer *t, int32_t i);

/* Doubts the compiler had, a sentence each; NULL from the first index that has none. */
const char *tg_tokenizer_find_warning(const tg_tokenizer *t, int32_t i);

#endif
