/* SPDX-License-Identifier: Apache-2.0
 * file.h - files as the engine needs them: mapped for reading, whole or not at all for writing.
 *
 * Reading maps; nothing large is ever copied into the heap. Writing goes to a temporary beside the
 * target and appears under its name by rename, so that a reader, a crash or a full disk never
 * shows half a file. Every message names the path and what the system said. */
#ifndef TG_BASE_FILE_H
#define TG_BASE_FILE_H

#include "base/mem.h"
#include "base/str.h"

/* A file to be read must be regular and is opened without waiting: a FIFO or a device in place of
 * one is an error. A function that ends in _at finds its relative path in the folder dir_fd, which
 * stays the same folder whatever is renamed meanwhile; its messages begin with that relative path.
 *
 * A file's bytes, read-only; {0} is closed. A mapping shows what others write into the file, and
 * ends the program if it shrinks (fault.h): nothing that is trusted as an index may be read from
 * one after its check. A copy is private. */
typedef struct tg_file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t n_bytes;
    bool is_copy;
} tg_file_map;

TG_MUST_USE tg_status tg_file_map_open(tg_file_map *out, const char *path, tg_err *e);
/* `name` is what the sentence about a file that shrinks calls it. */
TG_MUST_USE tg_status tg_file_map_open_at(tg_file_map *out, int dir_fd, const char *path,
                                          const char *name, tg_err *e);
/* The whole file, of at most `limit` bytes, in private memory. */
TG_MUST_USE tg_status tg_file_copy_open_at(tg_file_map *out, int dir_fd, const char *path,
                                           size_t limit, tg_err *e);
void tg_file_map_close(tg_file_map *m);
/* Advice to the system, which cannot fail. All of it is going to be read, again and again: pages
 * as large as there are. */
void tg_file_map_expect_stream(const tg_file_map *m);
/* Lets go of the pages that hold [p, p + n_bytes), which lie in the mapping: who reads a file from
 * front to back need not hold all of it. They are read again when touched again. */
void tg_file_map_release(const tg_file_map *m, const void *p, size_t n_bytes);

/* Appends a whole file of at most `limit` bytes. */
TG_MUST_USE tg_status tg_file_load(tg_buf *out, const char *path, size_t limit, tg_err *e);
/* The same of anything but a folder: a pipe is waited for. */
TG_MUST_USE tg_status tg_stream_load(tg_buf *out, const char *path, size_t limit, tg_err *e);
/* Appends everything of an open descriptor ("-", a pipe), at most `limit` bytes. */
TG_MUST_USE tg_status tg_fd_load(tg_buf *out, int fd, const char *name, size_t limit, tg_err *e);

/* A file being written, front to back, through a buffer of 2 MB. Not visible under a final name:
 * the caller writes into a temporary directory or renames. The disk is kept busy from the first
 * megabytes on, so that the sync at the end does not wait for the whole file. */
typedef struct tg_file_writer tg_file_writer;
/* Sees every byte that is written, in order, on the thread that writes. */
typedef void tg_file_watch_fn(void *context, const void *bytes, size_t n);

TG_MUST_USE tg_status tg_file_writer_open(tg_file_writer **out, const char *path, tg_err *e);
/* Neither follows a link that stands in the file's place. */
TG_MUST_USE tg_status tg_file_writer_open_at(tg_file_writer **out, int dir_fd, const char *path,
                                             const char *name, tg_err *e);
void tg_file_writer_watch(tg_file_writer *o, tg_file_watch_fn *fn,
                          void *context); /* before the first byte */
TG_MUST_USE tg_status tg_file_writer_write(tg_file_writer *o, const void *bytes, size_t n,
                                           tg_err *e);
TG_MUST_USE tg_status tg_file_writer_pad(tg_file_writer *o, size_t align,
                                         tg_err *e); /* zeros up to a multiple */
size_t tg_file_writer_n_bytes(const tg_file_writer *o);
/* Flushes, syncs and closes; `o` is gone either way. The second closes without a word. */
TG_MUST_USE tg_status tg_file_writer_close(tg_file_writer *o, tg_err *e);
void tg_file_writer_abandon(tg_file_writer *o); /* accepts NULL */

/* Writes a whole file at once: temporary, sync, rename over `path`. */
TG_MUST_USE tg_status tg_file_save(const char *path, tg_str bytes, tg_err *e);

/* Size and time of last change of a regular file, links followed. */
TG_MUST_USE tg_status tg_file_stat(const char *path, int64_t *n_bytes, int64_t *mtime_ns,
                                   tg_err *e);

bool tg_path_is_file(const char *path);
bool tg_path_is_dir(const char *path);
bool tg_path_exists(const char *path);
/* A link to a file that is not there. */
bool tg_path_is_dangling(const char *path);
/* "dir/name" into `out` (cleared first). Returns out's text. */
const char *tg_path_join(tg_buf *out, const char *dir, const char *name);
/* The part after the last slash; borrowed from `path`. */
const char *tg_path_name(const char *path);
/* Absolute, links resolved. */
TG_MUST_USE tg_status tg_path_resolve(tg_buf *out, const char *path, tg_err *e);
/* With parents, mode 0777 & umask; the second makes the last one for its owner alone. */
TG_MUST_USE tg_status tg_dir_make(const char *path, tg_err *e);
TG_MUST_USE tg_status tg_dir_make_private(const char *path, tg_err *e);
/* Opens a folder that belongs to this user and is no link. */
TG_MUST_USE tg_status tg_dir_open_at(int *fd, int dir_fd, const char *name, tg_err *e);
/* Removes a file or a whole tree; links are removed, never followed. Absent is fine. Allocates
 * nothing and, with a NULL error, is safe in a signal handler. */
TG_MUST_USE tg_status tg_path_remove_at(int dir_fd, const char *name, tg_err *e);
TG_MUST_USE tg_status tg_path_remove(const char *path, tg_err *e);
/* Names in a directory, sorted by bytes, without "." and ".."; borrowed from the arena. */
TG_MUST_USE tg_status tg_dir_list(tg_arena *a, const char *path, char ***names, int32_t *n_names,
                                  tg_err *e);
/* The same of an open folder, which messages call `path`. */
TG_MUST_USE tg_status tg_dir_list_fd(tg_arena *a, int fd, const char *path, char ***names,
                                     int32_t *n_names, tg_err *e);
/* The names in it are on the disk. */
TG_MUST_USE tg_status tg_dir_sync(int fd, const char *path, tg_err *e);
/* Makes `from` appear as `to`, and syncs the folder of `to`; an existing `to` is exchanged with
 * `from` in one step, so that `to` always exists whole, and then lies at `from`. Both are on one
 * file system. */
TG_MUST_USE tg_status tg_path_exchange_at(int from_fd, const char *from, int to_fd, const char *to,
                                          bool *is_exchanged, tg_err *e);

/* An exclusive advisory lock on a file, made if absent. Waits; *out is a descriptor. Released by
 * tg_lock_release and by the death of the process. */
TG_MUST_USE tg_status tg_lock_acquire(int *out, const char *path, tg_err *e);
/* As above but never waits: TG_E_BUSY when another process holds it. */
TG_MUST_USE tg_status tg_lock_try_at(int *out, int dir_fd, const char *path, tg_err *e);
void tg_lock_release(int fd);

#endif
