/* SPDX-License-Identifier: Apache-2.0
 * folder.h - a folder for targets whose readers want files, and silence for all. */
#ifndef TG_TESTS_FUZZ_FOLDER_H
#define TG_TESTS_FUZZ_FOLDER_H

#include "base/file.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64]; /* made with the first input, removed at exit */

static inline void be_quiet(void *context, const char *line)
{
    (void)context;
    (void)line;
}

static inline void remove_folder(void)
{
    (void)!tg_path_remove(folder, NULL);
}

/* True with the first input. */
static inline bool begin_folder(void)
{
    if (folder[0]) return false;
    strcpy(folder, "/tmp/tg-fuzz-XXXXXX");
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
    tg_log_set_sink(be_quiet, NULL);
    return true;
}

static inline void save(const char *name, const void *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) abort();
}

#endif
