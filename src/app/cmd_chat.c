/* SPDX-License-Identifier: Apache-2.0
 * cmd_chat.c - a conversation.
 *
 * The history is the list of messages; each turn renders all of it, and the engine finds the pages
 * of the part it has computed. Standard output gets completions only, prompts and remarks go to
 * standard error, so that a conversation can be scripted through a pipe. */
#include "app/command.h"
#include "app/completion.h"
#include "app/edit.h"
#include "base/file.h"
#include "base/os.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Everything of one conversation. Borrows `args`; owns the rest. */
typedef struct tg_chat {
    const tg_args *args;
    tg_session session;
    tg_request_options options;
    tg_term out;
    bool has_stats, is_over;
    tg_buf system;   /* the system message; may be empty */
    tg_buf messages; /* as tg_prompt_render takes them */
    size_t
        n_before_completion; /* bytes of messages up to the last completion; 0: nothing to repeat */
    int32_t n_tokens;        /* prompt and completion of the last turn */
    tg_edit *edit;           /* on a terminal; NULL elsewhere */
    tg_buf pending;          /* read from a pipe, and not yet a line */
} tg_chat;

/* The next line of standard input without its newline, appended to `line`. */
static tg_line_end read_line(tg_chat *c, tg_buf *line, const char *prompt)
{
    char block[4096];
    if (c->edit) return tg_edit_read(c->edit, prompt, line);
    for (;;) {
        char *end = c->pending.len ? memchr(c->pending.ptr, '\n', c->pending.len) : NULL;
        if (end) {
            size_t n = (size_t)(end - c->pending.ptr), rest = c->pending.len - n - 1;
            tg_buf_add(line, c->pending.ptr, n);
            memmove(c->pending.ptr, end + 1, rest);
            c->pending.len = rest;
            return TG_LINE_READ;
        }
        if (tg_signal_find()) return TG_LINE_INTERRUPTED;
        ssize_t n = read(STDIN_FILENO, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n > 0) {
            tg_buf_add(&c->pending, block, (size_t)n);
            continue;
        }
        if (!c->pending.len) return TG_LINE_END;
        tg_buf_add_byte(&c->pending, '\n'); /* the last line had none */
    }
}

/* A message: one line, lines that end in a backslash and the one after them, or everything
 * between two lines of """. */
static tg_line_end read_message(tg_chat *c, tg_buf *message)
{
    static const char *const fence = "\"\"\"";
    tg_line_end how = read_line(c, message, "> ");
    if (how != TG_LINE_READ) return how;
    if (strncmp(tg_buf_cstr(message), fence, 3) != 0) {
        while (message->len && message->ptr[message->len - 1] == '\\') {
            message->ptr[message->len - 1] = '\n';
            how = read_line(c, message, ". ");
            if (how != TG_LINE_READ) return how;
        }
        return TG_LINE_READ;
    }
    memmove(message->ptr, message->ptr + 3, message->len - 2);
    message->len -= 3;
    for (;;) {
        tg_str all = tg_buf_str(message);
        if (tg_str_has_suffix(all, TG_STR("\"\"\""))) {
            message->len -= 3;
            message->ptr[message->len] = 0;
            return TG_LINE_READ;
        }
        if (message->len) tg_buf_add_byte(message, '\n');
        how = read_line(c, message, ". ");
        if (how != TG_LINE_READ) return how;
    }
}

/* Back to the system message, if there is one. The engine keeps its pages; a conversation that
 * begins the same way finds them. */
static void clear_history(tg_chat *c)
{
    tg_buf_clear(&c->messages);
    c->n_before_completion = 0;
    c->n_tokens = 0;
    if (c->system.len) tg_prompt_add_message(&c->messages, "system", tg_buf_str(&c->system));
}

/* Completes the messages as they stand, and adds the completion to them. A failure, such as a
 * conversation that became too long, is reported and leaves the history for the caller to
 * restore. */
