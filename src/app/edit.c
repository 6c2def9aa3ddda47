/* SPDX-License-Identifier: Apache-2.0
 * edit.c - the line editor: bytes become keys, keys change a line, the line is drawn.
 *
 * No terminal database: the sequences are those of ECMA-48 and xterm, which every terminal of the
 * last decades understands, and only four are sent (return, clear to the end, move right, clear the
 * screen). After each key the visible part is drawn anew; a line is short and a terminal fast.
 *
 * Bytes that arrive together are taken together, so a paste is one drawing and not thousands. */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include "app/edit.h"

#include "app/term.h"
#include "base/mem.h"
#include "base/os.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

enum { HISTORY_LINES = 100, ESCAPE_WAIT_MS = 50 };

/* Keys that are no text; above every code point. */
enum {
    KEY_NONE = 0x200000,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_UP,
    KEY_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_PASTE_BEGIN,
    KEY_PASTE_END,
    KEY_SIGNAL,
    KEY_CLOSED
};

/* One line is edited at a time; the history is of this process and is not written anywhere, since
 * what is said to a model is nobody else's business. */
struct tg_edit {
    int in;
    tg_term out;
    struct termios saved;
    bool is_pasting;
    char typed[256]; /* read and not yet looked at */
    size_t n_typed, n_used;
    tg_buf line;
    size_t at; /* the cursor, in bytes of line */
    tg_buf history[HISTORY_LINES];
    int32_t n_history, shown; /* shown == n_history: the line that is being written */
    tg_buf draft;             /* that line, while an older one is shown */
};

tg_edit *tg_edit_new(int in, int out)
{
    tg_edit *x = TG_NEW(tg_edit);
    if (!x) return NULL;
    x->in = in;
    tg_term_init(&x->out, out);
    return x;
}

void tg_edit_free(tg_edit *x)
{
    if (!x) return;
    for (int32_t i = 0; i < x->n_history; i++)
        tg_buf_deinit(&x->history[i]);
    tg_buf_deinit(&x->line);
    tg_buf_deinit(&x->draft);
    tg_mem_free(x);
}

/* ---- keys */

/* The next byte, or KEY_SIGNAL, KEY_CLOSED; KEY_NONE when wait_ms pass (-1: never). */
static int32_t read_byte(tg_edit *x, int wait_ms)
{
    while (x->n_used == x->n_typed) {
        struct pollfd p = {.fd = x->in, .events = POLLIN};
        if (tg_signal_find()) return KEY_SIGNAL;
        int n = poll(&p, 1, wait_ms);
        if (n == 0) return KEY_NONE;
        if (n < 0 && errno == EINTR) continue;
        ssize_t got = n < 0 ? -1 : read(x->in, x->typed, sizeof x->typed);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return KEY_CLOSED;
        x->n_typed = (size_t)got;
        x->n_used = 0;
    }
    return (unsigned char)x->typed[x->n_used++];
}

/* What follows an escape byte: "[A", "OA", "[3~", "[200~" (ECMA-48 and what xterm made of it). */
static int32_t read_escape(tg_edit *x)
{
    static const struct {
        const char *sequence;
        int32_t key;
    } keys[] = {
        {"A", KEY_UP},           {"B", KEY_DOWN}, {"C", KEY_RIGHT},   {"D", KEY_LEFT},
        {"H", KEY_HOME},         {"F", KEY_END},  {"1~", KEY_HOME},   {"7~", KEY_HOME},
        {"4~", KEY_END},         {"8~", KEY_END}, {"3~", KEY_DELETE}, {"200~", KEY_PASTE_BEGIN},
        {"201~", KEY_PASTE_END},
    };
    char sequence[16] = {0};
    int32_t c = read_byte(x, ESCAPE_WAIT_MS);
    if (c != '[' && c != 'O') return KEY_NONE;
    for (size_t n = 0; n + 1 < sizeof sequence; n++) {
        c = read_byte(x, ESCAPE_WAIT_MS);
        if (c > 0xff) return KEY_NONE;
        sequence[n] = (char)c;
        if (c >= 0x40 && c <= 0x7e) break;
    }
    for (size_t i = 0; i < TG_COUNT(keys); i++)
        if (strcmp(sequence, keys[i].sequence) == 0) return keys[i].key;
    return KEY_NONE;
}

