/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* getdents64, renameat2, sync_file_range and the MADV_ advice */
#include "base/file.h"

#include "base/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tg_status fail_errno(tg_err *e, const char *path, const char *verb)
{
    tg_status s = errno == ENOMEM ? TG_E_NOMEM : TG_E_IO;
    if (!e) return s; /* strerror is not for signal handlers */
    return tg_fail(e, s, "%s: cannot %s: %s", path, verb, strerror(errno));
}

/* ---- opening: one way for all that is read */

/* Copies from this size on are made in pages of 2 MB where there are any. */
enum { LARGE_COPY_BYTES = 2 << 20 };

static const char *name_kind(mode_t mode)
{
    if (S_ISFIFO(mode)) return "a FIFO (a named pipe)";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    if (S_ISDIR(mode)) return "a folder";
    return "a socket";
}

static tg_status fail_kind(tg_err *e, const char *path, mode_t mode)
{
    return tg_fail(e, TG_E_IO, "%s: is %s; a regular file is needed", path, name_kind(mode));
}

/* Never waits: opening a FIFO without O_NONBLOCK would, until somebody writes to it. */
static tg_status open_to_read(int *fd, int dir_fd, const char *path, bool is_stream_fine, tg_err *e)
{
    struct stat st;
    do
        *fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return fail_errno(e, path, "open");
    tg_status s = TG_OK;
    if (fstat(*fd, &st) != 0)
        s = fail_errno(e, path, "stat");
    else if (!S_ISREG(st.st_mode) && (!is_stream_fine || S_ISDIR(st.st_mode)))
        s = fail_kind(e, path, st.st_mode);
    if (s == TG_OK) return TG_OK;
    close(*fd);
    *fd = -1;
    return s;
}

/* ---- mapping */

/* Remembers what the mapping is called, for the sentence about a file that shrinks. */
static tg_status name_mapping(const tg_file_map *m, const char *name, tg_err *e)
{
    char *copy = tg_mem_new(strlen(name) + 1);
    if (!copy) return tg_fail_nomem(e, strlen(name) + 1, "a path");
    strcpy(copy, name);
    if (!tg_mapping_add(m->data, m->n_bytes, copy)) tg_mem_free(copy);
    return TG_OK;
}

static tg_status map_fd(tg_file_map *out, int fd, const char *name, tg_err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return fail_errno(e, name, "stat");
    if (st.st_size == 0) return TG_OK;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return fail_errno(e, name, "map");
    *out = (tg_file_map){.data = p, .n_bytes = (size_t)st.st_size};
    tg_status s = name_mapping(out, name, e);
    if (s != TG_OK) tg_file_map_close(out);
    return s;
}

/* All of an open file as it is now; what a file loses meanwhile is an error. */
static tg_status copy_fd(tg_file_map *out, int fd, const char *name, size_t limit, tg_err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return fail_errno(e, name, "stat");
    size_t n_bytes = (size_t)st.st_size;
    if (n_bytes == 0) return TG_OK;
    if (n_bytes > limit)
        return tg_fail(e, TG_E_LIMIT, "%s: has %zu bytes, and at most %zu are read of it", name,
                       n_bytes, limit);
    char *copy = tg_mem_reserve(n_bytes);
    if (!copy) return tg_fail_nomem(e, n_bytes, "a copy of a file");
    *out = (tg_file_map){.data = (const uint8_t *)copy, .n_bytes = n_bytes, .is_copy = true};
    if (n_bytes >= LARGE_COPY_BYTES) tg_mem_prefer_large_pages(copy, n_bytes);
    for (size_t at = 0; at < n_bytes;) {
        ssize_t n = read(fd, copy + at, n_bytes - at);
        if (n < 0 && errno == EINTR) continue;
        tg_status s = TG_OK;
        if (n < 0) s = fail_errno(e, name, "read");
        if (n == 0)
            s = tg_fail(e, TG_E_IO, "%s: ended after %zu of %zu bytes: it is being changed", name,
                        at, n_bytes);
        if (s != TG_OK) {
            tg_file_map_close(out);
            return s;
        }
        at += (size_t)n;
    }
    return TG_OK;
}

