/* SPDX-License-Identifier: Apache-2.0
 * fault.h - a program that must end at once: what it says, and what it must not leave behind.
 *
 * Temporary folders are registered while they exist, mapped files while they are mapped. Both
 * tables are fixed and read without locks or allocation, because their reader is a signal handler.
 * The library fills them; only a program installs the handlers (tg_faults_catch, tg_signals_catch),
 * since a host may have its own. */
#ifndef TG_BASE_FAULT_H
#define TG_BASE_FAULT_H

#include "base/base.h"

/* The folder `name` in `dir_fd`, removed with all in it if the program ends at once. Both are
 * borrowed until tg_temporary_remove. */
void tg_temporary_add(int dir_fd, const char *name);
void tg_temporary_remove(int dir_fd, const char *name);
/* Removes every registered folder. Async-signal-safe. */
void tg_temporaries_clear(void);

/* A mapping of n_bytes and the path that a message calls it, borrowed until removed. False, and it
 * stays unnamed, when the table is full. */
bool tg_mapping_add(const void *data, size_t n_bytes, const char *path);
/* Returns the path that was given, NULL if it is not in the table. */
const char *tg_mapping_remove(const void *data);

/* From here on a mapped file that shrinks, or whose disk fails, ends the program with one sentence
 * that names the file, exit code 1 and no temporary folder. */
void tg_faults_catch(void);
/* The sentence goes to `fd` instead of standard error, as a status (int32) and the text: for a
 * child process whose parent speaks. */
void tg_faults_report_to(int fd);

#endif
