/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* siginfo_t's si_addr */
#include "base/fault.h"

#include "base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Exports of one process at once, and files mapped at once: models in hundreds of shards exist.
 * One that does not fit works as well and is not removed, or not named, on the way out. */
enum { MAX_TEMPORARIES = 16, MAX_MAPPINGS = 1024 };

/* A slot is free while its first field is NULL; it is claimed by an exchange, filled, and shown to
 * the handler by `is_ready`. */
typedef struct temporary {
    _Atomic(const char *) name;
    int dir_fd;
    atomic_bool is_ready;
} temporary;

typedef struct mapping {
    _Atomic(const void *) data;
    size_t n_bytes;
    const char *path;
    atomic_bool is_ready;
} mapping;

static temporary temporaries[MAX_TEMPORARIES];
static mapping mappings[MAX_MAPPINGS];
static volatile sig_atomic_t report_fd = -1;

void tg_temporary_add(int dir_fd, const char *name)
{
    for (int i = 0; i < MAX_TEMPORARIES; i++) {
        const char *none = NULL;
        if (!atomic_compare_exchange_strong(&temporaries[i].name, &none, name)) continue;
        temporaries[i].dir_fd = dir_fd;
        atomic_store(&temporaries[i].is_ready, true);
        return;
    }
}

void tg_temporary_remove(int dir_fd, const char *name)
{
    for (int i = 0; i < MAX_TEMPORARIES; i++) {
        temporary *t = &temporaries[i];
        if (atomic_load(&t->name) != name || t->dir_fd != dir_fd) continue;
        atomic_store(&t->is_ready, false);
        atomic_store(&t->name, NULL);
        return;
    }
}

/* Twice, since another thread may have added a file while the folder was emptied. */
void tg_temporaries_clear(void)
{
    for (int i = 0; i < 2 * MAX_TEMPORARIES; i++) {
        temporary *t = &temporaries[i % MAX_TEMPORARIES];
        if (atomic_load(&t->is_ready)) (void)!tg_path_remove_at(t->dir_fd, t->name, NULL);
    }
}

bool tg_mapping_add(const void *data, size_t n_bytes, const char *path)
{
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        const void *none = NULL;
        if (!atomic_compare_exchange_strong(&mappings[i].data, &none, data)) continue;
        mappings[i].n_bytes = n_bytes;
        mappings[i].path = path;
        atomic_store(&mappings[i].is_ready, true);
        return true;
    }
    return false;
}

const char *tg_mapping_remove(const void *data)
{
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        mapping *m = &mappings[i];
        if (atomic_load(&m->data) != data) continue;
        const char *path = m->path;
        atomic_store(&m->is_ready, false);
        atomic_store(&m->data, NULL);
        return path;
    }
    return NULL;
}

static const mapping *find_mapping(const void *address)
{
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        const mapping *m = &mappings[i];
        if (!atomic_load(&m->is_ready)) continue;
        uintptr_t at = (uintptr_t)address, base = (uintptr_t)atomic_load(&m->data);
        if (at >= base && at - base < tg_align_up(m->n_bytes, 65536)) return m;
    }
    return NULL;
}

/* ---- the handler: nothing of stdio, no allocation */

typedef struct sentence {
    char text[5000]; /* a path and the words around it */
    size_t n;
} sentence;

static void add_text(sentence *s, const char *text)
{
    size_t n = strlen(text), room = sizeof s->text - s->n;
    n = TG_MIN(n, room);
    memcpy(s->text + s->n, text, n);
    s->n += n;
}

static void add_number(sentence *s, uint64_t number)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    add_text(s, digits + at);
}

static void add_reason(sentence *s, const mapping *m)
{
    struct stat st;
    add_text(s, m->path);
    if (stat(m->path, &st) == 0 && (uint64_t)st.st_size < m->n_bytes) {
        add_text(s, ": had ");
        add_number(s, m->n_bytes);
        add_text(s, " bytes when it was opened and has ");
        add_number(s, (uint64_t)st.st_size);
        add_text(s, " now; do not write to a file that is in use, fetch or export it again");
    } else {
        add_text(s, ": cannot be read any more: it was cut off, or its disk failed");
    }
}

static void end_by_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    const mapping *m = find_mapping(info->si_addr);
    if (!m) { /* not ours: the fault comes again and is fatal */
        signal(number, SIG_DFL);
        return;
    }
    sentence s = {.n = 0};
    int32_t status = TG_E_IO;
    int fd = report_fd >= 0 ? report_fd : STDERR_FILENO;
    if (report_fd >= 0)
        while (s.n < sizeof status) {
            s.text[s.n] = ((const char *)&status)[s.n];
            s.n++;
        }
    else
        add_text(&s, "trigraph: error: ");
    add_reason(&s, m);
    if (report_fd < 0) add_text(&s, "\n");
    tg_temporaries_clear();
    ssize_t n = write(fd, s.text, s.n);
    (void)n; /* there is nobody else to tell */
    _exit(1);
}

void tg_faults_catch(void)
{
    struct sigaction a = {.sa_sigaction = end_by_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
}

void tg_faults_report_to(int fd)
{
    report_fd = fd;
}
