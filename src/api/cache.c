/* SPDX-License-Identifier: Apache-2.0
 * cache.c - exported models found again.
 *
 * An entry is an artifact under <cache>/<name>-<key>/, where the key hashes what the artifact's
 * bytes depend on and can be known without reading weights: the compiler version, the config as it
 * is filled in, and real path, size and time of every file of the source. Beside it lies
 * <name>-<key>.json with the same facts in words, so that a miss can say what differed. One lock
 * per entry lets one process export while others wait. */
#include "api/api.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static tg_status find_root(tg_buf *out, tg_err *e)
{
    const char *dir = tg_env_get(TG_ENV_CACHE_DIR), *xdg = tg_env_get(TG_ENV_XDG_CACHE_HOME);
    const char *home = tg_env_get(TG_ENV_HOME);
    if (dir)
        tg_buf_add_cstr(out, dir);
    else if (xdg)
        tg_path_join(out, xdg, "trigraph");
    else if (home)
        tg_path_join(out, home, ".cache/trigraph");
    else
        return tg_fail(e, TG_E_IO, "there is no place for the cache: set TG_CACHE_DIR or HOME");
    return tg_buf_check(out, e);
}

/* The facts an entry depends on, in words. */
static json_t *describe_key(const tg_checkpoint *c, const tg_export_config *config,
                            const char *calibration)
{
    json_t *files = json_array();
    for (int32_t i = 0; i < tg_checkpoint_n_files(c); i++) {
        const tg_source_file *f = tg_checkpoint_get_file(c, i);
        json_array_append_new(files, json_pack("{s:s, s:I, s:I}", "path", f->real_path, "bytes",
                                               (json_int_t)f->n_bytes, "mtime_ns",
                                               (json_int_t)f->mtime_ns));
    }
    return json_pack("{s:s, s:i, s:i, s:s, s:o, s:o}", "compiler", TG_VERSION, "format",
                     TG_ARTIFACT_VERSION, "outlier_run", TG_OUTLIER_RUN_VERSION, "calibration",
                     calibration, "config", tg_export_config_print(config), "files", files);
}

/* Of the text in hex, empty without one. */
static tg_status hash_calibration(char hex[33], const tg_export_options *o, tg_err *e)
{
    hex[0] = 0;
    if (!o || !o->calibration_file) return TG_OK;
    tg_calibration c;
    TG_TRY(tg_calibration_open(&c, o->calibration_file, e));
    tg_content_hash_print(hex, &c.hash);
    tg_calibration_close(&c);
    return TG_OK;
}

/* "SmolLM2-135M.Q4_1" of the source's name, safe in a file name and not too long. */
static void add_entry_name(tg_buf *out, const tg_checkpoint *c)
{
    const char *name = tg_path_name(tg_checkpoint_get_path(c));
    for (size_t i = 0; name[i] && i < 64; i++) {
        bool is_safe = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                       (name[i] >= '0' && name[i] <= '9') || name[i] == '-' || name[i] == '_' ||
                       (name[i] == '.' && i > 0);
        tg_buf_add_byte(out, is_safe ? name[i] : '_');
    }
}

typedef struct entry {
    tg_buf root, dir, note, lock;
    json_t *key;
} entry;

static void deinit_entry(entry *x)
{
    tg_buf_deinit(&x->root);
    tg_buf_deinit(&x->dir);
    tg_buf_deinit(&x->note);
    tg_buf_deinit(&x->lock);
    json_decref(x->key);
}

