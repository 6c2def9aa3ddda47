/* SPDX-License-Identifier: Apache-2.0
 * artifact_writer.c - writing artifact folders. docs/artifact.md describes them.
 *
 * A new artifact is built in <parent>/.<name>.tmp.<pid>.<n>/new. Beside "new" lies "lock", held by
 * flock as long as the process lives, so that nothing but the lock says who is alive: process ids
 * come again. Committing exchanges "new" with the target and removes the temporary folder with
 * whatever is then in it.
 *
 * A temporary's name can be guessed, and others may be able to write to its parent: everything in
 * it is reached through descriptors of folders that were opened without following a link and belong
 * to this user. */
#include "base/fault.h"
#include "base/log.h"
#include "ir/artifact_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ATTEMPTS = 1000 };

struct tg_artifact_writer {
    tg_arena arena;
    const char *target, *parent, *name; /* the place; "out/x", "out", "x" */
    int parent_fd, tmp_fd, new_fd;      /* -1: not open */
    char *tmp;           /* the temporary folder's name in the parent, NULL: none yet */
    int lock;            /* -1: none */
    tg_file_writer *out; /* the file being streamed, or NULL */
    int streamed;        /* which it is */
    XXH3_state_t *hash;  /* of what was streamed so far; owned */
    struct {
        bool is_written;
        int64_t n_bytes;
        char hex[TG_HASH_HEX_BYTES];
    } written[TG_ARTIFACT_N_FILES];
};

/* Splits the target into folder and name; "." when it has no folder. */
static tg_status set_target(tg_artifact_writer *w, const char *path, tg_err *e)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *target = tg_arena_copy_str(&w->arena, path, n);
    if (!target) return tg_fail_nomem(e, n, "a path");
    const char *name = tg_path_name(target);
    if (name[0] == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return tg_fail(e, TG_E_ARGUMENT, "'%s' names no new folder for the artifact", path);
    size_t head = (size_t)(name - target);
    char *parent = head ? tg_arena_copy_str(&w->arena, target, head) : NULL;
    if (head && !parent) return tg_fail_nomem(e, n, "a path");
    w->target = target;
    w->name = name;
    w->parent = parent ? parent : ".";
    return TG_OK;
}

/* Is the file listed by the artifact.json of its folder, or that file? */
static tg_status check_listed(int dir_fd, const json_t *table, const char *name, const char *target,
                              tg_err *e)
{
    struct stat st;
    bool is_listed = strcmp(name, "artifact.json") == 0 || json_object_get(table, name);
    if (is_listed && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT,
                   "%s holds '%s', which is no part of the artifact and would be deleted; move it "
                   "away, or choose another folder",
                   target, name);
}

static tg_status check_all_listed(int dir_fd, const json_t *table, const char *target, tg_err *e)
{
    tg_arena a = {0};
    char **names;
    int32_t n = 0;
    tg_status s = tg_dir_list_fd(&a, dir_fd, target, &names, &n, e);
    for (int32_t i = 0; s == TG_OK && i < n; i++)
        s = check_listed(dir_fd, table, names[i], target, e);
    tg_arena_deinit(&a);
    return s;
}

/* Whether the open folder is an artifact, of any format, and nothing else: by its checksum, so that
 * a folder with somebody's own artifact.json is none. */
static tg_status check_replaceable(int dir_fd, const char *target, tg_err *e)
{
    json_t *json = NULL;
    tg_status s = tg_artifact_load_json(&json, dir_fd, NULL);
    const json_t *table = json_object_get(json, "files");
    if (s == TG_OK && json_is_integer(json_object_get(json, "format")) && json_is_object(table))
        s = tg_artifact_check_checksum(json, NULL);
    else if (s == TG_OK)
        s = TG_E_CORRUPT;
    if (s == TG_OK)
        s = check_all_listed(dir_fd, table, target, e);
    else if (s != TG_E_NOMEM)
        s = tg_fail(e, TG_E_ARGUMENT,
                    "%s exists and is no artifact that an export wrote; choose another folder, or "
                    "remove it",
                    target);
    else
        s = tg_fail_nomem(e, 0, "artifact.json");
    json_decref(json);
    return s;
}

