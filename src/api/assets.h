/* SPDX-License-Identifier: Apache-2.0
 * assets.h - the files beside a checkpoint's weights: tokenizer, chat template, defaults.
 *
 * Read at export, from either kind of checkpoint, into the files an artifact keeps. */
#ifndef TG_API_ASSETS_H
#define TG_API_ASSETS_H

#include "base/json.h"
#include "format/checkpoint.h"
#include "token/run/tok.h"

typedef struct tg_assets {
    tg_buf tokenizer;  /* compiled; empty when the checkpoint has none */
    int32_t n_vocab;   /* ids of the tokenizer; 0: none */
    int32_t n_plain;   /* the largest id that plain text can become, and one */
    int32_t n_sampled; /* ids up to the last that is no padding: none beyond is drawn */
    tg_ids unused;     /* ids below n_sampled that stand for nothing, ascending: none is drawn */
    tg_buf chat;       /* text of the default template; empty when the checkpoint has none */
    tg_buf named;      /* further templates by name, as tg_chat_new takes them; empty for none */
    /* {"sampling": {"temperature": ...}, "stop_ids": [...]}: sampling only where
     * generation_config.json asks for it (do_sample), its values in the ranges of a request; stop
     * ids are the union of everything that names an end. */
    json_t *defaults;
    json_t *stop_sources; /* for each stop id the key that named it */
} tg_assets;

/* Doubts become warnings. */
TG_MUST_USE tg_status tg_assets_read(tg_assets *out, const tg_checkpoint *c, tg_err *e);
/* Only the chat templates and the tokenizer: no defaults, n_vocab is 0, and no warnings. */
TG_MUST_USE tg_status tg_assets_read_texts(tg_assets *out, const tg_checkpoint *c, tg_err *e);
/* Every id that ends a completion or that plain text becomes is one of the model's n_vocab: others
 * would never come, or could not be read. TG_E_CORRUPT names the key. Before the vocabulary is
 * limited to the tokenizer's. */
TG_MUST_USE tg_status tg_assets_check_ids(const tg_assets *p, const tg_checkpoint *c,
                                          int32_t n_vocab, tg_err *e);
void tg_assets_deinit(tg_assets *p);

#endif