tg_status tg_file_map_open_at(tg_file_map *out, int dir_fd, const char *path, const char *name,
                              tg_err *e)
{
    int fd;
    *out = (tg_file_map){0};
    TG_TRY(open_to_read(&fd, dir_fd, path, false, e));
    tg_status s = map_fd(out, fd, name, e);
    close(fd);
    return s;
}

tg_status tg_file_map_open(tg_file_map *out, const char *path, tg_err *e)
{
    return tg_file_map_open_at(out, AT_FDCWD, path, path, e);
}

tg_status tg_file_copy_open_at(tg_file_map *out, int dir_fd, const char *path, size_t limit,
                               tg_err *e)
{
    int fd;
    *out = (tg_file_map){0};
    TG_TRY(open_to_read(&fd, dir_fd, path, false, e));
    tg_status s = copy_fd(out, fd, path, limit, e);
    close(fd);
    return s;
}

void tg_file_map_close(tg_file_map *m)
{
    void *p = (void *)(uintptr_t)m->data;
    if (m->is_copy) {
        tg_mem_unreserve(p, m->n_bytes);
    } else if (p) {
        tg_mem_free((void *)(uintptr_t)tg_mapping_remove(p));
        munmap(p, m->n_bytes);
    }
    *m = (tg_file_map){0};
}

static void advise(const tg_file_map *m, int advice)
{
    if (m->data && !m->is_copy) (void)madvise((void *)(uintptr_t)m->data, m->n_bytes, advice);
}

void tg_file_map_expect_stream(const tg_file_map *m)
{
    advise(m, MADV_HUGEPAGE);
}

void tg_file_map_release(const tg_file_map *m, const void *p, size_t n_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)m->data;
    uintptr_t first = (uintptr_t)p & ~(page - 1), end = (uintptr_t)p + n_bytes;
    TG_ASSERT((uintptr_t)p >= base && end <= base + m->n_bytes);
    if (n_bytes) (void)madvise((void *)first, end - first, MADV_DONTNEED);
}

tg_status tg_fd_load(tg_buf *out, int fd, const char *name, size_t limit, tg_err *e)
{
    char block[16384];
    size_t before = out->len;
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(e, name, "read");
        if (n == 0) return tg_buf_check(out, e);
        if (out->len - before + (size_t)n > limit)
            return tg_fail(e, TG_E_LIMIT, "%s: is longer than the %zu bytes that are read of it",
                           name, limit);
        tg_buf_add(out, block, (size_t)n);
    }
}

tg_status tg_file_load(tg_buf *out, const char *path, size_t limit, tg_err *e)
{
    int fd;
    TG_TRY(open_to_read(&fd, AT_FDCWD, path, false, e));
    tg_status s = tg_fd_load(out, fd, path, limit, e);
    close(fd);
    return s;
}

/* A FIFO that was opened without waiting is at its end until somebody has written to it. */
static tg_status wait_for_bytes(int fd, const char *path, tg_err *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, -1) < 0) return fail_errno(e, path, "read");
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return fail_errno(e, path, "read");
    return TG_OK;
}

tg_status tg_stream_load(tg_buf *out, const char *path, size_t limit, tg_err *e)
{
    int fd;
    TG_TRY(open_to_read(&fd, AT_FDCWD, path, true, e));
    tg_status s = wait_for_bytes(fd, path, e);
    if (s == TG_OK) s = tg_fd_load(out, fd, path, limit, e);
    close(fd);
    return s;
}

/* ---- writing */