static tg_status check_opened_target(int dir_fd, const char *target, bool is_forced, tg_err *e)
{
    TG_TRY(check_replaceable(dir_fd, target, e));
    if (is_forced) return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT, "%s is an artifact already; --force replaces it", target);
}

/* Asked at the start, to fail before the work, and again before the exchange. Another export may
 * replace and remove the folder while it is looked at. */
static tg_status check_target(const tg_artifact_writer *w, bool is_forced, tg_err *e)
{
    for (;;) {
        tg_err mine = {0};
        struct stat st;
        int fd = openat(w->parent_fd, w->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && fstatat(w->parent_fd, w->name, &st, AT_SYMLINK_NOFOLLOW) != 0 &&
            errno == ENOENT)
            return TG_OK;
        if (fd < 0)
            return tg_fail(e, TG_E_ARGUMENT,
                           "%s exists and is no artifact; choose another folder, or remove it",
                           w->target);
        tg_status s = check_opened_target(fd, w->target, is_forced, &mine);
        bool is_same = tg_is_same_file(fd, w->parent_fd, w->name);
        close(fd);
        if (s != TG_OK && !is_same) continue;
        if (s != TG_OK && e) *e = mine;
        return s;
    }
}

/* Formats a path into the arena. */
static char *make_path(tg_artifact_writer *w, const char *dir, const char *name)
{
    tg_buf b = {0};
    tg_path_join(&b, dir, name);
    char *path = b.is_failed ? NULL : tg_arena_copy_str(&w->arena, b.ptr, b.len);
    tg_buf_deinit(&b);
    return path;
}

/* Removes a temporary folder, open as fd, whose lock we hold: the lock goes last, and the folder
 * with it. Another process may look at the same remains at this moment, so that the last step can
 * fail and be done by the other. */
static void remove_temporary(int parent_fd, const char *tmp, int fd)
{
    tg_err e = {0};
    /* Tried twice: what failed once, for want of a descriptor or by a signal, may work now. */
    if (tg_path_remove_at(fd, "new", NULL) != TG_OK && tg_path_remove_at(fd, "new", &e) != TG_OK) {
        tg_log_warn("%s: remains: %s", tmp, e.msg);
        return;
    }
    (void)unlinkat(fd, "lock", 0);
    (void)unlinkat(parent_fd, tmp, AT_REMOVEDIR);
}

/* Is `name` one of this target's temporaries? */
static bool is_temporary(const tg_artifact_writer *w, const char *name)
{
    size_t n = strlen(w->name);
    return name[0] == '.' && strncmp(name + 1, w->name, n) == 0 &&
           strncmp(name + 1 + n, ".tmp.", 5) == 0;
}

/* Removes what dead processes of this user left beside the target. A lock that can be taken has no
 * living owner. */
static tg_status remove_stale(tg_artifact_writer *w, tg_err *e)
{
    char **names;
    int32_t n_names;
    TG_TRY(tg_dir_list_fd(&w->arena, w->parent_fd, w->parent, &names, &n_names, e));
    for (int32_t i = 0; i < n_names; i++) {
        int fd, lock;
        if (!is_temporary(w, names[i])) continue;
        if (tg_dir_open_at(&fd, w->parent_fd, names[i], NULL) != TG_OK) continue;
        if (tg_lock_try_at(&lock, fd, "lock", NULL) == TG_OK) {
            remove_temporary(w->parent_fd, names[i], fd);
            tg_lock_release(lock);
        }
        close(fd);
    }
    return TG_OK;
}

/* In a folder just made: TG_E_BUSY where another process took it for remains, which it does before
 * we have the lock. */
