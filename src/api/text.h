/* SPDX-License-Identifier: Apache-2.0
 * text.h - inside of a tg_text, for the files that open and use one: text.c, loaded.c, engine.c. */
#ifndef TG_API_TEXT_H
#define TG_API_TEXT_H

#include "base/str.h"
#include "chat/chat.h"
#include "ir/artifact.h"
#include "token/run/tok.h"
#include "trigraph.h"

/* Everything is borrowed from the artifact or the assets that it was opened from, except what is
 * parsed here. */
struct tg_text {
    const char *path;        /* what messages name */
    tg_str blob;             /* empty: none */
    tg_tokenizer *tokenizer; /* NULL: none */
    tg_chat *chat;           /* possibly without a template */
};

/* Storage of the caller's; the artifact is borrowed until deinit, which accepts what a failed
 * init left. */
TG_MUST_USE tg_status tg_text_init(tg_text *t, const tg_artifact *a, tg_err *e);
void tg_text_deinit(tg_text *t);

/* The chat templates of an artifact, none of them parsed yet. */
TG_MUST_USE tg_status tg_artifact_open_chat(tg_chat **out, const tg_artifact *a, tg_err *e);

/* Copies a string into memory that tg_free takes. */
TG_MUST_USE tg_status tg_give_text(char **out, tg_str text, tg_err *e);

#endif
