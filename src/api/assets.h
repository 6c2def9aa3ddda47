/* SPDX-License-Identifier: Apache-2.0
 * assets.h - what a checkpoint brings beside its weights: tokenizer, chat template, defaults.
 *
 * Read at export, from either kind of checkpoint, into the files an artifact keeps. */
#ifndef TG_API_ASSETS_H
#define TG_API_ASSETS_H

#include "base/json.h"
#include "format/checkpoint.h"

typedef struct tg_assets {
    tg_buf tokenizer; /* compiled; empty when the checkpoint has none */
    int32_t n_vocab;  /* ids of the tokenizer; 0: none */
    tg_buf chat;      /* text of the default template; empty when the checkpoint has none */
    tg_buf named;     /* further templates by name, as tg_chat_new takes them; empty for none */
    /* {"sampling": {"temperature": ...}, "stop_ids": [...]}: sampling only where the makers ask for
     * it (generation_config.json with do_sample); stop ids are the union of everything that names
     * an end. */
    json_t *defaults;
} tg_assets;

/* Doubts become warnings. */
TG_MUST_USE tg_status tg_assets_read(tg_assets *out, const tg_checkpoint *c, tg_err *e);
/* Only what makes text of messages and ids of text: no defaults, n_vocab is 0, nothing is warned
 * of. */
TG_MUST_USE tg_status tg_assets_read_texts(tg_assets *out, const tg_checkpoint *c, tg_err *e);
/* An end that the model's n_rows ids do not reach would never come: TG_E_CORRUPT. */
TG_MUST_USE tg_status tg_assets_check_stops(const tg_assets *p, const tg_checkpoint *c,
                                            int32_t n_rows, tg_err *e);
void tg_assets_deinit(tg_assets *p);

#endif