static tg_status fill_temporary(tg_artifact_writer *w, const char *tmp, tg_err *e)
{
    tg_status s = tg_dir_open_at(&w->tmp_fd, w->parent_fd, tmp, e);
    if (s != TG_OK) return errno == ENOENT ? TG_E_BUSY : s;
    TG_TRY(tg_lock_try_at(&w->lock, w->tmp_fd, "lock", e));
    if (!tg_is_same_file(w->lock, w->tmp_fd, "lock")) return TG_E_BUSY;
    if (mkdirat(w->tmp_fd, "new", 0777) != 0) {
        if (errno == ENOENT) return TG_E_BUSY; /* the folder is removed already */
        return tg_fail(e, TG_E_IO, "%s/new: cannot make the folder: %s", tmp, strerror(errno));
    }
    return tg_dir_open_at(&w->new_fd, w->tmp_fd, "new", e);
}

static void close_temporary(tg_artifact_writer *w)
{
    int *const fds[] = {&w->new_fd, &w->tmp_fd, &w->lock};
    if (w->tmp) {
        if (w->tmp_fd >= 0)
            remove_temporary(w->parent_fd, w->tmp, w->tmp_fd);
        else
            (void)unlinkat(w->parent_fd, w->tmp, AT_REMOVEDIR);
        tg_temporary_remove(w->parent_fd, w->tmp);
        w->tmp = NULL;
    }
    for (size_t i = 0; i < TG_COUNT(fds); i++) {
        if (*fds[i] >= 0) close(*fds[i]);
        *fds[i] = -1;
    }
}

/* One attempt at a folder of our own: TG_E_BUSY, and another name is to be tried. */
static tg_status try_temporary(tg_artifact_writer *w, int n, tg_err *e)
{
    tg_buf b = {0};
    tg_err mine = {0};
    tg_buf_printf(&b, ".%s.tmp.%d.%d", w->name, (int)getpid(), n);
    char *tmp = b.is_failed ? NULL : tg_arena_copy_str(&w->arena, b.ptr, b.len);
    tg_buf_deinit(&b);
    if (!tmp) return tg_fail_nomem(e, 0, "a path");
    if (mkdirat(w->parent_fd, tmp, 0700) != 0) {
        if (errno == EEXIST) return TG_E_BUSY;
        return tg_fail(e, TG_E_IO, "%s/%s: cannot make the folder: %s", w->parent, tmp,
                       strerror(errno));
    }
    w->tmp = tmp;
    tg_temporary_add(w->parent_fd, tmp);
    tg_status s = fill_temporary(w, tmp, &mine);
    if (s == TG_OK) return TG_OK;
    close_temporary(w);
    if (s != TG_E_BUSY) s = tg_fail(e, s, "%s/%s: %s", w->parent, tmp, mine.msg);
    return s;
}

/* Names may be taken by other exports of this process, or by remains of an earlier process with our
 * id that somebody is clearing right now. */
static tg_status make_temporary(tg_artifact_writer *w, tg_err *e)
{
    for (int n = 0; n < MAX_ATTEMPTS; n++) {
        tg_status s = try_temporary(w, n, e);
        if (s != TG_E_BUSY) return s;
    }
    return tg_fail(e, TG_E_IO, "%s: no temporary folder can be made beside it: %d names are taken",
                   w->target, MAX_ATTEMPTS);
}

static tg_status open_parent(tg_artifact_writer *w, tg_err *e)
{
    TG_TRY(tg_dir_make(w->parent, e));
    w->parent_fd = open(w->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->parent_fd >= 0) return TG_OK;
    return tg_fail(e, TG_E_IO, "%s: cannot open the folder: %s", w->parent, strerror(errno));
}

