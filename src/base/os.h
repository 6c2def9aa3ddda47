/* SPDX-License-Identifier: Apache-2.0
 * os.h - what the operating system allows: time, processors, memory, the few variables we read.
 *
 * Environment variables are read here and nowhere else, once: TG_CPU, TG_THREADS, TG_VERBOSE,
 * TG_CACHE_DIR (and XDG_CACHE_HOME, HOME, which are the system's), NO_COLOR. */
#ifndef TG_BASE_OS_H
#define TG_BASE_OS_H

#include "base/err.h"

/* Monotonic nanoseconds. */
int64_t tg_time_ns(void);

enum { TG_MAX_CPUS = 1024 };

/* Processors this process may use: the affinity mask, cut to what the control group's quota pays
 * for (rounded up). `ids` receives the first n_ids of the mask. Returns at least 1. */
int32_t tg_cpus_find(int32_t *ids, int32_t n_ids);
/* How many threads to work with: `asked` where it is not 0, else TG_THREADS, else the processors
 * that tg_cpus_find counts; at most TG_MAX_CPUS. */
TG_MUST_USE tg_status tg_threads_find(int32_t *out, int32_t asked, tg_err *e);
/* Binds the calling thread; false when the system refuses, which is no error. */
bool tg_thread_pin(int32_t cpu_id);

/* Memory that can still be had: free and reclaimable, cut to the control group's limit. */
int64_t tg_memory_available_bytes(void);
/* The most this program ever held, as the system counts it, whoever started it. */
int64_t tg_memory_peak_bytes(void);
/* Bytes free for us on the file system that holds `path` or its nearest existing parent. */
TG_MUST_USE tg_status tg_disk_free_bytes(int64_t *out, const char *path, tg_err *e);

/* From here on SIGINT, SIGTERM and SIGHUP only leave a mark, reads and waits return EINTR when
 * they come, and writing to a closed pipe or beyond the limit of a file is an error instead of
 * death. After three signals before the mark is taken, or SIGTERM or SIGHUP whose mark is not
 * taken within 0.7 s, the program ends at once, and leaves no temporary folder. A SIGHUP
 * that was ignored before, as under nohup, stays ignored. */
void tg_signals_catch(void);
/* The signal that came last and was not taken; 0 for none. */
int tg_signal_find(void);
int tg_signal_take(void);

typedef enum tg_env {
    TG_ENV_CPU,
    TG_ENV_THREADS,
    TG_ENV_VERBOSE,
    TG_ENV_CACHE_DIR,
    TG_ENV_XDG_CACHE_HOME,
    TG_ENV_HOME,
    TG_ENV_NO_COLOR,
    TG_ENV_COUNT
} tg_env;

/* NULL when unset or empty. */
const char *tg_env_get(tg_env which);

#endif
