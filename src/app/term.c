/* SPDX-License-Identifier: Apache-2.0
 * term.c - what the program prints.
 *
 * Two streams with two rules. Standard output carries completions and is a contract: bytes in
 * order, nothing added, the first failure remembered. Standard error carries sentences to a person:
 * one write for a line, so that lines of the exporting child and of this process do not mix, and no
 * failure matters. No stdio on either: its buffers would hold text back.
 *
 * Whatever came out of a file (a name of a tensor, a word of a prompt) is escaped before it is
 * shown, since a message may quote bytes from an untrusted file. */
#include "app/term.h"

#include "base/number.h"
#include "base/os.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tg_term_init(tg_term *t, int fd)
{
    *t = (tg_term){.fd = fd, .is_terminal = isatty(fd)};
}

bool tg_term_is_broken(const tg_term *t)
{
    return t->is_closed || t->error;
}

void tg_term_write(tg_term *t, tg_str s)
{
    while (s.len > 0 && !tg_term_is_broken(t)) {
        ssize_t n = write(t->fd, s.ptr, s.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            t->is_closed = errno == EPIPE;
            t->error = errno == EPIPE ? 0 : errno;
            return;
        }
        s.ptr += n;
        s.len -= (size_t)n;
    }
}

/* Everything escaped but the two controls that text is made of. */
static void add_printable(tg_buf *out, tg_str s)
{
    size_t start = 0;
    for (size_t i = 0; i <= s.len; i++) {
        if (i < s.len && s.ptr[i] != '\n' && s.ptr[i] != '\t') continue;
        tg_buf_add_escaped(out, (tg_str){s.ptr + start, i - start});
        if (i < s.len) tg_buf_add_byte(out, s.ptr[i]);
        start = i + 1;
    }
}

void tg_term_print(tg_term *t, tg_str s)
{
    if (!t->is_terminal) {
        tg_term_write(t, s);
        return;
    }
    tg_buf shown = {0};
    add_printable(&shown, s);
    tg_term_write(t, tg_buf_str(&shown));
    tg_buf_deinit(&shown);
}

tg_status tg_term_check(const tg_term *t, tg_err *e)
{
    if (!t->error) return TG_OK;
    return tg_fail(e, TG_E_IO, "standard output: cannot write: %s", strerror(t->error));
}

/* ---- standard error: one write a line, so that lines of several processes do not mix */

/* Escaping needs memory. When there is none, which may be what is to be said, bytes that could
 * steer a terminal become question marks. */
static void say_without_memory(tg_term *err, const char *head, const char *text)
{
    char line[1200];
    int n = snprintf(line, sizeof line, "%s%s", head, text);
    size_t len = n < 0 ? 0 : TG_MIN((size_t)n, sizeof line - 1);
    for (size_t i = strlen(head); i < len; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) line[i] = '?';
    line[len] = '\n';
    tg_term_write(err, (tg_str){line, len + 1});
}

static void say_line(const char *head, const char *text)
{
    tg_buf line = {0};
    tg_term err;
    tg_term_init(&err, STDERR_FILENO);
    tg_buf_add_cstr(&line, head);
    add_printable(&line, tg_str_from_cstr(text));
    tg_buf_add_byte(&line, '\n');
    if (line.is_failed)
        say_without_memory(&err, head, text);
    else
        tg_term_write(&err, tg_buf_str(&line));
    tg_buf_deinit(&line);
}

void tg_say(const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)tg_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    say_line("trigraph: ", text);
}

/* Color only on a terminal and without NO_COLOR (no-color.org). */
void tg_say_error(const tg_err *e, const char *hint)
{
    bool has_color = isatty(STDERR_FILENO) && !tg_env_get(TG_ENV_NO_COLOR);
    say_line(has_color ? "trigraph: \033[1;31merror:\033[0m " : "trigraph: error: ", e->msg);
    if (hint && *hint) say_line("hint: ", hint);
}

/* In order of importance: a signal explains a cancellation; a closed pipe explains everything
 * after it; a failed write on the way out is the error even when the work itself went well. */
int tg_exit_code(tg_status s, const tg_err *e, const tg_term *out)
{
    tg_err of_output = {0};
    int number = tg_signal_find();
    if (number && (s == TG_E_CANCELLED || s == TG_OK)) {
        tg_say("interrupted");
        return 128 + number;
    }
    if (out && out->is_closed) return TG_EXIT_PIPE;
    if (out && (s == TG_OK || s == TG_E_CANCELLED) && tg_term_check(out, &of_output) != TG_OK) {
        tg_say_error(&of_output, NULL);
        return TG_EXIT_FAILED;
    }
    if (s == TG_OK) return TG_EXIT_OK;
    tg_say_error(e, NULL);
    return TG_EXIT_FAILED;
}

int tg_exit_usage(const char *command, const char *fmt, ...)
{
    tg_err e = {.status = TG_E_ARGUMENT};
    char hint[64];
    va_list ap;
    va_start(ap, fmt);
    (void)tg_vprint(e.msg, sizeof e.msg, fmt, ap);
    va_end(ap);
    (void)snprintf(hint, sizeof hint, "trigraph %s --help lists the options", command);
    tg_say_error(&e, hint);
    return TG_EXIT_USAGE;
}

/* ---- progress */

enum { BAR_WIDTH = 40 };

/* Drawn when the percentage changes: at most a hundred times, whatever the caller's pace. */
bool tg_progress_print(void *progress, int64_t done_bytes, int64_t total_bytes)
{
    tg_progress *p = progress;
    char line[160], bar[BAR_WIDTH + 1];
    double part = total_bytes > 0 ? (double)done_bytes / (double)total_bytes : 0;
    int percent = (int)(100 * part), n;
    if (tg_signal_find()) return true;
    if (!isatty(STDERR_FILENO) || (p->is_shown && percent == p->percent)) return false;
    p->percent = percent;
    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < (int)(part * BAR_WIDTH) ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    n = tg_print(line, sizeof line, "\r%s [%s] %3d%% of %.1f MiB ", p->title, bar, percent,
                 (double)total_bytes / 1048576);
    p->is_shown = write(STDERR_FILENO, line, (size_t)n) == n;
    return false;
}

void tg_progress_end(tg_progress *p)
{
    if (p->is_shown) p->is_shown = write(STDERR_FILENO, "\n", 1) != 1;
}