tg_status tg_artifact_writer_new(tg_artifact_writer **out, const char *path, bool is_forced,
                                 tg_err *e)
{
    *out = NULL;
    tg_artifact_writer *w = TG_NEW(tg_artifact_writer);
    if (!w) return tg_fail_nomem(e, sizeof *w, "an artifact writer");
    w->lock = w->parent_fd = w->tmp_fd = w->new_fd = -1;
    w->hash = TG_NEW(XXH3_state_t); /* aligned to 64 bytes, as it wants */
    if (!w->hash) {
        tg_artifact_writer_free(w);
        return tg_fail_nomem(e, sizeof *w->hash, "a checksum");
    }
    XXH3_INITSTATE(w->hash);
    tg_status s = set_target(w, path, e);
    if (s == TG_OK) s = open_parent(w, e);
    if (s == TG_OK) s = check_target(w, is_forced, e);
    if (s == TG_OK) s = remove_stale(w, e);
    if (s == TG_OK) s = make_temporary(w, e);
    if (s == TG_OK)
        *out = w;
    else
        tg_artifact_writer_free(w);
    return s;
}

static void hash_stream(void *context, const void *bytes, size_t n)
{
    if (n) XXH3_128bits_update(context, bytes, n);
}

tg_status tg_artifact_writer_begin(tg_artifact_writer *w, const char *name, tg_file_writer **out,
                                   tg_err *e)
{
    *out = NULL;
    TG_ASSERT(!w->out); /* one file at a time */
    int file = tg_artifact_find_file(name);
    if (file < 0 || w->written[file].is_written)
        return tg_fail(e, TG_E_ARGUMENT, "an artifact has no file '%s', or has it already", name);
    char *path = make_path(w, w->target, name); /* for messages: there it will be */
    if (!path) return tg_fail_nomem(e, strlen(name), "a path");
    TG_TRY(tg_file_writer_open_at(&w->out, w->new_fd, name, path, e));
    XXH3_128bits_reset(w->hash);
    tg_file_writer_watch(w->out, hash_stream, w->hash);
    w->streamed = file;
    *out = w->out;
    return TG_OK;
}

tg_status tg_artifact_writer_end(tg_artifact_writer *w, tg_err *e)
{
    TG_ASSERT(w->out);
    tg_file_writer *o = w->out;
    int file = w->streamed;
    w->out = NULL;
    w->written[file].n_bytes = (int64_t)tg_file_writer_n_bytes(o);
    TG_TRY(tg_file_writer_close(o, e)); /* the last bytes pass the hash here */
    tg_artifact_print_hash(XXH3_128bits_digest(w->hash), w->written[file].hex);
    w->written[file].is_written = true;
    return TG_OK;
}

tg_status tg_artifact_writer_add(tg_artifact_writer *w, const char *name, tg_str bytes, tg_err *e)
{
    tg_file_writer *out;
    TG_TRY(tg_artifact_writer_begin(w, name, &out, e));
    TG_TRY(tg_file_writer_write(out, bytes.ptr, bytes.len, e));
    return tg_artifact_writer_end(w, e);
}

tg_status tg_artifact_writer_map(tg_artifact_writer *w, const char *name, tg_file_map *out,
                                 tg_err *e)
{
    int file = tg_artifact_find_file(name);
    TG_ASSERT(file >= 0 && w->written[file].is_written);
    char *path = make_path(w, w->target, name);
    if (!path) return tg_fail_nomem(e, strlen(name), "a path");
    return tg_file_map_open_at(out, w->new_fd, name, path, e);
}

tg_status tg_artifact_writer_drop(tg_artifact_writer *w, const char *name, tg_err *e)
{
    int file = tg_artifact_find_file(name);
    TG_ASSERT(file >= 0 && w->written[file].is_written);
    w->written[file].is_written = false;
    return tg_path_remove_at(w->new_fd, name, e);
}

