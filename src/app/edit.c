/* SPDX-License-Identifier: Apache-2.0
 * edit.c - libedit, with what it lacks: signals that end a line, and pastes with line breaks.
 *
 * Bytes are read here and not by libedit, for two reasons: its own reader takes the first signal
 * for a hiccup and reads on, and its decoder stops at bytes that are not UTF-8 where we drop them.
 * EL_SIGNAL stays off: it would hand a signal on to the whole process group. */
#include "app/edit.h"

#include "base/mem.h"
#include "base/os.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HISTORY_LINES = 100, SIGNAL_WAIT_MS = 500 };

/* The history is of this process and is not written to a file, since what is said to a model is
 * private. */
struct tg_edit {
    EditLine *el;
    HistoryW *history;
    FILE *out;
    const char *prompt;
    char typed[256]; /* read and not yet looked at */
    size_t n_typed, n_used;
    tg_line_end end; /* why the last read ended; READ while nothing did */
    tg_buf pasted;   /* wchar_t, zero-terminated */
};

static tg_edit *get_edit(EditLine *el)
{
    void *x = NULL;
    (void)el_wget(el, EL_CLIENTDATA, &x);
    return x;
}

/* ---- reading */

/* True when a byte is there; else `end` says why not. Waits in slices: a signal that comes between
 * the question and poll() would be seen only at the next key. */
static bool wait_for_byte(tg_edit *x)
{
    while (x->n_used == x->n_typed) {
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        x->end = TG_LINE_INTERRUPTED;
        if (tg_signal_find()) return false;
        int n = poll(&p, 1, SIGNAL_WAIT_MS);
        if (n == 0 || (n < 0 && errno == EINTR)) continue;
        ssize_t got = n < 0 ? -1 : read(STDIN_FILENO, x->typed, sizeof x->typed);
        if (got < 0 && errno == EINTR) continue;
        x->end = TG_LINE_END;
        if (got <= 0) return false;
        x->n_typed = (size_t)got;
        x->n_used = 0;
    }
    x->end = TG_LINE_READ;
    return true;
}

/* libedit's el_rfunc_t: the next character of well-formed UTF-8, 1; or -1. The window's size is
 * asked for before each wait, because SIGWINCH is not ours to catch. */
static int read_character(EditLine *el, wchar_t *out)
{
    tg_edit *x = get_edit(el);
    char bytes[4];
    size_t n = 0;
    el_resize(el);
    while (wait_for_byte(x)) {
        int32_t code_point;
        if (((unsigned char)x->typed[x->n_used] & 0xc0) != 0x80 || n == sizeof bytes) n = 0;
        bytes[n++] = x->typed[x->n_used++];
        if (!tg_utf8_decode(bytes, n, &code_point)) continue;
        *out = code_point;
        return 1;
    }
    return -1;
}

static void add_character(tg_buf *b, wchar_t c)
{
    tg_buf_add(b, &c, sizeof c);
}

/* Between "\033[200~", which called this, and "\033[201~": text as it is, drawn once. Controls but
 * newline and tab are dropped; they must not reach the model. */
static unsigned char insert_paste(EditLine *el, wint_t key)
{
    static const wchar_t ending[] = L"\033[201~";
    tg_edit *x = get_edit(el);
    size_t matched = 0;
    wchar_t c;
    (void)key;
    tg_buf_clear(&x->pasted);
    while (ending[matched]) {
        if (el_wgetc(el, &c) != 1) return CC_EOF;
        matched = c == ending[matched] ? matched + 1 : c == ending[0];
        if (matched) continue;
        if (c == '\r') c = '\n';
        if (c >= ' ' ? c != 0x7f : c == '\n' || c == '\t') add_character(&x->pasted, c);
    }
    add_character(&x->pasted, 0);
    if (x->pasted.is_failed || x->pasted.len == sizeof c) return CC_NORM;
    return el_winsertstr(el, (const wchar_t *)(const void *)x->pasted.ptr) == 0 ? CC_REFRESH
                                                                                : CC_ERROR;
}

/* ---- opening */