/* The system keeps a written file in pieces no larger than the writes, and at their alignment.
 * Whole pieces of 2 MB at multiples of 2 MB are what one entry of a page table can map: opening a
 * file of 97 MB that was written so takes 0.1 ms of page faults instead of 4 to 9 ms (Linux 6.18,
 * ext4). */
enum { OUT_BYTES = 2 << 20, WRITEBACK_BYTES = 8 << 20 };

struct tg_file_writer {
    int fd;
    char *path;
    size_t n_written, n_pending;
    size_t n_given, n_started; /* to the system; of those, how far it was told to write */
    tg_file_watch_fn *watch;
    void *context;
    char pending[OUT_BYTES];
};

tg_status tg_file_writer_open(tg_file_writer **out, const char *path, tg_err *e)
{
    return tg_file_writer_open_at(out, AT_FDCWD, path, path, e);
}

tg_status tg_file_writer_open_at(tg_file_writer **out, int dir_fd, const char *path,
                                 const char *name, tg_err *e)
{
    *out = NULL;
    tg_file_writer *o = TG_NEW(tg_file_writer);
    char *copy = tg_mem_new(strlen(name) + 1);
    if (!o || !copy) {
        tg_mem_free(copy);
        tg_mem_free(o);
        return tg_fail_nomem(e, sizeof *o, "an output buffer");
    }
    strcpy(copy, name);
    o->path = copy;
    do
        o->fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    while (o->fd < 0 && errno == EINTR);
    if (o->fd < 0) {
        tg_status s = fail_errno(e, name, "create");
        tg_file_writer_abandon(o);
        return s;
    }
    *out = o;
    return TG_OK;
}

void tg_file_writer_watch(tg_file_writer *o, tg_file_watch_fn *fn, void *context)
{
    TG_ASSERT(o->n_written == 0);
    o->watch = fn;
    o->context = context;
}

/* Advice: what cannot be started now is written by the sync. */
static void start_writeback(tg_file_writer *o)
{
    size_t n = o->n_given - o->n_started;
    if (n < WRITEBACK_BYTES) return;
    (void)sync_file_range(o->fd, (off_t)o->n_started, (off_t)n, SYNC_FILE_RANGE_WRITE);
    o->n_started = o->n_given;
}