/* The caller's keys between "format" and "files", and the checksum of it all at the end. */
static json_t *complete_json(const tg_artifact_writer *w, json_t *json)
{
    json_t *all = json_object(), *table = json_object();
    int failed =
        !all || !table || json_object_set_new(all, "format", json_integer(TG_ARTIFACT_VERSION));
    failed = failed || json_object_update(all, json);
    for (int i = 0; i < TG_ARTIFACT_N_FILES && !failed; i++) {
        if (!w->written[i].is_written) continue;
        json_t *entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)w->written[i].n_bytes,
                                  "xxh3_128", w->written[i].hex);
        failed = !entry || json_object_set_new(table, tg_artifact_files[i].name, entry);
    }
    char hex[TG_HASH_HEX_BYTES];
    failed = failed || json_object_set(all, "files", table) ||
             tg_artifact_hash_json(all, hex, NULL) != TG_OK ||
             json_object_set_new(all, "checksum", json_string(hex));
    json_decref(table);
    if (!failed) return all;
    json_decref(all);
    return NULL;
}

static tg_status write_json(tg_artifact_writer *w, json_t *json, tg_err *e)
{
    json_t *all = complete_json(w, json);
    if (!all) return tg_fail_nomem(e, 0, "artifact.json");
    tg_buf text = {0};
    tg_file_writer *out = NULL;
    char *path = make_path(w, w->target, "artifact.json");
    tg_status s = path ? tg_json_print(&text, all, 2, e) : tg_fail_nomem(e, 0, "a path");
    tg_buf_add_byte(&text, '\n');
    if (s == TG_OK) s = tg_buf_check(&text, e);
    if (s == TG_OK) s = tg_file_writer_open_at(&out, w->new_fd, "artifact.json", path, e);
    if (s == TG_OK) s = tg_file_writer_write(out, text.ptr, text.len, e);
    if (s == TG_OK)
        s = tg_file_writer_close(out, e);
    else
        tg_file_writer_abandon(out);
    if (s == TG_OK) s = tg_dir_sync(w->new_fd, w->target, e);
    tg_buf_deinit(&text);
    json_decref(all);
    return s;
}

/* The folder that the new artifact replaced is looked at once more, now that nobody else can reach
 * it: a foreign one goes back. */
static tg_status put_in_place(const tg_artifact_writer *w, tg_err *e)
{
    bool is_exchanged, is_back;
    int fd;
    TG_TRY(tg_path_exchange_at(w->tmp_fd, "new", w->parent_fd, w->name, &is_exchanged, e));
    if (!is_exchanged) return TG_OK;
    fd = openat(w->tmp_fd, "new", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    tg_status s = fd >= 0 ? check_replaceable(fd, w->target, e)
                          : tg_fail(e, TG_E_ARGUMENT, "%s was replaced while it was being exported",
                                    w->target);
    if (fd >= 0) close(fd);
    if (s == TG_E_ARGUMENT)
        TG_TRY(tg_path_exchange_at(w->tmp_fd, "new", w->parent_fd, w->name, &is_back, NULL));
    return s == TG_E_ARGUMENT ? s : TG_OK;
}

tg_status tg_artifact_writer_commit(tg_artifact_writer *w, json_t *json, tg_err *e)
{
    tg_artifact *a;
    TG_ASSERT(!w->out);
    TG_TRY(write_json(w, json, e));
    /* An artifact that cannot be opened is not put in place. */
    TG_TRY(tg_artifact_open_at(&a, w->new_fd, w->target, e));
    tg_artifact_close(a);
    /* Somebody may have been faster with the same artifact: then one replaces the other. */
    TG_TRY(check_target(w, true, e));
    return put_in_place(w, e);
}

void tg_artifact_writer_free(tg_artifact_writer *w)
{
    if (!w) return;
    tg_file_writer_abandon(w->out);
    close_temporary(w);
    if (w->parent_fd >= 0) close(w->parent_fd);
    tg_mem_free(w->hash);
    tg_arena_deinit(&w->arena);
    tg_mem_free(w);
}