/* Reads no weights of the source: its config decides defaults, its files the key. */
static tg_status find_entry(entry *x, const char *source, const tg_export_options *o, tg_err *e)
{
    tg_export_config config;
    tg_checkpoint *c = NULL;
    tg_loaded_checkpoint *b = NULL;
    tg_buf text = {0};
    char calibration[33];
    tg_status s = find_root(&x->root, e);
    if (s == TG_OK) s = tg_export_options_read(&config, o, e);
    if (s == TG_OK) s = tg_checkpoint_open(&c, source, e);
    if (s == TG_OK) s = tg_loaded_checkpoint_open(&b, c, e);
    if (s == TG_OK) s = tg_export_config_check(&config, tg_loaded_checkpoint_hparams(b), e);
    if (s == TG_OK) s = hash_calibration(calibration, o, e);
    if (s == TG_OK) {
        x->key = describe_key(c, &config, calibration);
        s = x->key ? tg_json_print(&text, x->key, 2, e) : tg_fail_nomem(e, 0, "a cache key");
    }
    if (s == TG_OK) {
        XXH128_hash_t h = XXH3_128bits(text.ptr, text.len);
        tg_path_join(&x->dir, x->root.ptr, "");
        add_entry_name(&x->dir, c);
        tg_buf_printf(&x->dir, "-%016llx", (unsigned long long)(h.high64 ^ h.low64));
        tg_buf_printf(&x->note, "%s.json", tg_buf_cstr(&x->dir));
        tg_buf_printf(&x->lock, "%s.lock", tg_buf_cstr(&x->dir));
        s = tg_buf_check(&x->dir, e);
        if (s == TG_OK) s = tg_buf_check(&x->lock, e);
    }
    tg_buf_deinit(&text);
    tg_loaded_checkpoint_free(b);
    tg_checkpoint_close(c);
    return s;
}

/* The first field in which an older entry of the same source differs, for the line about the
 * miss. */
static const char *find_difference(const json_t *ours, const json_t *theirs)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)ours, name, value)
    {
        const json_t *other = json_object_get(theirs, name);
        if (strcmp(name, "config") == 0 && json_is_object(other)) {
            const char *field = find_difference(value, other);
            if (field) return field;
        } else if (!json_equal(value, other)) {
            return name;
        }
    }
    return NULL;
}

static bool has_same_paths(const json_t *a, const json_t *b)
{
    const json_t *fa = json_object_get(a, "files"), *fb = json_object_get(b, "files");
    size_t n = json_array_size(fa);
    if (n != json_array_size(fb)) return false;
    for (size_t i = 0; i < n; i++)
        if (!json_equal(json_object_get(json_array_get(fa, i), "path"),
                        json_object_get(json_array_get(fb, i), "path")))
            return false;
    return true;
}

/* Why there is no entry: "new", or the field that an entry of the same files has otherwise. */
static void explain_miss(tg_buf *out, const entry *x)
{
    tg_arena a = {0};
    tg_buf path = {0};
    char **names;
    int32_t n = 0;
    const char *field = NULL;
    if (tg_dir_list(&a, x->root.ptr, &names, &n, NULL) != TG_OK) n = 0;
    for (int32_t i = 0; i < n && !field; i++) {
        json_t *other;
        if (!tg_str_has_suffix(tg_str_from_cstr(names[i]), TG_STR(".json"))) continue;
        if (tg_json_load(&other, tg_path_join(&path, x->root.ptr, names[i]), NULL) != TG_OK)
            continue;
        if (has_same_paths(x->key, other)) field = find_difference(x->key, other);
        if (field) tg_buf_printf(out, "the cached one differs in '%s'", field);
        json_decref(other);
    }
    if (!field) tg_buf_add_cstr(out, "first use");
    tg_buf_deinit(&path);
    tg_arena_deinit(&a);
}

static tg_status export_entry(const entry *x, const char *source, const tg_export_options *o,
                              void (*note)(void *context, const char *line), tg_err *e)
{
    static const tg_export_options defaults;
    tg_buf line = {0}, text = {0};
    if (note) {
        tg_buf_printf(&line, "exporting %s into the cache (", tg_path_name(source));
        explain_miss(&line, x);
        tg_buf_printf(&line, "): %s", tg_buf_cstr(&x->dir));
        note((o ? o : &defaults)->context, tg_buf_cstr(&line));
    }
    tg_status s = tg_path_remove(x->dir.ptr, e); /* what is there was found unusable */
    if (s == TG_OK) s = tg_export(source, x->dir.ptr, o, e);
    if (s == TG_OK) s = tg_json_print(&text, x->key, 2, e);
    if (s == TG_OK) s = tg_file_save(x->note.ptr, tg_buf_str(&text), e);
    tg_buf_deinit(&line);
    tg_buf_deinit(&text);
    return s;
}

/* ---- trust: an entry is run as it is, so nobody else may have made or changed it */

