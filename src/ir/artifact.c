/* SPDX-License-Identifier: Apache-2.0
 * artifact.c - opening and verifying artifact folders. docs/artifact.md describes them. */
#include "ir/artifact.h"

#include "ir/artifact_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JSON_LIMIT = 16 << 20 };

/* No small part of a model is larger. */
static const size_t FILE_LIMIT = (size_t)1 << 31;

const tg_artifact_file tg_artifact_files[TG_ARTIFACT_N_FILES] = {
    [TG_ARTIFACT_PROGRAM] = {"program.bin", true, false},
    [TG_ARTIFACT_WEIGHTS] = {"weights.0.bin", true, true},
    [TG_ARTIFACT_TOKENIZER] = {"tokenizer.bin", false, false},
    [TG_ARTIFACT_TEMPLATE] = {"template.jinja", false, false},
    [TG_ARTIFACT_TEMPLATES] = {"templates.json", false, false},
    [TG_ARTIFACT_DEFAULTS] = {"defaults.json", false, false},
};

int tg_artifact_find_file(const char *name)
{
    for (int i = 0; i < TG_ARTIFACT_N_FILES; i++)
        if (strcmp(tg_artifact_files[i].name, name) == 0) return i;
    return -1;
}

void tg_artifact_print_hash(XXH128_hash_t h, char out[TG_HASH_HEX_BYTES])
{
    snprintf(out, TG_HASH_HEX_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64,
             (uint64_t)h.low64);
}

static void hash_bytes(const void *bytes, size_t n, char out[TG_HASH_HEX_BYTES])
{
    tg_artifact_print_hash(XXH3_128bits(n ? bytes : "", n), out);
}

tg_status tg_artifact_hash_json(const json_t *json, char out[TG_HASH_HEX_BYTES], tg_err *e)
{
    tg_buf text = {0};
    tg_status s = tg_json_print(&text, json, 2, e);
    if (s == TG_OK) hash_bytes(text.ptr, text.len, out);
    tg_buf_deinit(&text);
    return s;
}

/* ---- opening */

bool tg_is_same_file(int fd, int dir_fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(dir_fd, path, &b, 0) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

static bool is_still_at(int fd, const char *path)
{
    return tg_is_same_file(fd, AT_FDCWD, path);
}

/* Another process may replace the folder while it is looked at, and then removes what was in it. */
bool tg_artifact_is_at(const char *path)
{
    bool is = false, is_same = false;
    while (!is && !is_same) {
        struct stat st;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) return false;
        is = fstatat(fd, "artifact.json", &st, 0) == 0 && S_ISREG(st.st_mode);
        is_same = is_still_at(fd, path);
        close(fd);
    }
    return is;
}

static tg_status fail_damaged(tg_err *e, const char *what)
{
    return tg_fail(e, TG_E_CORRUPT, "%s; the artifact is damaged, export the model again", what);
}

tg_status tg_artifact_check_checksum(json_t *json, tg_err *e)
{
    tg_str sum = {0};
    bool is_there;
    char want[TG_HASH_HEX_BYTES], got[TG_HASH_HEX_BYTES] = "";
    TG_TRY(tg_json_get_str(json, "checksum", &sum, &is_there, "artifact.json", e));
    if (is_there && sum.len == TG_HASH_HEX_BYTES - 1) memcpy(got, sum.ptr, TG_HASH_HEX_BYTES - 1);
    json_object_del(json, "checksum");
    TG_TRY(tg_artifact_hash_json(json, want, e));
    if (strcmp(want, got) == 0) return TG_OK;
    return fail_damaged(e, "artifact.json is not what the export wrote");
}

/* The format first: everything else may be different in another version. */
static tg_status check_json(json_t *json, tg_err *e)
{
    int64_t format = 0;
    bool is_there;
    if (!json_is_object(json)) return fail_damaged(e, "artifact.json is no JSON object");
    TG_TRY(tg_json_get_i64(json, "format", &format, &is_there, "artifact.json", e));
    if (!is_there) return fail_damaged(e, "artifact.json does not say its format");
    if (format != TG_ARTIFACT_VERSION)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "the artifact has format %" PRId64
                       ", this program reads %d; export the model again",
                       format, TG_ARTIFACT_VERSION);
    return tg_artifact_check_checksum(json, e);
}