static bool complete(tg_chat *c)
{
    tg_tokens prompt = {0};
    tg_completion x = {.out = &c->out};
    tg_err e = {0};
    size_t before = c->messages.len;
    tg_status s = tg_prompt_render(&prompt, &c->session, c->args, &c->messages, &e);
    if (s == TG_OK) s = tg_completion_run(&x, &c->session, prompt.ids, prompt.n, &c->options, &e);
    if (x.text.len) tg_term_write(&c->out, TG_STR("\n"));
    if (s == TG_OK) {
        tg_prompt_add_message(&c->messages, "assistant", tg_buf_str(&x.text));
        c->n_before_completion = before;
        c->n_tokens = prompt.n + x.stats.n_completion_tokens;
        if (x.stats.finish == TG_FINISH_CANCELLED) tg_say("stopped");
        if (x.stats.finish == TG_FINISH_LENGTH && !c->options.max_tokens)
            tg_say("the context of %" PRId32 " tokens is full; /clear starts over",
                   c->session.info.max_length);
        if (c->has_stats) tg_completion_say_stats(&c->session, &x.stats);
    } else {
        tg_say_error(&e, s == TG_E_LIMIT ? "/clear removes the conversation" : NULL);
    }
    tg_completion_deinit(&x);
    tg_tokens_deinit(&prompt);
    return s == TG_OK;
}

/* A message and its completion, or neither: a message that failed (too long, a template that
 * refuses it) leaves the history as it was, so that something else can be said. */
static void take_message(tg_chat *c, tg_str text)
{
    size_t before = c->messages.len, bad = tg_utf8_find_invalid(text);
    if (bad < text.len) {
        tg_say("byte %zu of this message does not belong to UTF-8 text; it was not sent", bad);
        return;
    }
    tg_prompt_add_message(&c->messages, "user", text);
    if (!complete(c)) { /* as if it had not been sent */
        c->messages.len = before;
        if (before) c->messages.ptr[before] = 0;
    }
}

/* ---- slash commands: each takes the rest of its line, and rows of a table are all there is */

static void print_commands(tg_chat *c, const char *rest);

static void leave(tg_chat *c, const char *rest)
{
    (void)rest;
    c->is_over = true;
}

static void forget(tg_chat *c, const char *rest)
{
    (void)rest;
    clear_history(c);
    tg_say("the conversation is cleared");
}

/* The last completion is removed and drawn again; if that fails it is put back. */
static void repeat_completion(tg_chat *c, const char *rest)
{
    (void)rest;
    if (!c->n_before_completion) {
        tg_say("there is no completion to repeat yet");
        return;
    }
    size_t whole = c->messages.len;
    char kept = c->messages.ptr[c->n_before_completion];
    c->messages.len = c->n_before_completion;
    c->messages.ptr[c->messages.len] = 0;
    c->options.sampling.sample_index++; /* another draw under the same seed */
    if (complete(c)) return;
    c->messages.ptr[c->messages.len] = kept;
    c->messages.len = whole;
}

/* 16 MiB is more text than any context holds; the engine says how many tokens are too many. */
static void send_file(tg_chat *c, const char *rest)
{
    tg_buf text = {0};
    tg_err e = {0};
    if (!*rest)
        tg_say("/read needs the name of a file");
    else if (tg_file_load(&text, rest, 1 << 24, &e) != TG_OK)
        tg_say_error(&e, NULL);
    else
        take_message(c, tg_buf_str(&text));
    tg_buf_deinit(&text);
}

static void set_system(tg_chat *c, const char *rest)
{
    tg_buf_clear(&c->system);
    tg_buf_add_cstr(&c->system, rest);
    clear_history(c);
    tg_say(*rest ? "the system message is set; the conversation starts over"
                 : "no system message; the conversation starts over");
}

static void say_context(tg_chat *c, const char *rest)
{
    (void)rest;
    tg_say("%" PRId32 " of %" PRId32 " tokens are used", c->n_tokens, c->session.info.max_length);
}

static void toggle_stats(tg_chat *c, const char *rest)
{
    (void)rest;
    c->has_stats = !c->has_stats;
    tg_say("times are %s after each completion", c->has_stats ? "shown" : "not shown");
}

