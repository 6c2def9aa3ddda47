/* SPDX-License-Identifier: Apache-2.0
 * edit.h - one line from a person at a terminal, with the keys a shell has taught.
 *
 * Arrows, Home, End, Delete, ctrl-A E B F K U W L, the lines of before with up and down, and pasted
 * text as it is, its line breaks too. A long line scrolls sideways. The terminal is in raw mode
 * only while a line is read, so ctrl-C is a signal to the program at any other time. */
#ifndef TG_APP_EDIT_H
#define TG_APP_EDIT_H

#include "base/str.h"

typedef enum tg_line { TG_LINE_READ, TG_LINE_END, TG_LINE_INTERRUPTED } tg_line;

typedef struct tg_edit tg_edit;

/* NULL when memory is refused. Keys come from `in`, drawing goes to `out`. */
tg_edit *tg_edit_new(int in, int out);
void tg_edit_free(tg_edit *x); /* accepts NULL */

/* Appends a line without its end to `line`. INTERRUPTED: a signal came, and is still to be
 * taken. */
tg_line tg_edit_read(tg_edit *x, const char *prompt, tg_buf *line);

#endif
