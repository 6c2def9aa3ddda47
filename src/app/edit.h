/* SPDX-License-Identifier: Apache-2.0
 * edit.h - one line typed at a terminal, edited with libedit.
 *
 * Keys and history are libedit's in its emacs mode. Added here: pasted text arrives as it is, line
 * breaks included, and control keys that edit nothing do nothing. The terminal is in raw mode only
 * while a line is read, so ctrl-C is a signal to the program at any time. */
#ifndef TG_APP_EDIT_H
#define TG_APP_EDIT_H

#include "base/str.h"

typedef enum tg_line_end { TG_LINE_READ, TG_LINE_END, TG_LINE_INTERRUPTED } tg_line_end;

typedef struct tg_edit tg_edit;

/* NULL when memory is refused. Reads standard input and draws on standard error. */
tg_edit *tg_edit_new(void);
void tg_edit_free(tg_edit *x); /* accepts NULL */

/* Appends a line without its end to `line`. INTERRUPTED: a signal came, and is still to be
 * taken. */
tg_line_end tg_edit_read(tg_edit *x, const char *prompt, tg_buf *line);

#endif