static const struct {
    const char *name, *help;
    void (*run)(tg_chat *c, const char *rest);
} slash_commands[] = {
    {"/help", "this list", print_commands},
    {"/clear", "clear the conversation", forget},
    {"/regen", "another completion for the last message", repeat_completion},
    {"/read", "FILE: send a file as a message", send_file},
    {"/system", "TEXT: set the system message and start over", set_system},
    {"/ctx", "how much of the context is used", say_context},
    {"/stats", "show times after each completion, or stop showing them", toggle_stats},
    {"/exit", "leave (also /quit, /bye, ctrl-D)", leave},
    {"/quit", NULL, leave},
    {"/bye", NULL, leave},
};

static void print_commands(tg_chat *c, const char *rest)
{
    (void)c;
    (void)rest;
    for (size_t i = 0; i < TG_COUNT(slash_commands); i++)
        if (slash_commands[i].help)
            tg_say("%-8s %s", slash_commands[i].name, slash_commands[i].help);
    tg_say("\"\"\" before and after a message of several lines, or \\ at the end of a line");
    tg_say("ctrl-C stops a completion");
}

/* A line that begins with a slash is never sent to the model: a mistyped command would otherwise
 * become a message that cannot be taken back. */
static void run_slash(tg_chat *c, const char *text)
{
    size_t n = strcspn(text, " \t");
    for (size_t i = 0; i < TG_COUNT(slash_commands); i++) {
        const char *name = slash_commands[i].name;
        if (strlen(name) != n || strncmp(text, name, n) != 0) continue;
        slash_commands[i].run(c, text + n + strspn(text + n, " \t"));
        return;
    }
    tg_say("there is no %.*s; /help lists what there is", (int)TG_MIN(n, 64), text);
}

/* ---- the loop */

/* True when the conversation goes on. Ctrl-C at the prompt drops the line; SIGTERM is meant for
 * the program. */
static bool take_interrupt(tg_chat *c)
{
    if (tg_signal_find() != SIGINT) return false;
    tg_signal_take();
    tg_buf_clear(&c->pending);
    if (c->edit) tg_say("ctrl-D or /exit leaves");
    return true;
}

/* Reads and completes until the user leaves or the reader goes away. A signal during a completion
 * has done its work by ending it, if it was ctrl-C. */
static void converse(tg_chat *c)
{
    tg_buf message = {0};
    while (!c->is_over && !tg_term_is_broken(&c->out)) {
        tg_buf_clear(&message);
        tg_line_end how = read_message(c, &message);
        if (how == TG_LINE_INTERRUPTED && take_interrupt(c)) continue;
        if (how != TG_LINE_READ) break;
        const char *text = tg_buf_cstr(&message);
        if (text[0] == '/')
            run_slash(c, text);
        else if (text[strspn(text, " \t\r\n")])
            take_message(c, tg_buf_str(&message));
        if (tg_signal_find() == SIGINT) tg_signal_take(); /* it stopped the completion */
        if (tg_signal_find()) break;
    }
    tg_buf_deinit(&message);
}

/* Refuses what cannot converse before the first prompt is shown, and not at the first message. */
static tg_status start(tg_chat *c, tg_err *e)
{
    TG_TRY(tg_session_open(&c->session, c->args, true, e));
    if (!c->session.text_info.has_tokenizer || !c->session.text_info.n_templates)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s has no %s, so chat cannot run; generate --raw continues a text",
                       c->args->operand,
                       c->session.text_info.has_tokenizer ? "chat template" : "tokenizer");
    if (c->args->is_set[TG_OPT_SYSTEM]) tg_buf_add_cstr(&c->system, c->args->text[TG_OPT_SYSTEM]);
    c->options = tg_completion_options(&c->session, c->args);
    clear_history(c);
    return TG_OK;
}

int tg_run_chat(const tg_args *a)
{
    tg_chat c = {.args = a};
    tg_err e = {0};
    c.has_stats = a->is_set[TG_OPT_STATS];
    tg_signals_catch();
    tg_term_init(&c.out, STDOUT_FILENO);
    tg_status s = start(&c, &e);
    if (s == TG_OK) {
        if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO)) c.edit = tg_edit_new();
        if (c.edit) tg_say("/help lists what can be typed");
        converse(&c);
    }
    int code = tg_exit_code(s, &e, &c.out);
    tg_session_close(&c.session);
    tg_edit_free(c.edit);
    tg_buf_deinit(&c.system);
    tg_buf_deinit(&c.messages);
    tg_buf_deinit(&c.pending);
    return code;
}