static tg_status write_all(tg_file_writer *o, const char *bytes, size_t n, tg_err *e)
{
    if (o->watch) o->watch(o->context, bytes, n);
    while (n > 0) {
        ssize_t done = write(o->fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail_errno(e, o->path, "write");
        bytes += done;
        n -= (size_t)done;
        o->n_given += (size_t)done;
    }
    start_writeback(o);
    return TG_OK;
}

static tg_status flush(tg_file_writer *o, tg_err *e)
{
    TG_TRY(write_all(o, o->pending, o->n_pending, e));
    o->n_pending = 0;
    return TG_OK;
}

tg_status tg_file_writer_write(tg_file_writer *o, const void *bytes, size_t n, tg_err *e)
{
    for (const char *from = bytes; n > 0;) {
        if (o->n_pending == 0 && n >= OUT_BYTES) { /* whole pieces need no copy */
            size_t whole = n - n % OUT_BYTES;
            TG_TRY(write_all(o, from, whole, e));
            o->n_written += whole;
            from += whole;
            n -= whole;
            continue;
        }
        size_t k = TG_MIN(n, OUT_BYTES - o->n_pending);
        memcpy(o->pending + o->n_pending, from, k);
        o->n_pending += k;
        o->n_written += k;
        from += k;
        n -= k;
        if (o->n_pending == OUT_BYTES) TG_TRY(flush(o, e));
    }
    return TG_OK;
}

tg_status tg_file_writer_pad(tg_file_writer *o, size_t align, tg_err *e)
{
    static const char zeros[4096];
    size_t n = tg_align_up(o->n_written, align) - o->n_written;
    while (n > 0) {
        size_t k = TG_MIN(n, sizeof zeros);
        TG_TRY(tg_file_writer_write(o, zeros, k, e));
        n -= k;
    }
    return TG_OK;
}

size_t tg_file_writer_n_bytes(const tg_file_writer *o)
{
    return o->n_written;
}

static tg_status sync_fd(int fd, const char *path, tg_err *e)
{
    while (fsync(fd) != 0)
        if (errno == EINVAL || errno == EROFS)
            return TG_OK; /* a file system that has nothing to sync */
        else if (errno != EINTR)
            return fail_errno(e, path, "sync");
    return TG_OK;
}

tg_status tg_file_writer_close(tg_file_writer *o, tg_err *e)
{
    tg_status s = flush(o, e);
    if (s == TG_OK) s = sync_fd(o->fd, o->path, e);
    if (close(o->fd) != 0 && s == TG_OK) s = fail_errno(e, o->path, "close");
    o->fd = -1;
    tg_file_writer_abandon(o);
    return s;
}

void tg_file_writer_abandon(tg_file_writer *o)
{
    if (!o) return;
    if (o->fd >= 0) close(o->fd);
    tg_mem_free(o->path);
    tg_mem_free(o);
}

/* A name is on the disk when its folder is. */
static tg_status sync_parent(const char *path, tg_err *e)
{
    char parent[PATH_MAX];
    size_t n = (size_t)(tg_path_name(path) - path);
    if (n >= sizeof parent) return TG_OK; /* the system opens no path that long */
    memcpy(parent, path, n);
    parent[n] = 0;
    int fd = open(n ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_errno(e, n ? parent : ".", "open the folder");
    tg_status s = sync_fd(fd, n ? parent : ".", e);
    close(fd);
    return s;
}

tg_status tg_file_save(const char *path, tg_str bytes, tg_err *e)
{
    tg_buf tmp = {0};
    tg_file_writer *o = NULL;
    tg_buf_printf(&tmp, "%s.tmp.%d", path, (int)getpid());
    tg_status s = tg_buf_check(&tmp, e);
    if (s == TG_OK) s = tg_file_writer_open(&o, tmp.ptr, e);
    if (s == TG_OK) s = tg_file_writer_write(o, bytes.ptr, bytes.len, e);
    if (s == TG_OK)
        s = tg_file_writer_close(o, e);
    else
        tg_file_writer_abandon(o);
    if (s == TG_OK && rename(tmp.ptr, path) != 0) s = fail_errno(e, path, "replace");
    if (s != TG_OK && tmp.ptr) unlink(tmp.ptr);
    if (s == TG_OK) s = sync_parent(path, e);
    tg_buf_deinit(&tmp);
    return s;
}

tg_status tg_file_stat(const char *path, int64_t *n_bytes, int64_t *mtime_ns, tg_err *e)
{
    struct stat st;
    if (stat(path, &st) != 0) return fail_errno(e, path, "find");
    if (!S_ISREG(st.st_mode)) return fail_kind(e, path, st.st_mode);
    *n_bytes = st.st_size;
    *mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return TG_OK;
}

static bool has_mode(const char *path, mode_t kind)
{
    struct stat st;
    return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

bool tg_path_is_file(const char *path)
{
    return has_mode(path, S_IFREG);
}

bool tg_path_is_dir(const char *path)
{
    return has_mode(path, S_IFDIR);
}

bool tg_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

bool tg_path_is_dangling(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && stat(path, &st) != 0 && errno == ENOENT;
}

const char *tg_path_join(tg_buf *out, const char *dir, const char *name)
{
    tg_buf_clear(out);
    tg_buf_add_cstr(out, dir);
    if (out->len && out->ptr[out->len - 1] != '/') tg_buf_add_byte(out, '/');
    tg_buf_add_cstr(out, name);
    return tg_buf_cstr(out);
}

const char *tg_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

tg_status tg_path_resolve(tg_buf *out, const char *path, tg_err *e)
{
    char *real = realpath(path, NULL);
    if (!real) return fail_errno(e, path, "find");
    tg_buf_clear(out);
    tg_buf_add_cstr(out, real);
    free(real); /* the C library's own allocation */
    return tg_buf_check(out, e);
}

static tg_status make_dir(const char *path, mode_t last_mode, tg_err *e)
{
    tg_buf part = {0};
    tg_status s = TG_OK;
    for (size_t i = 1; s == TG_OK && i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        tg_buf_clear(&part);
        tg_buf_add(&part, path, i);
        s = tg_buf_check(&part, e);
        if (s != TG_OK || mkdir(part.ptr, path[i] ? 0777 : last_mode) == 0) continue;
        if (errno != EEXIST)
            s = fail_errno(e, part.ptr, "make the directory");
        else if (!tg_path_is_dir(part.ptr))
            s = tg_fail(e, TG_E_IO, "%s: is not a directory, so %s cannot be made", part.ptr, path);
    }
    tg_buf_deinit(&part);
    return s;
}

tg_status tg_dir_make(const char *path, tg_err *e)
{
    return make_dir(path, 0777, e);
}

tg_status tg_dir_make_private(const char *path, tg_err *e)
{
    return make_dir(path, 0700, e);
}

tg_status tg_dir_open_at(int *fd, int dir_fd, const char *name, tg_err *e)
{
    struct stat st;
    *fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) return fail_errno(e, name, "open the folder");
    tg_status s = TG_OK;
    if (fstat(*fd, &st) != 0)
        s = fail_errno(e, name, "stat");
    else if (st.st_uid != geteuid())
        s = tg_fail(e, TG_E_IO, "%s: belongs to another user (%d)", name, (int)st.st_uid);
    if (s == TG_OK) return TG_OK;
    close(*fd);
    *fd = -1;
    return s;
}

/* ---- removing: no allocation, so that it also works without memory and in a signal handler */

enum { TREE_DEPTH = 32 };

static tg_status remove_at(int parent, const char *name, const char *path, int depth, tg_err *e);

/* Read again until it is empty: what a file system does with a list that shrinks while it is read
 * differs. */
static tg_status remove_entries(int fd, const char *path, int depth, tg_err *e)
{
    _Alignas(struct dirent64) char list[2048];
    for (bool is_empty = false; !is_empty;) {
        ssize_t n = lseek(fd, 0, SEEK_SET) < 0 ? -1 : getdents64(fd, list, sizeof list);
        if (n < 0) return fail_errno(e, path, "read the directory");
        is_empty = true;
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *x = (const struct dirent64 *)(const void *)(list + at);
            at += x->d_reclen;
            if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) continue;
            is_empty = false;
            TG_TRY(remove_at(fd, x->d_name, path, depth + 1, e));
        }
    }
    return TG_OK;
}

