/* SPDX-License-Identifier: Apache-2.0
 * session.h - a MODEL of the command line, opened: found or exported, mapped, and given an engine.
 *
 * Finding runs in a child process, because it may export: so the memory this process reports is
 * that of running the model, and a compiler's heap is gone before the first token. */
#ifndef TG_APP_SESSION_H
#define TG_APP_SESSION_H

#include "app/options.h"
#include "trigraph.h"

typedef struct tg_session {
    tg_buf dir; /* the artifact's folder */
    tg_model *model;
    tg_model_info info;
    const tg_text *text; /* of the model */
    tg_text_info text_info;
    tg_engine *engine; /* NULL where a command needs none */
    double load_ms;    /* tg_model_open and tg_engine_open */
} tg_session;

/* The artifact of `source`, in `dir` (cleared first). */
TG_MUST_USE tg_status tg_session_find(tg_buf *dir, const char *source, tg_err *e);
/* Opens the artifact at s->dir, timed. `args` gives --threads; NULL opens no engine. */
TG_MUST_USE tg_status tg_session_load(tg_session *s, const tg_args *args, tg_err *e);
/* Both, of the command's operand. */
TG_MUST_USE tg_status tg_session_open(tg_session *s, const tg_args *args, bool has_engine,
                                      tg_err *e);
/* Closes model and engine; the folder stays known, so that tg_session_load may follow. */
void tg_session_unload(tg_session *s);
void tg_session_close(tg_session *s);

#endif
