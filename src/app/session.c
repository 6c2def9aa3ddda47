/* SPDX-License-Identifier: Apache-2.0
 * session.c - finding and opening a MODEL.
 *
 * Finding may export, and exporting may need gigabytes and a minute. It is done in a forked child,
 * before this process has started any thread, and the child sends back a status and one text: the
 * artifact's folder, or the message of the error. A signal reaches both when it comes from the
 * terminal; one that was sent to this process alone is passed on, so that the export ends cleanly
 * and removes what it began. */
#include "app/session.h"

#include "app/term.h"
#include "base/fault.h"
#include "base/os.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void note_line(void *context, const char *line)
{
    (void)context;
    tg_say("%s", line);
}

/* The child's side: the status, then the folder or the message. Does not return. */
static _Noreturn void find_in_child(int fd, const char *source)
{
    tg_progress progress = {.title = "exporting"};
    tg_export_options o = {.progress = tg_progress_print, .context = &progress};
    char *dir = NULL;
    tg_err e = {0};
    tg_term out;
    tg_faults_report_to(fd);
    int32_t status = (int32_t)tg_cache_find(&dir, source, &o, note_line, &e);
    const char *text = status == TG_OK ? dir : e.msg;
    tg_progress_end(&progress);
    tg_term_init(&out, fd);
    tg_term_write(&out, (tg_str){(const char *)&status, sizeof status});
    tg_term_write(&out, tg_str_from_cstr(text));
    _exit(tg_term_is_broken(&out));
}

/* Everything the child writes; a signal is passed on to it, which then ends cleanly by itself. */
static void read_child(tg_buf *out, int fd, pid_t child)
{
    char block[1024];
    bool is_told = false;
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n > 0) tg_buf_add(out, block, (size_t)n);
        if (n == 0 || (n < 0 && errno != EINTR)) return;
        if (tg_signal_find() && !is_told) {
            kill(child, SIGTERM);
            is_told = true;
        }
    }
}

/* Fewer bytes than a status: the child died. Signal 9 without anybody's doing is the kernel's
 * way of taking memory back, and is worth saying. */
static tg_status read_reply(tg_buf *dir, const tg_buf *reply, int how, tg_err *e)
{
    int32_t status;
    if (reply->len < sizeof status) {
        if (WIFSIGNALED(how))
            return tg_fail(e, TG_E_NOMEM,
                           "the export was ended by signal %d (9 is how the system takes memory "
                           "back); a smaller model or --max-length needs less",
                           WTERMSIG(how));
        return tg_fail(e, TG_E_IO, "the export ended without a word, exit code %d",
                       WEXITSTATUS(how));
    }
    memcpy(&status, reply->ptr, sizeof status);
    tg_str text = {reply->ptr + sizeof status, reply->len - sizeof status};
    if (status != TG_OK) return tg_fail(e, (tg_status)status, "%.*s", (int)text.len, text.ptr);
    tg_buf_clear(dir);
    tg_buf_add_str(dir, text);
    return tg_buf_check(dir, e);
}

tg_status tg_session_find(tg_buf *dir, const char *source, tg_err *e)
{
    int fds[2], how = 0;
    if (pipe(fds) != 0) return tg_fail(e, TG_E_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        find_in_child(fds[1], source);
    }
    close(fds[1]);
    if (child < 0) {
        close(fds[0]);
        return tg_fail(e, TG_E_IO, "cannot start a process: %s", strerror(errno));
    }
    tg_buf reply = {0};
    read_child(&reply, fds[0], child);
    close(fds[0]);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        continue;
    tg_status s = read_reply(dir, &reply, how, e);
    tg_buf_deinit(&reply);
    return s;
}

/* The time is what a user waits for before a prompt can be read: mapping, threads, KV memory. */
tg_status tg_session_load(tg_session *s, const tg_args *args, tg_err *e)
{
    int64_t start = tg_time_ns();
    TG_TRY(tg_model_open(&s->model, tg_buf_cstr(&s->dir), e));
    s->info = tg_model_get_info(s->model);
    s->text = tg_model_get_text(s->model);
    s->text_info = tg_text_get_info(s->text);
    if (args) {
        tg_engine_options o = {.n_threads = (int32_t)args->number[TG_OPT_THREADS]};
        TG_TRY(tg_engine_open(&s->engine, s->model, &o, e));
    }
    s->load_ms = (double)(tg_time_ns() - start) / 1e6;
    return TG_OK;
}

tg_status tg_session_open(tg_session *s, const tg_args *args, bool has_engine, tg_err *e)
{
    *s = (tg_session){0};
    TG_TRY(tg_session_find(&s->dir, args->operand, e));
    return tg_session_load(s, has_engine ? args : NULL, e);
}

/* The engine borrows the model. */
void tg_session_unload(tg_session *s)
{
    tg_engine_close(s->engine);
    tg_model_close(s->model);
    s->engine = NULL;
    s->model = NULL;
}

void tg_session_close(tg_session *s)
{
    tg_session_unload(s);
    tg_buf_deinit(&s->dir);
}