static wchar_t *get_prompt(EditLine *el)
{
    static wchar_t characters[16];
    const char *prompt = get_edit(el)->prompt;
    size_t n = 0;
    for (; prompt[n] && n + 1 < TG_COUNT(characters); n++)
        characters[n] = (unsigned char)prompt[n];
    characters[n] = 0;
    return characters;
}

/* Beyond libedit's own keys: what a shell does with ctrl-U and ctrl-W, the keys that terminals send
 * whatever their terminfo entry says, and no way to type a control byte. */
static void bind_keys(EditLine *el)
{
    static const wchar_t *const keys[][2] = {
        {L"^U", L"vi-kill-line-prev"},
        {L"^W", L"ed-delete-prev-word"},
        {L"^V", L"ed-unassigned"},
        {L"^Q", L"ed-unassigned"},
        {L"^I", L"ed-insert"},
        {L"\033[3~", L"ed-delete-next-char"},
        {L"\033[1~", L"ed-move-to-beg"},
        {L"\033[7~", L"ed-move-to-beg"},
        {L"\033[4~", L"ed-move-to-end"},
        {L"\033[8~", L"ed-move-to-end"},
        {L"\033[200~", L"trigraph-insert-paste"},
    };
    for (size_t i = 0; i < TG_COUNT(keys); i++)
        (void)el_wset(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static bool init(tg_edit *x)
{
    HistEventW event;
    int fd = dup(STDERR_FILENO);
    x->out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!x->out && fd >= 0) (void)close(fd);
    if (!x->out) return false;
    x->el = el_init("trigraph", stdin, x->out, x->out);
    x->history = history_winit();
    if (!x->el || !x->history) return false;
    (void)history_w(x->history, &event, H_SETSIZE, HISTORY_LINES);
    (void)history_w(x->history, &event, H_SETUNIQUE, 1);
    (void)el_wset(x->el, EL_CLIENTDATA, x);
    (void)el_wset(x->el, EL_EDITOR, L"emacs");
    (void)el_wset(x->el, EL_SIGNAL, 0);
    (void)el_wset(x->el, EL_GETCFN, read_character);
    (void)el_wset(x->el, EL_PROMPT, get_prompt);
    (void)el_wset(x->el, EL_HIST, history_w, x->history);
    (void)el_wset(x->el, EL_ADDFN, L"trigraph-insert-paste", L"Insert pasted text", insert_paste);
    bind_keys(x->el);
    return true;
}

/* Text is UTF-8 whatever the user's locale: of a locale libedit takes only how wide a
 * character is. Nothing but the classes of characters is set, so numbers stay as they were. */
tg_edit *tg_edit_new(void)
{
    tg_edit *x = TG_NEW(tg_edit);
    if (!x) return NULL;
    if (!setlocale(LC_CTYPE, "C.UTF-8")) (void)setlocale(LC_CTYPE, "");
    if (init(x)) return x;
    tg_edit_free(x);
    return NULL;
}

void tg_edit_free(tg_edit *x)
{
    if (!x) return;
    if (x->el) el_end(x->el);
    if (x->history) history_wend(x->history);
    if (x->out) (void)fclose(x->out);
    tg_buf_deinit(&x->pasted);
    tg_mem_free(x);
}

/* ---- a line */

/* Bracketed paste is on only while a line is read. */
tg_line_end tg_edit_read(tg_edit *x, const char *prompt, tg_buf *line)
{
    HistEventW event;
    int n = 0;
    x->prompt = prompt;
    /* Before the prompt: a ctrl-D typed between prompt and raw mode would become a NUL. */
    (void)el_wset(x->el, EL_PREP_TERM, 1);
    (void)fputs("\033[?2004h", x->out);
    const wchar_t *characters = el_wgets(x->el, &n);
    bool is_read = characters && n > 0;
    (void)fputs(is_read ? "\033[?2004l" : "\033[?2004l\r\n", x->out);
    (void)fflush(x->out);
    if (!is_read) return x->end == TG_LINE_READ ? TG_LINE_END : x->end; /* READ: ctrl-D */
    if (characters[n - 1] == '\n') n--;
    for (int i = 0; i < n; i++)
        tg_buf_add_utf8(line, characters[i]);
    if (n > 0) (void)history_w(x->history, &event, H_ENTER, characters);
    return TG_LINE_READ;
}