static tg_status remove_at(int parent, const char *name, const char *path, int depth, tg_err *e)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return TG_OK;
    if (errno != EISDIR && errno != EPERM) return fail_errno(e, path, "remove");
    if (depth > TREE_DEPTH)
        return tg_fail(e, TG_E_LIMIT, "%s: is nested deeper than %d folders; remove it by hand",
                       path, TREE_DEPTH);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return TG_OK; /* somebody else removed it just now */
    if (fd < 0) return fail_errno(e, path, "open the directory");
    tg_status s = remove_entries(fd, path, depth, e);
    close(fd);
    if (s != TG_OK) return s;
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return fail_errno(e, path, "remove");
    return TG_OK;
}

tg_status tg_path_remove_at(int dir_fd, const char *name, tg_err *e)
{
    return remove_at(dir_fd, name, name, 0, e);
}

tg_status tg_path_remove(const char *path, tg_err *e)
{
    return remove_at(AT_FDCWD, path, path, 0, e);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tg_status list_names(tg_arena *a, DIR *d, char ***names, int32_t *n_names, tg_err *e)
{
    int32_t room = 0;
    tg_status s = TG_OK;
    for (struct dirent *x; (x = readdir(d)) != NULL;) {
        if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) continue;
        if (*n_names == room) {
            char **more = TG_ARENA_ARRAY(a, char *, 2 * room + 16);
            if (more && room) memcpy(more, *names, (size_t)room * sizeof *more);
            *names = more;
            room = 2 * room + 16;
        }
        char *copy = *names ? tg_arena_copy_str(a, x->d_name, strlen(x->d_name)) : NULL;
        if (!copy) {
            s = tg_fail_nomem(e, a->n_bytes, "a list of file names");
            break;
        }
        (*names)[(*n_names)++] = copy;
    }
    if (s == TG_OK && *n_names) qsort(*names, (size_t)*n_names, sizeof **names, compare_names);
    return s;
}

