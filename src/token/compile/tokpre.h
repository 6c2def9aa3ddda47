/* SPDX-License-Identifier: Apache-2.0
 * tokpre.h - ways to cut words, by the names that llama.cpp gives them.
 *
 * A vocabulary without a tokenizer.json, GGUF metadata or a tiktoken file, does not say how words
 * are cut; its maker's code does. A row says it for each name. */
#ifndef TG_TOKEN_TOKPRE_H
#define TG_TOKEN_TOKPRE_H

#include "token/compile/tokbuild.h"

typedef struct tg_tok_pre {
    const char *name;
    const char *patterns[6]; /* each cuts the parts that the one before left */
    bool ignores_merges;     /* a word that is a token is that token */
    bool adds_bos;           /* where the file does not say */
    bool has_nfc;            /* the text is normalized first */
    bool is_marked;          /* U+2581 for blanks and bytes as <0x..>; no byte alphabet */
    const char *lstrip;      /* a token that swallows the blanks before it, or NULL */
} tg_tok_pre;

/* `key` is what the file calls it, for the message. A name without a row is refused, since a near
 * miss gives ids that are slightly wrong and no error at all. */
TG_MUST_USE tg_status tg_tok_pre_find(const tg_tok_pre **out, tg_str name, const char *key,
                                      tg_err *e);

/* The splitting steps of a row. */
TG_MUST_USE tg_status tg_tok_pre_add_splits(tg_tok_build *b, const tg_tok_pre *p, tg_err *e);

#endif
