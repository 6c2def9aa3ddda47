/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity, pthread_setaffinity_np */
#include "base/os.h"

#include "base/fault.h"
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int64_t tg_time_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The processors' worth of time the control group (version 2) grants; 0 for no limit. */
static int32_t find_quota(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    int64_t quota, period;
    int32_t n = 0;
    if (!f) return 0;
    if (fscanf(f, "%" SCNd64 " %" SCNd64, &quota, &period) == 2 && quota > 0 && period > 0)
        n = (int32_t)((quota + period - 1) / period);
    fclose(f);
    return n;
}

int32_t tg_cpus_find(int32_t *ids, int32_t n_ids)
{
    cpu_set_t set;
    int32_t n = 0;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
    for (int32_t i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET((size_t)i, &set)) continue;
        if (n < n_ids) ids[n] = i;
        n++;
    }
    int32_t quota = find_quota();
    if (quota > 0 && quota < n) n = quota;
    return TG_MAX(n, 1);
}

tg_status tg_threads_find(int32_t *out, int32_t asked, tg_err *e)
{
    const char *text = asked == 0 ? tg_env_get(TG_ENV_THREADS) : NULL;
    int64_t n = asked;
    if (text && (!tg_parse_i64(text, &n) || n < 1 || n > TG_MAX_CPUS))
        return tg_fail(e, TG_E_ARGUMENT, "TG_THREADS is '%s'; it must be a number from 1 to %d",
                       text, TG_MAX_CPUS);
    *out = n > 0 ? (int32_t)n : TG_MIN(tg_cpus_find(NULL, 0), TG_MAX_CPUS);
    return TG_OK;
}

bool tg_thread_pin(int32_t cpu_id)
{
    cpu_set_t set;
    if (cpu_id < 0 || cpu_id >= CPU_SETSIZE) return false;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu_id, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

static int64_t read_number(const char *path)
{
    FILE *f = fopen(path, "re");
    int64_t n = -1;
    if (!f) return -1;
    if (fscanf(f, "%" SCNd64, &n) != 1) n = -1;
    fclose(f);
    return n;
}

/* From a file of lines "key: number kB"; -1 where the key is not there. */
static int64_t read_kilobytes(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    char line[128], name[64];
    int64_t kb = -1, n;
    while (f && kb < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "%63[^:]: %" SCNd64, name, &n) == 2 && strcmp(name, key) == 0) kb = n;
    if (f) fclose(f);
    return kb;
}

int64_t tg_memory_available_bytes(void)
{
    int64_t kb = read_kilobytes("/proc/meminfo", "MemAvailable");
    int64_t bytes = kb >= 0 ? kb * 1024 : (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int64_t limit = read_number("/sys/fs/cgroup/memory.max");
    int64_t used = read_number("/sys/fs/cgroup/memory.current");
    if (limit >= 0 && used >= 0 && limit - used < bytes) bytes = TG_MAX(limit - used, 0);
    return bytes;
}

/* getrusage's maximum is of the process, not of the program: Linux keeps it over exec, and who is
 * started by a large program would report that one's. */
int64_t tg_memory_peak_bytes(void)
{
    int64_t kb = read_kilobytes("/proc/self/status", "VmHWM");
    struct rusage u;
    if (kb < 0 && getrusage(RUSAGE_SELF, &u) == 0) kb = (int64_t)u.ru_maxrss;
    return TG_MAX(kb, 0) * 1024;
}

tg_status tg_disk_free_bytes(int64_t *out, const char *path, tg_err *e)
{
    char part[4096];
    size_t n = strlen(path);
    struct statvfs v;
    if (n >= sizeof part)
        return tg_fail(e, TG_E_ARGUMENT, "a path of %zu bytes is longer than the limit of %zu", n,
                       sizeof part - 1);
    memcpy(part, path, n + 1);
    while (statvfs(part, &v) != 0) {
        char *slash = strrchr(part, '/');
        if (errno != ENOENT || strcmp(part, ".") == 0)
            return tg_fail(e, TG_E_IO, "%s: cannot read the free space: %s", path, strerror(errno));
        if (!slash)
            strcpy(part, ".");
        else if (slash == part)
            part[1] = 0;
        else
            *slash = 0;
    }
    *out = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
    return TG_OK;
}

/* Written by the handler, read by whoever may stop: the only way a signal can talk to us. */
static volatile sig_atomic_t signal_pending, signal_count;

/* Work that cannot be left in between, such as tokenizing 300 MB, is left so. */
enum { STOP_MS = 700 };

static void end_at_once(int number)
{
    static const char words[] = "trigraph: interrupted\n";
    tg_temporaries_clear();
    ssize_t n = write(STDERR_FILENO, words, sizeof words - 1);
    (void)n; /* there is nobody else to tell */
    _exit(128 + number);
}

/* setitimer is a bare system call on Linux: safe here. */
static void mark_signal(int number)
{
    static const struct itimerval stop = {.it_value = {.tv_usec = STOP_MS * 1000}};
    int saved = errno;
    signal_pending = number;
    if (++signal_count >= 3) end_at_once(number);
    if (number != SIGINT) (void)setitimer(ITIMER_REAL, &stop, NULL);
    errno = saved;
}

static void stop_late(int number)
{
    (void)number;
    if (signal_pending) end_at_once(signal_pending);
}

void tg_signals_catch(void)
{
    struct sigaction a = {.sa_handler = mark_signal}, old; /* no SA_RESTART: a blocked read ends */
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
    a.sa_handler = stop_late;
    sigaction(SIGALRM, &a, NULL);
    a.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &a, NULL);
    sigaction(SIGXFSZ, &a, NULL); /* a file larger than `ulimit -f` is a write that fails */
}

int tg_signal_find(void)
{
    return signal_pending;
}

int tg_signal_take(void)
{
    int number = signal_pending;
    signal_pending = 0;
    signal_count = 0;
    return number;
}

const char *tg_env_get(tg_env which)
{
    static const char *const names[TG_ENV_COUNT] = {
        [TG_ENV_CPU] = "TG_CPU",
        [TG_ENV_THREADS] = "TG_THREADS",
        [TG_ENV_VERBOSE] = "TG_VERBOSE",
        [TG_ENV_CACHE_DIR] = "TG_CACHE_DIR",
        [TG_ENV_XDG_CACHE_HOME] = "XDG_CACHE_HOME",
        [TG_ENV_HOME] = "HOME",
        [TG_ENV_NO_COLOR] = "NO_COLOR",
    };
    const char *v = getenv(names[which]);
    return v && v[0] ? v : NULL;
}
