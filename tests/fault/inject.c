/* SPDX-License-Identifier: Apache-2.0
 * inject.c - a library that is loaded before the C library (LD_PRELOAD) and makes the n-th call of
 * one kind fail in a given way, in the program as it is built.
 *
 * TG_INJECT is "KIND:N:WAY". KIND is open, read, write, sync, map, rename or memory; calls are
 * counted from 1 over all threads of a process. WAY is EIO, ENOSPC, EINTR, ENOMEM, "short" (a read
 * or write of half the bytes, once), "shrink" (the file is cut to nothing after it was mapped) or
 * "count": nothing fails. With TG_INJECT_COUNT=FILE each process adds a line with the number of its
 * calls when it ends.
 *
 * A failure happens once; memory is refused from the n-th call on, as a full machine does. Writing
 * to standard error does not fail. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAY_COUNT = -1, WAY_SHORT = -2, WAY_SHRINK = -3 };

static char kind[16];
static long target;
static int way = WAY_COUNT;
static atomic_long n_calls;
static atomic_bool is_on;

static int find_way(const char *name)
{
    static const struct {
        const char *name;
        int way;
    } rows[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC},   {"EINTR", EINTR},
                {"ENOMEM", ENOMEM}, {"short", WAY_SHORT}, {"shrink", WAY_SHRINK}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].way;
    return WAY_COUNT;
}

__attribute__((constructor)) static void begin(void)
{
    char name[16] = "";
    const char *text = getenv("TG_INJECT");
    if (!text || sscanf(text, "%15[^:]:%ld:%15s", kind, &target, name) != 3) return;
    way = find_way(name);
    atomic_store(&is_on, true);
}

/* A line a process: children count for themselves. */
__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("TG_INJECT_COUNT");
    char text[32];
    atomic_store(&is_on, false);
    if (!path) return;
    int n = snprintf(text, sizeof text, "%ld\n", atomic_load(&n_calls));
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0) (void)!syscall(SYS_write, fd, text, (size_t)n);
}

/* Whether this call of `which` is the one. */
static int is_hit(const char *which)
{
    if (!atomic_load(&is_on) || strcmp(kind, which) != 0) return 0;
    long n = atomic_fetch_add(&n_calls, 1) + 1;
    return way != WAY_COUNT && n == target;
}

#define FAIL_IF_HIT(which, value)                                                                  \
    do {                                                                                           \
        if (is_hit(which)) {                                                                       \
            errno = way;                                                                           \
            return value;                                                                          \
        }                                                                                          \
    } while (0)

int openat(int dir, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = va_arg(ap, int);
    va_end(ap);
    FAIL_IF_HIT("open", -1);
    return (int)syscall(SYS_openat, dir, path, flags, flags & (O_CREAT | O_TMPFILE) ? mode : 0);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = va_arg(ap, int);
    va_end(ap);
    FAIL_IF_HIT("open", -1);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags,
                        flags & (O_CREAT | O_TMPFILE) ? mode : 0);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    if (is_hit("read")) {
        if (way != WAY_SHORT) {
            errno = way;
            return -1;
        }
        n = (n + 1) / 2;
    }
    return syscall(SYS_read, fd, bytes, n);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (fd != STDERR_FILENO && is_hit("write")) {
        if (way != WAY_SHORT) {
            errno = way;
            return -1;
        }
        n = (n + 1) / 2;
    }
    return syscall(SYS_write, fd, bytes, n);
}

int fsync(int fd)
{
    FAIL_IF_HIT("sync", -1);
    return (int)syscall(SYS_fsync, fd);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    int hit = fd >= 0 && is_hit("map");
    if (hit && way != WAY_SHRINK) {
        errno = way;
        return MAP_FAILED;
    }
    void *p = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    if (hit && p != MAP_FAILED) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        (void)!truncate(path, 0);
    }
    return p;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    FAIL_IF_HIT("rename", -1);
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    FAIL_IF_HIT("rename", -1);
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int rename(const char *from, const char *to)
{
    FAIL_IF_HIT("rename", -1);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

void _exit(int code)
{
    end();
    for (;;)
        syscall(SYS_exit_group, code);
}

/* ---- memory: from the n-th call on */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static int is_refused(void)
{
    if (!atomic_load(&is_on) || strcmp(kind, "memory") != 0) return 0;
    long n = atomic_fetch_add(&n_calls, 1) + 1;
    if (way == WAY_COUNT || n < target) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n)
{
    return is_refused() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return is_refused() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return is_refused() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return is_refused() ? NULL : __libc_memalign(align, n);
}