tg_status tg_dir_list_fd(tg_arena *a, int fd, const char *path, char ***names, int32_t *n_names,
                         tg_err *e)
{
    *names = NULL;
    *n_names = 0;
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again >= 0 ? fdopendir(again) : NULL;
    if (!d) {
        tg_status s = fail_errno(e, path, "read the directory");
        if (again >= 0) close(again);
        return s;
    }
    tg_status s = list_names(a, d, names, n_names, e);
    closedir(d);
    return s;
}

tg_status tg_dir_list(tg_arena *a, const char *path, char ***names, int32_t *n_names, tg_err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *names = NULL;
    *n_names = 0;
    if (fd < 0) return fail_errno(e, path, "read the directory");
    tg_status s = tg_dir_list_fd(a, fd, path, names, n_names, e);
    close(fd);
    return s;
}

tg_status tg_dir_sync(int fd, const char *path, tg_err *e)
{
    return sync_fd(fd, path, e);
}

tg_status tg_path_exchange_at(int from_fd, const char *from, int to_fd, const char *to,
                              bool *is_exchanged, tg_err *e)
{
    /* Two processes may put folders in the same place at once: what was absent for the exchange can
     * be there for the rename, and then the exchange is tried again. */
    for (int attempt = 0; attempt < 100; attempt++) {
        *is_exchanged = renameat2(from_fd, from, to_fd, to, RENAME_EXCHANGE) == 0;
        if (*is_exchanged) return sync_fd(to_fd, to, e);
        if (errno != ENOENT && errno != EINVAL && errno != ENOSYS) break;
        /* Nothing there yet; or a file system that cannot exchange, where a rename over an empty
         * place is the nearest thing. */
        if (errno != ENOENT) TG_TRY(tg_path_remove_at(to_fd, to, e));
        if (renameat(from_fd, from, to_fd, to) == 0) return sync_fd(to_fd, to, e);
        if (errno != EEXIST && errno != ENOTEMPTY && errno != EISDIR && errno != ENOTDIR) break;
    }
    return fail_errno(e, to, "put in place");
}

static tg_status lock_file(int *out, int dir_fd, const char *path, int mode, tg_err *e)
{
    *out = -1;
    int fd = openat(dir_fd, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0) return fail_errno(e, path, "open the lock");
    int rc;
    do
        rc = flock(fd, mode);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) {
        *out = fd;
        return TG_OK;
    }
    tg_status s = errno == EWOULDBLOCK
                      ? tg_fail(e, TG_E_BUSY, "%s: is locked by another process", path)
                      : fail_errno(e, path, "lock");
    close(fd);
    return s;
}

tg_status tg_lock_acquire(int *out, const char *path, tg_err *e)
{
    return lock_file(out, AT_FDCWD, path, LOCK_EX, e);
}

tg_status tg_lock_try_at(int *out, int dir_fd, const char *path, tg_err *e)
{
    return lock_file(out, dir_fd, path, LOCK_EX | LOCK_NB, e);
}

void tg_lock_release(int fd)
{
    if (fd >= 0) close(fd);
}
