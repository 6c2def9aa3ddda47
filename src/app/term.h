/* SPDX-License-Identifier: Apache-2.0 term.h - what the program prints: completions on standard
 * output, everything else on standard error.
 *
 * Output is unbuffered: text is seen as soon as it is known. The first failure of a
 * write stays; a reader that went away is no error to talk about, only a reason to stop. */
#ifndef TG_APP_TERM_H
#define TG_APP_TERM_H

#include "base/str.h"

/* How the program ends. A signal gives 128 + its number, as a shell would say it. */
enum { TG_EXIT_OK = 0, TG_EXIT_FAILED = 1, TG_EXIT_USAGE = 2, TG_EXIT_PIPE = 141 };

typedef struct tg_term {
    int fd;
    bool is_terminal;
    bool is_closed; /* the reader went away */
    int error;      /* errno of the first other failure */
} tg_term;

void tg_term_init(tg_term *t, int fd);
/* The bytes as they are. */
void tg_term_write(tg_term *t, tg_str s);
/* Text that a model made: on a terminal control bytes but newline and tab are shown as \xNN, so
 * that no model moves the cursor or renames the window. */
void tg_term_print(tg_term *t, tg_str s);
bool tg_term_is_broken(const tg_term *t);
/* TG_E_IO that names standard output when a write failed; TG_OK when the reader went away. */
TG_MUST_USE tg_status tg_term_check(const tg_term *t, tg_err *e);

/* "trigraph: ..." on standard error; control bytes escaped. */
TG_PRINTF(1, 2) void tg_say(const char *fmt, ...);
/* "trigraph: error: ..." and, when `hint` is not NULL or empty, "hint: ...". */
void tg_say_error(const tg_err *e, const char *hint);

/* What a command returns: says the error of a failed status; knows that a signal was the reason
 * for TG_E_CANCELLED, and keeps quiet about a closed pipe. `out` may be NULL. */
int tg_exit_code(tg_status s, const tg_err *e, const tg_term *out);
/* Says what is wrong with the command line; the hint names the command's help. */
TG_PRINTF(2, 3) int tg_exit_usage(const char *command, const char *fmt, ...);

/* A bar on a terminal's standard error; nothing elsewhere. */
typedef struct tg_progress {
    const char *title;
    int percent; /* as shown */
    bool is_shown;
} tg_progress;

/* The signature of tg_export_options.progress, with a tg_progress as its context. True when a
 * signal asks to stop. */
bool tg_progress_print(void *progress, int64_t done_bytes, int64_t total_bytes);
/* Ends the bar's line, so that something else can be said. */
void tg_progress_end(tg_progress *p);

#endif