static tg_status check_owner(const char *path, const struct stat *st, tg_err *e)
{
    if (st->st_uid == geteuid() || st->st_uid == 0) return TG_OK;
    return tg_fail(e, TG_E_IO,
                   "%s: belongs to user %d, and the cache of user %d must be its own; set "
                   "TG_CACHE_DIR to a folder of yours",
                   path, (int)st->st_uid, (int)geteuid());
}

static tg_status check_mode(const char *path, mode_t writers, tg_err *e)
{
    if (!writers) return TG_OK;
    return tg_fail(
        e, TG_E_IO,
        "%s: can be written to by %s, so what is in it cannot be trusted; chmod go-w it, "
        "or set TG_CACHE_DIR to another folder",
        path, writers & S_IWOTH ? "everybody" : "its group");
}

/* Links are followed: where they lead is what counts. *reachers: whom the folder lets pass, as the
 * bits of who may write. */
static tg_status check_root(const char *root, mode_t *reachers, tg_err *e)
{
    struct stat st;
    if (stat(root, &st) != 0)
        return tg_fail(e, TG_E_IO, "%s: cannot be looked at: %s", root, strerror(errno));
    TG_TRY(check_owner(root, &st, e));
    *reachers = (st.st_mode & (S_IXGRP | S_IXOTH)) << 1;
    return check_mode(root, st.st_mode & (S_IWGRP | S_IWOTH), e);
}

/* The entry's folder and its files. Where the root lets nobody else pass, their modes do not
 * matter: a umask of 002 is usual. */
static tg_status check_entry(const char *dir, mode_t reachers, tg_err *e)
{
    tg_arena a = {0};
    tg_buf path = {0};
    char **names;
    int32_t n = 0;
    struct stat st;
    if (lstat(dir, &st) != 0) return TG_OK; /* nothing there */
    tg_status s = check_owner(dir, &st, e);
    if (s == TG_OK) s = check_mode(dir, st.st_mode & reachers, e);
    if (s == TG_OK && S_ISDIR(st.st_mode)) s = tg_dir_list(&a, dir, &names, &n, e);
    for (int32_t i = 0; s == TG_OK && i < n; i++) {
        if (lstat(tg_path_join(&path, dir, names[i]), &st) != 0) continue;
        s = check_owner(path.ptr, &st, e);
        if (s == TG_OK) s = check_mode(path.ptr, st.st_mode & reachers, e);
    }
    if (s == TG_OK) s = tg_buf_check(&path, e);
    tg_buf_deinit(&path);
    tg_arena_deinit(&a);
    return s;
}

static tg_status check_trust(const entry *x, tg_err *e)
{
    mode_t reachers = 0;
    if (!tg_path_exists(x->root.ptr)) return TG_OK;
    TG_TRY(check_root(x->root.ptr, &reachers, e));
    return check_entry(x->dir.ptr, reachers, e);
}

/* Opens all that a model needs: an entry whose files have an older format is exported again. */
static bool is_usable(const char *dir)
{
    tg_model *m = NULL;
    bool is = tg_artifact_is_at(dir) && tg_model_open(&m, dir, NULL) == TG_OK;
    tg_model_close(m);
    return is;
}

tg_status tg_cache_find(char **dir, const char *source, const tg_export_options *o,
                        void (*note)(void *context, const char *line), tg_err *e)
{
    *dir = NULL;
    if (tg_artifact_is_at(source)) return tg_give_text(dir, tg_str_from_cstr(source), e);
    entry x = {0};
    int lock = -1;
    tg_status s = find_entry(&x, source, o, e);
    if (s == TG_OK) s = check_trust(&x, e);
    if (s == TG_OK && !is_usable(x.dir.ptr)) {
        s = tg_dir_make_private(x.root.ptr, e);
        if (s == TG_OK) s = check_trust(&x, e);
        if (s == TG_OK) s = tg_lock_acquire(&lock, x.lock.ptr, e);
        /* Whoever held the lock before may have done the work. */
        if (s == TG_OK && !is_usable(x.dir.ptr)) s = export_entry(&x, source, o, note, e);
        tg_lock_release(lock);
    }
    if (s == TG_OK) s = tg_give_text(dir, tg_buf_str(&x.dir), e);
    deinit_entry(&x);
    return s;
}
