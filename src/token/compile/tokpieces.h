/* SPDX-License-Identifier: Apache-2.0
 * tokpieces.h - vocabularies of SentencePiece's making: pieces with a score and a type.
 *
 * They come in two wrappings, a GGUF file (tokgguf.c) and a tokenizer.model (sentencepiece.c); what
 * they mean is here. A blank is written U+2581, a byte <0x..>; the type of a piece decides what it
 * takes part in, its spelling never does. */
#ifndef TG_TOKEN_TOKPIECES_H
#define TG_TOKEN_TOKPIECES_H

#include "token/compile/tokbuild.h"

/* The same numbers in both wrappings. */
typedef enum tg_piece_type {
    TG_PIECE_NORMAL = 1,
    TG_PIECE_UNKNOWN,
    TG_PIECE_CONTROL,
    TG_PIECE_USER, /* taken whole wherever it stands */
    TG_PIECE_UNUSED,
    TG_PIECE_BYTE
} tg_piece_type;

/* Borrowed. The index of a piece is its id. */
typedef struct tg_tok_pieces {
    const tg_str *texts;  /* [n] */
    const float *scores;  /* [n] or NULL */
    const int32_t *types; /* [n] or NULL: all normal */
    int32_t n;
    const char *type_key, *score_key; /* what the wrapping calls them, for messages */
    uint32_t user_flags;              /* TG_TOK_ADDED_* of user pieces */
    bool keeps_users; /* user pieces are words of the model, not found in the text before it */
} tg_tok_pieces;

extern const tg_str tg_piece_mark; /* U+2581 */
/* A copy in the builder's arena with blanks for marks; ptr NULL when memory is refused. */
tg_str tg_piece_unmark(tg_tok_build *b, tg_str text);

TG_INLINE int32_t tg_tok_piece_type(const tg_tok_pieces *p, int32_t id)
{
    return p->types ? p->types[id] : TG_PIECE_NORMAL;
}

/* Declares every piece; control, unknown and user pieces become added tokens too. Two pieces of one
 * spelling are an error, since only one of them could ever be meant. */
TG_MUST_USE tg_status tg_tok_pieces_declare(tg_tok_build *b, const tg_tok_pieces *p, tg_err *e);

/* What each piece prints, with blanks for marks, and which ones are bytes. *n_bytes receives how
 * many of the 256 there are. The index is made again, without the byte pieces. */
TG_MUST_USE tg_status tg_tok_pieces_mark(tg_tok_build *b, const tg_tok_pieces *p, int *n_bytes,
                                         tg_err *e);

/* After the last token of any kind, since symbols take ids behind them.
 *
 * SentencePiece's BPE: of all neighbours that together are a piece, join those with the best score,
 * the leftmost of equals. Written out as merges it is the same as any other BPE: each way to cut a
 * piece into two pieces is a merge, ranked by the score of the whole. Characters that occur only
 * inside pieces become symbols without an id. */
TG_MUST_USE tg_status tg_tok_pieces_merge(tg_tok_build *b, const tg_tok_pieces *p, tg_err *e);

/* Merges of a vocabulary whose tokens are declared: each cut of each token, between the characters
 * of its spelling, into two tokens. `rank` is by id. */
TG_MUST_USE tg_status tg_tok_build_merge_cuts(tg_tok_build *b, const int32_t *rank, tg_err *e);

#endif