tg_status tg_artifact_load_json(json_t **out, int dir_fd, tg_err *e)
{
    tg_file_map text;
    struct stat st;
    *out = NULL;
    if (fstatat(dir_fd, "artifact.json", &st, 0) != 0 && errno == ENOENT)
        return tg_fail(e, TG_E_IO, "there is no artifact.json in it, so it is no artifact");
    TG_TRY(tg_file_copy_open_at(&text, dir_fd, "artifact.json", JSON_LIMIT, e));
    tg_status s =
        tg_json_parse(out, (tg_str){(const char *)text.data, text.n_bytes}, "artifact.json", e);
    tg_file_map_close(&text);
    return s;
}

static tg_file_map *map_of(tg_artifact *a, int file)
{
    tg_file_map *const maps[TG_ARTIFACT_N_FILES] = {
        [TG_ARTIFACT_PROGRAM] = &a->program_map,     [TG_ARTIFACT_WEIGHTS] = &a->weights_map,
        [TG_ARTIFACT_TOKENIZER] = &a->tokenizer_map, [TG_ARTIFACT_TEMPLATE] = &a->template_map,
        [TG_ARTIFACT_TEMPLATES] = &a->templates_map,
    };
    return maps[file];
}

/* The entry of a file in artifact.json; *hex is borrowed. */
static tg_status get_entry(const json_t *json, int file, int64_t *n_bytes, tg_str *hex, tg_err *e)
{
    const json_t *entry =
        json_object_get(json_object_get(json, "files"), tg_artifact_files[file].name);
    bool has_bytes, has_hex;
    TG_TRY(tg_json_get_i64(entry, "bytes", n_bytes, &has_bytes, tg_artifact_files[file].name, e));
    TG_TRY(tg_json_get_str(entry, "xxh3_128", hex, &has_hex, tg_artifact_files[file].name, e));
    if (has_bytes && has_hex) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "%s: artifact.json does not give its size and checksum",
                   tg_artifact_files[file].name);
}

static tg_status check_map(const json_t *json, int file, const tg_file_map *m, bool is_hashed,
                           tg_err *e)
{
    int64_t n_bytes = -1;
    tg_str hex = {0};
    char got[TG_HASH_HEX_BYTES];
    TG_TRY(get_entry(json, file, &n_bytes, &hex, e));
    if (n_bytes < 0 || (uint64_t)n_bytes != m->n_bytes)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s has %zu bytes where artifact.json says %" PRId64
                       "; the artifact is damaged, export the model again",
                       tg_artifact_files[file].name, m->n_bytes, n_bytes);
    if (!is_hashed) return TG_OK;
    hash_bytes(m->data, m->n_bytes, got);
    if (tg_str_is(hex, got)) return TG_OK;
    return tg_fail(
        e, TG_E_CORRUPT,
        "%s has not the checksum that artifact.json says; the artifact is damaged, export "
        "the model again",
        tg_artifact_files[file].name);
}

static tg_status open_file(const tg_artifact *a, int dir_fd, int file, tg_file_map *m, tg_err *e)
{
    tg_buf path = {0};
    tg_path_join(&path, a->path, tg_artifact_files[file].name);
    tg_status s = tg_buf_check(&path, e);
    if (s == TG_OK && tg_artifact_files[file].is_lazy)
        s = tg_file_map_open_at(m, dir_fd, tg_artifact_files[file].name, path.ptr, e);
    else if (s == TG_OK)
        s = tg_file_copy_open_at(m, dir_fd, tg_artifact_files[file].name, FILE_LIMIT, e);
    if (s == TG_OK && tg_artifact_files[file].is_lazy) tg_file_map_expect_stream(m);
    if (s == TG_OK) s = check_map(a->json, file, m, !tg_artifact_files[file].is_lazy, e);
    tg_buf_deinit(&path);
    return s;
}

static tg_status open_defaults(tg_artifact *a, int dir_fd, bool is_there, tg_err *e)
{
    tg_file_map m = {0};
    tg_status s = is_there ? open_file(a, dir_fd, TG_ARTIFACT_DEFAULTS, &m, e) : TG_OK;
    tg_str text = is_there ? (tg_str){(const char *)m.data, m.n_bytes} : TG_STR("{}");
    if (s == TG_OK) s = tg_json_parse(&a->defaults, text, "defaults.json", e);
    if (s == TG_OK && !json_is_object(a->defaults))
        s = fail_damaged(e, "defaults.json is no JSON object");
    tg_file_map_close(&m);
    return s;
}