/* A code point, a control byte or a key. Bytes that are not UTF-8 are dropped. */
static int32_t read_key(tg_edit *x)
{
    char bytes[4];
    int32_t c = read_byte(x, -1), code_point;
    if (c == 0x1b) return read_escape(x);
    if (c < 0x80 || c > 0xff) return c;
    bytes[0] = (char)c;
    for (size_t n = 1; n <= 4; n++) {
        if (tg_utf8_decode(bytes, n, &code_point)) return code_point;
        if (n == 4) break;
        c = read_byte(x, ESCAPE_WAIT_MS);
        if (c > 0xff) return KEY_NONE;
        bytes[n] = (char)c;
    }
    return KEY_NONE;
}

/* ---- drawing */

/* Asked for every drawing: the window may have changed. 80 where nobody knows. */
static int32_t find_width(const tg_edit *x)
{
    struct winsize w;
    return ioctl(x->out.fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 10 ? w.ws_col : 80;
}

/* Columns of the character at byte i, and its bytes. A line break is shown as one sign, a tab
 * as one blank. */
static int32_t get_columns(const tg_edit *x, size_t i, int *n_bytes)
{
    int32_t cp;
    *n_bytes = tg_utf8_decode(x->line.ptr + i, x->line.len - i, &cp);
    if (*n_bytes == 0) *n_bytes = 1;
    return cp == '\n' || cp == '\t' ? 1 : utf8proc_charwidth(cp);
}

/* Neighbouring characters, by bytes: a continuation byte is never a place for the cursor. */
static size_t find_previous(const tg_edit *x, size_t at)
{
    if (at == 0) return 0;
    do
        at--;
    while (at > 0 && ((unsigned char)x->line.ptr[at] & 0xc0) == 0x80);
    return at;
}

static size_t find_next(const tg_edit *x, size_t at)
{
    int n = 0;
    if (at < x->line.len) get_columns(x, at, &n);
    return at + (size_t)n;
}

/* The part of the line around the cursor that fits, and the cursor in its place. */
static void draw(tg_edit *x, const char *prompt)
{
    int32_t room = find_width(x) - (int32_t)strlen(prompt) - 1, cursor = 0, used = 0;
    size_t from = x->at;
    tg_buf b = {0};
    int n;
    while (from > 0) {
        size_t previous = find_previous(x, from);
        int32_t columns = get_columns(x, previous, &n);
        if (cursor + columns > room) break;
        cursor += columns;
        from = previous;
    }
    tg_buf_printf(&b, "\r%s", prompt);
    for (size_t i = from; i < x->line.len; i += (size_t)n) {
        int32_t columns = get_columns(x, i, &n);
        if (used + columns > room) break;
        used += columns;
        if (x->line.ptr[i] == '\n')
            tg_buf_add_cstr(&b, "\xe2\x86\xb5");
        else if (x->line.ptr[i] == '\t')
            tg_buf_add_byte(&b, ' ');
        else
            tg_buf_add_escaped(&b, (tg_str){x->line.ptr + i, (size_t)n});
    }
    tg_buf_add_cstr(&b, "\033[K\r");
    if (cursor + (int32_t)strlen(prompt) > 0)
        tg_buf_printf(&b, "\033[%dC", (int)(cursor + (int32_t)strlen(prompt)));
    tg_term_write(&x->out, tg_buf_str(&b));
    tg_buf_deinit(&b);
}

/* ---- editing */

/* The cursor ends where the removed part began. */
static void remove_bytes(tg_edit *x, size_t from, size_t to)
{
    if (from == to) return;
    memmove(x->line.ptr + from, x->line.ptr + to, x->line.len - to + 1);
    x->line.len -= to - from;
    x->at = from;
}

/* Grows at the end first, so that a refused allocation leaves the line as it was. */
static void insert(tg_edit *x, int32_t code_point)
{
    char bytes[4];
    size_t n = (size_t)tg_utf8_encode(code_point, bytes), old = x->line.len;
    tg_buf_add(&x->line, bytes, n);
    if (n == 0 || x->line.len == old) return; /* memory was refused: the key does nothing */
    memmove(x->line.ptr + x->at + n, x->line.ptr + x->at, old - x->at);
    memcpy(x->line.ptr + x->at, bytes, n);
    x->at += n;
}

/* The unfinished line is the newest entry while one walks, and comes back at the end. */
static void show_history(tg_edit *x, int32_t which)
{
    if (which < 0 || which > x->n_history) return;
    if (x->shown == x->n_history) {
        tg_buf_clear(&x->draft);
        tg_buf_add_str(&x->draft, tg_buf_str(&x->line));
    }
    tg_buf_clear(&x->line);
    tg_buf_add_str(&x->line, tg_buf_str(which == x->n_history ? &x->draft : &x->history[which]));
    x->shown = which;
    x->at = x->line.len;
}

/* The same line twice in a row is kept once; the oldest makes room. */
static void keep_history(tg_edit *x)
{
    tg_str line = tg_buf_str(&x->line);
    if (!line.len) return;
    if (x->n_history && tg_str_is_equal(line, tg_buf_str(&x->history[x->n_history - 1]))) return;
    if (x->n_history == HISTORY_LINES) {
        tg_buf_deinit(&x->history[0]);
        memmove(x->history, x->history + 1, (HISTORY_LINES - 1) * sizeof x->history[0]);
        x->history[--x->n_history] = (tg_buf){0};
    }
    tg_buf_add_str(&x->history[x->n_history++], line);
}

/* Where the word before the cursor begins, blanks after it included: what ctrl-W deletes. */
static size_t find_word(const tg_edit *x)
{
    size_t at = x->at;
    while (at > 0 && x->line.ptr[at - 1] == ' ')
        at--;
    while (at > 0 && x->line.ptr[at - 1] != ' ')
        at--;
    return at;
}

enum { CTRL = 0x1f }; /* 'A' & CTRL is what ctrl-A sends */

/* What a key does to the line. Unknown controls do nothing: they must not reach the model. */
static void apply_key(tg_edit *x, int32_t key)
{
    switch (key) {
    case KEY_LEFT:
    case 'B' & CTRL: x->at = find_previous(x, x->at); break;
    case KEY_RIGHT:
    case 'F' & CTRL: x->at = find_next(x, x->at); break;
    case KEY_HOME:
    case 'A' & CTRL: x->at = 0; break;
    case KEY_END:
    case 'E' & CTRL: x->at = x->line.len; break;
    case KEY_UP:
    case 'P' & CTRL: show_history(x, x->shown - 1); break;
    case KEY_DOWN:
    case 'N' & CTRL: show_history(x, x->shown + 1); break;
    case 0x7f:
    case 'H' & CTRL: remove_bytes(x, find_previous(x, x->at), x->at); break;
    case 'D' & CTRL:
    case KEY_DELETE: remove_bytes(x, x->at, find_next(x, x->at)); break;
    case 'K' & CTRL: remove_bytes(x, x->at, x->line.len); break;
    case 'U' & CTRL: remove_bytes(x, 0, x->at); break;
    case 'W' & CTRL: remove_bytes(x, find_word(x), x->at); break;
    case 'L' & CTRL: tg_term_write(&x->out, TG_STR("\033[H\033[2J")); break;
    case KEY_PASTE_BEGIN: x->is_pasting = true; break;
    case KEY_PASTE_END: x->is_pasting = false; break;
    default:
        if (key < KEY_NONE && (key >= 0x20 || key == '\n' || key == '\t')) insert(x, key);
    }
}

/* Keys until the line is done. ctrl-D means the end only on an empty line, as in a shell. */
static tg_line edit(tg_edit *x, const char *prompt)
{
    for (;;) {
        /* Not while more is waiting: a paste is drawn once. */
        if (x->n_used == x->n_typed) draw(x, prompt);
        int32_t key = read_key(x);
        if (key == KEY_SIGNAL) return TG_LINE_INTERRUPTED;
        if (key == KEY_CLOSED) return x->line.len ? TG_LINE_READ : TG_LINE_END;
        if (key == ('D' & CTRL) && !x->line.len) return TG_LINE_END;
        if (key == '\r') key = '\n';
        if (key == '\n' && !x->is_pasting) return TG_LINE_READ;
        apply_key(x, key);
    }
}

/* Whatever happens in between, the terminal is given back as it was found. */
tg_line tg_edit_read(tg_edit *x, const char *prompt, tg_buf *line)
{
    struct termios raw;
    if (tcgetattr(x->in, &x->saved) != 0) return TG_LINE_END;
    raw = x->saved;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ISIG stays: ctrl-C is a signal */
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(x->in, TCSADRAIN, &raw);
    tg_term_write(&x->out, TG_STR("\033[?2004h")); /* pasted text comes in brackets */

    tg_buf_clear(&x->line);
    x->at = 0;
    x->shown = x->n_history;
    x->is_pasting = false;
    tg_line how = edit(x, prompt);
    if (how == TG_LINE_READ) {
        x->at = x->line.len;
        draw(x, prompt);
        keep_history(x);
        tg_buf_add_str(line, tg_buf_str(&x->line));
    }
    tg_term_write(&x->out, TG_STR("\033[?2004l\r\n"));
    tcsetattr(x->in, TCSADRAIN, &x->saved);
    return how;
}
