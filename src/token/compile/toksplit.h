/* SPDX-License-Identifier: Apache-2.0
 * toksplit.h - finds the splits of a vocabulary's tokens (run/neighbors.h says what they are). */
#ifndef TG_TOKEN_TOKSPLIT_H
#define TG_TOKEN_TOKSPLIT_H

#include "token/compile/tokbuild.h"

/* The splits [n_entries] of a vocabulary whose slots are given, without `shorter`. *is_done is
 * false where the vocabulary has none. */
TG_MUST_USE tg_status tg_tok_split_all(tg_tok_build *b, const tg_tok_slot *slots, uint32_t mask,
                                       tg_tok_split *splits, bool *is_done, tg_err *e);

/* Append the sections BIGRAMS and EARLY. */
TG_MUST_USE tg_status tg_tok_split_add_bigrams(tg_buf *out, const tg_tok_build *b,
                                               const tg_tok_split *splits, tg_err *e);
TG_MUST_USE tg_status tg_tok_split_add_early(tg_buf *out, const tg_tok_build *b,
                                             const tg_tok_split *splits, tg_err *e);

#endif