static tg_status open_files(tg_artifact *a, int dir_fd, tg_err *e)
{
    json_t *table = json_object_get(a->json, "files"), *entry;
    const char *name;
    bool is_there[TG_ARTIFACT_N_FILES] = {false};
    if (!json_is_object(table)) return fail_damaged(e, "artifact.json lists no files");
    json_object_foreach(table, name, entry)
    {
        int file = tg_artifact_find_file(name);
        if (file < 0 || !json_is_object(entry))
            return fail_damaged(e, "artifact.json lists a file that this format does not have");
        is_there[file] = true;
    }
    for (int i = 0; i < TG_ARTIFACT_N_FILES; i++) {
        if (tg_artifact_files[i].is_required && !is_there[i])
            return tg_fail(e, TG_E_CORRUPT, "artifact.json does not list %s",
                           tg_artifact_files[i].name);
        if (is_there[i] && i != TG_ARTIFACT_DEFAULTS)
            TG_TRY(open_file(a, dir_fd, i, map_of(a, i), e));
    }
    return open_defaults(a, dir_fd, is_there[TG_ARTIFACT_DEFAULTS], e);
}

/* The program was checked against a number for the size of the weights; here is the size. */
static tg_status open_program(tg_artifact *a, tg_err *e)
{
    const tg_file_map *m = &a->program_map;
    if (!m->data) return fail_damaged(e, "program.bin is empty");
    tg_status s = tg_program_open(&a->program, &a->arena, m->data, m->n_bytes, e);
    if (s != TG_OK) tg_err_context(e, "program.bin");
    if (s != TG_OK) return s;
    if (a->program.weights_bytes == (int64_t)a->weights_map.n_bytes) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "weights.0.bin has %zu bytes, and the program is for %" PRId64,
                   a->weights_map.n_bytes, a->program.weights_bytes);
}

tg_status tg_artifact_open_at(tg_artifact **out, int dir_fd, const char *path, tg_err *e)
{
    *out = NULL;
    tg_artifact *a = TG_NEW(tg_artifact);
    char *copy = a ? tg_arena_copy_str(&a->arena, path, strlen(path)) : NULL;
    if (!copy) {
        tg_mem_free(a);
        return tg_fail_nomem(e, sizeof *a, "an artifact");
    }
    a->path = copy;
    tg_status s = tg_artifact_load_json(&a->json, dir_fd, e);
    if (s == TG_OK) s = check_json(a->json, e);
    if (s == TG_OK) s = open_files(a, dir_fd, e);
    if (s == TG_OK) s = open_program(a, e);
    if (s == TG_OK) {
        *out = a;
        return TG_OK;
    }
    tg_err_context(e, "%s", path);
    tg_artifact_close(a);
    return s;
}

/* All files are of the folder that was opened, whatever takes its place meanwhile; but what an
 * export replaces it also removes, and then the new one is opened. */
tg_status tg_artifact_open(tg_artifact **out, const char *path, tg_err *e)
{
    *out = NULL;
    for (;;) {
        tg_err mine = {0};
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return tg_fail(e, TG_E_IO, "%s: is no artifact: cannot open the folder: %s", path,
                           strerror(errno));
        tg_status s = tg_artifact_open_at(out, fd, path, &mine);
        bool is_same = is_still_at(fd, path);
        close(fd);
        if (s != TG_OK && !is_same) continue;
        if (s != TG_OK && e) *e = mine;
        return s;
    }
}

void tg_artifact_close(tg_artifact *a)
{
    if (!a) return;
    json_decref(a->json);
    json_decref(a->defaults);
    tg_file_map_close(&a->program_map);
    tg_file_map_close(&a->weights_map);
    tg_file_map_close(&a->tokenizer_map);
    tg_file_map_close(&a->template_map);
    tg_file_map_close(&a->templates_map);
    tg_arena_deinit(&a->arena);
    tg_mem_free(a);
}

tg_status tg_artifact_verify(const tg_artifact *a, tg_err *e)
{
    /* Opening hashed the rest, but that may be long ago. */
    const tg_file_map *const maps[] = {
        [TG_ARTIFACT_PROGRAM] = &a->program_map,     [TG_ARTIFACT_WEIGHTS] = &a->weights_map,
        [TG_ARTIFACT_TOKENIZER] = &a->tokenizer_map, [TG_ARTIFACT_TEMPLATE] = &a->template_map,
        [TG_ARTIFACT_TEMPLATES] = &a->templates_map,
    };
    for (size_t i = 0; i < TG_COUNT(maps); i++) {
        if (!json_object_get(json_object_get(a->json, "files"), tg_artifact_files[i].name))
            continue;
        tg_status s = check_map(a->json, (int)i, maps[i], true, e);
        if (s != TG_OK) tg_err_context(e, "%s", a->path);
        if (s != TG_OK) return s;
    }
    return TG_OK;
}
