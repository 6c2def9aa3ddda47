/* SPDX-License-Identifier: Apache-2.0 */
#include "format/checkpoint.h"

#include "base/log.h"
#include "format/opened.h"

#include <inttypes.h>
#define XXH_STATIC_LINKING_ONLY /* the size of XXH3_state_t, to have it on the stack */
#include <xxhash.h>

enum { HASH_BYTES = 8 << 20 };

/* ---- the object */

const char *tg_checkpoint_join(tg_checkpoint *c, const char *dir, const char *name)
{
    tg_buf b = {0};
    tg_path_join(&b, dir, name);
    const char *path = b.is_failed ? NULL : tg_arena_copy_str(&c->arena, tg_buf_cstr(&b), b.len);
    tg_buf_deinit(&b);
    return path;
}

/* Room for one more in the list of files. */
static bool grow_files(tg_checkpoint *c)
{
    if (c->n_files < c->files_room) return true;
    int32_t room = 2 * c->files_room + 16;
    tg_opened_file **list = TG_ARENA_ARRAY(&c->arena, tg_opened_file *, room);
    if (!list) return false;
    for (int32_t i = 0; i < c->n_files; i++)
        list[i] = c->files[i];
    c->files = list;
    c->files_room = room;
    return true;
}

static tg_status check_not_dangling(const char *path, tg_err *e)
{
    if (!tg_path_is_dangling(path)) return TG_OK;
    return tg_fail(e, TG_E_IO,
                   "%s: is a link to a file that is not there: the download did not finish; fetch "
                   "the model again",
                   path);
}

tg_status tg_checkpoint_add_file(tg_checkpoint *c, const char *path, const char *part,
                                 const tg_opened_file **out, tg_err *e)
{
    tg_opened_file *f = TG_ARENA_NEW(&c->arena, tg_opened_file);
    tg_buf real = {0};
    if (!f || !grow_files(c)) return tg_fail_nomem(e, sizeof *f, "the list of files");
    TG_TRY(check_not_dangling(path, e));
    TG_TRY(tg_file_stat(path, &f->about.n_bytes, &f->about.mtime_ns, e));
    tg_status s = tg_path_resolve(&real, path, e);
    if (s == TG_OK) {
        f->about.path = tg_arena_copy_str(&c->arena, path, strlen(path));
        f->about.real_path = tg_arena_copy_str(&c->arena, real.ptr, real.len);
        f->about.part = tg_arena_copy_str(&c->arena, part, strlen(part));
        if (!f->about.path || !f->about.real_path || !f->about.part)
            s = tg_fail_nomem(e, real.len, "a file name");
    }
    tg_buf_deinit(&real);
    TG_TRY(s);
    TG_TRY(tg_file_map_open(&f->map, path, e));
    c->files[c->n_files++] = f; /* from here on close unmaps it */
    if (f->map.n_bytes != (size_t)f->about.n_bytes)
        return tg_fail(e, TG_E_IO, "%s: changed its size while it was being opened", path);
    *out = f;
    return TG_OK;
}

tg_status tg_checkpoint_index_tensors(tg_checkpoint *c, tg_err *e)
{
    tg_str duplicate = {0};
    tg_name_entry *list = TG_ARENA_ARRAY(&c->arena, tg_name_entry, c->n_tensors);
    if (!list) return tg_fail_nomem(e, (size_t)c->n_tensors * sizeof *list, "a list of tensors");
    for (int32_t i = 0; i < c->n_tensors; i++)
        list[i] = (tg_name_entry){c->tensors[i].name, i};
    if (tg_names_init(&c->names, list, c->n_tensors, &duplicate)) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "%s: tensor '%.*s' is in two files of the checkpoint", c->path,
                   (int)duplicate.len, duplicate.ptr);
}

void tg_checkpoint_close(tg_checkpoint *c)
{
    if (!c) return;
    for (int i = 0; i < TG_HF_PART_COUNT; i++)
        json_decref(c->json[i]);
    for (int32_t i = 0; i < c->n_files; i++)
        tg_file_map_close(&c->files[i]->map);
    tg_arena_deinit(&c->arena);
    tg_mem_free(c);
}

/* ---- what a path is */

/* A revision comes from a file and becomes part of a path: a plain name only. */
static bool is_revision(tg_str s)
{
    bool is_good = s.len > 0 && s.len <= 128;
    for (size_t i = 0; is_good && i < s.len; i++)
        is_good = (s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'z');
    return is_good;
}

static tg_status read_main_ref(tg_checkpoint *c, const char *ref, const char *snapshots,
                               const char **folder, tg_err *e)
{
    enum { LIMIT = 256 };
    tg_buf text = {0};
    tg_status s = tg_file_load(&text, ref, LIMIT, e);
    while (text.len && (text.ptr[text.len - 1] == '\n' || text.ptr[text.len - 1] == ' '))
        text.ptr[--text.len] = 0;
    if (s == TG_OK && !is_revision(tg_buf_str(&text)))
        s = tg_fail(e, TG_E_CORRUPT, "%s: does not hold the name of a snapshot", ref);
    if (s == TG_OK) {
        *folder = tg_checkpoint_join(c, snapshots, tg_buf_cstr(&text));
        if (!*folder)
            s = tg_fail_nomem(e, text.len, "a path");
        else if (!tg_path_is_dir(*folder))
            s = tg_fail(e, TG_E_IO,
                        "%s: names snapshot %s, which is not there: fetch the model again", ref,
                        tg_buf_cstr(&text));
    }
    tg_buf_deinit(&text);
    return s;
}

/* models--ORG--NAME: the snapshot that refs/main names, or the only one. */
static tg_status find_snapshot(tg_checkpoint *c, const char *path, const char *snapshots,
                               const char **folder, tg_err *e)
{
    char **names = NULL;
    int32_t n = 0;
    const char *ref = tg_checkpoint_join(c, path, "refs/main");
    if (!ref) return tg_fail_nomem(e, strlen(path), "a path");
    if (tg_path_is_file(ref)) return read_main_ref(c, ref, snapshots, folder, e);
    TG_TRY(tg_dir_list(&c->arena, snapshots, &names, &n, e));
    if (n != 1)
        return tg_fail(e, TG_E_IO,
                       "%s: has %d snapshots and no refs/main that chooses one; name a folder "
                       "below it",
                       snapshots, n);
    tg_log_warn("%s: no refs/main; its only snapshot %s is used", path, names[0]);
    *folder = tg_checkpoint_join(c, snapshots, names[0]);
    return *folder ? TG_OK : tg_fail_nomem(e, strlen(path), "a path");
}

static bool is_first_gguf(const char *name)
{
    tg_str s = tg_str_from_cstr(name);
    if (!tg_str_has_suffix(s, TG_STR(".gguf")) || tg_str_has_prefix(s, TG_STR("mmproj")))
        return false;
    const char *of = strstr(name, "-of-");
    return !of || of - name < 6 || memcmp(of - 6, "-00001", 6) == 0;
}

/* A folder without Hugging Face weights: the one GGUF model in it, or NULL when there is none. */
static tg_status find_gguf(tg_checkpoint *c, const char *folder, char **names, int32_t n,
                           const char **file, tg_err *e)
{
    tg_buf list = {0};
    int32_t n_found = 0;
    const char *found = NULL;
    *file = NULL;
    for (int32_t i = 0; i < n; i++) {
        if (!is_first_gguf(names[i])) continue;
        found = names[i];
        if (++n_found <= 3) tg_buf_printf(&list, "%s%s", n_found > 1 ? ", " : "", found);
    }
    tg_status s = TG_OK;
    if (n_found > 1)
        s = tg_fail(e, TG_E_ARGUMENT, "%s: holds %d GGUF models (%s%s): name one of the files",
                    folder, n_found, tg_buf_cstr(&list), n_found > 3 ? ", ..." : "");
    else if (n_found == 1 && !(*file = tg_checkpoint_join(c, folder, found)))
        s = tg_fail_nomem(e, strlen(folder), "a path");
    tg_buf_deinit(&list);
    return s;
}

static tg_status open_folder(tg_checkpoint *c, const char *path, tg_err *e)
{
    const char *folder = path, *file = NULL;
    const char *snapshots = tg_checkpoint_join(c, path, "snapshots");
    const char *config = tg_checkpoint_join(c, path, "config.json");
    if (!snapshots || !config) return tg_fail_nomem(e, strlen(path), "a path");
    if (tg_path_is_dir(snapshots) && !tg_path_exists(config))
        TG_TRY(find_snapshot(c, path, snapshots, &folder, e));

    char **names = NULL;
    int32_t n = 0;
    bool has_config = false, has_weights = false;
    TG_TRY(tg_dir_list(&c->arena, folder, &names, &n, e));
    for (int32_t i = 0; i < n; i++) {
        tg_str name = tg_str_from_cstr(names[i]);
        has_config = has_config || tg_str_is(name, "config.json");
        has_weights = has_weights || tg_str_has_suffix(name, TG_STR(".safetensors")) ||
                      tg_str_has_suffix(name, TG_STR(".safetensors.index.json"));
    }
    /* GGUF repositories often carry the config.json of the model they were made from. */
    if (!has_config || !has_weights) TG_TRY(find_gguf(c, folder, names, n, &file, e));
    if (file) return tg_checkpoint_load_shards(c, file, e);
    if (!has_config && !c->is_texts)
        return tg_fail(e, TG_E_ARGUMENT,
                       "%s: holds neither a config.json nor a GGUF file: it is no model", folder);
    return tg_checkpoint_load_folder(c, folder, e);
}

static tg_status open_path(tg_checkpoint *c, const char *path, tg_err *e)
{
    tg_str s = tg_str_from_cstr(path);
    if (s.len == 0) return tg_fail(e, TG_E_ARGUMENT, "the path of the model is empty");
    if (tg_path_is_dir(path)) return open_folder(c, path, e);
    TG_TRY(check_not_dangling(path, e));
    if (c->is_texts && tg_path_is_file(path) && tg_checkpoint_is_part(tg_path_name(path)))
        return tg_checkpoint_load_file(c, path, e);
    if (tg_path_is_file(path) &&
        (tg_str_has_suffix(s, TG_STR(".safetensors")) || tg_str_has_suffix(s, TG_STR(".json"))))
        return tg_fail(e, TG_E_ARGUMENT,
                       "%s: is one file of a Hugging Face model; name the folder it lies in", path);
    return tg_checkpoint_load_shards(c, path, e);
}

static tg_status open_checkpoint(tg_checkpoint **out, const char *path, bool is_texts, tg_err *e)
{
    *out = NULL;
    tg_checkpoint *c = TG_NEW(tg_checkpoint);
    if (!c) return tg_fail_nomem(e, sizeof *c, "a checkpoint");
    c->is_texts = is_texts;
    tg_status s = open_path(c, path, e);
    if (s == TG_OK)
        *out = c;
    else
        tg_checkpoint_close(c);
    return s;
}

tg_status tg_checkpoint_open(tg_checkpoint **out, const char *path, tg_err *e)
{
    return open_checkpoint(out, path, false, e);
}

tg_status tg_checkpoint_open_texts(tg_checkpoint **out, const char *path, tg_err *e)
{
    return open_checkpoint(out, path, true, e);
}

/* ---- answers */

tg_checkpoint_kind tg_checkpoint_get_kind(const tg_checkpoint *c)
{
    return c->kind;
}

const char *tg_checkpoint_get_path(const tg_checkpoint *c)
{
    return c->path;
}

int32_t tg_checkpoint_n_tensors(const tg_checkpoint *c)
{
    return c->n_tensors;
}

const tg_tensor *tg_checkpoint_get_tensor(const tg_checkpoint *c, int32_t i)
{
    TG_ASSERT(i >= 0 && i < c->n_tensors);
    return &c->tensors[i];
}

const tg_tensor *tg_checkpoint_find_tensor(const tg_checkpoint *c, tg_str name)
{
    int32_t i = tg_names_find(&c->names, name);
    if (i < 0) i = tg_names_find(&c->aliases, name);
    return i < 0 ? NULL : &c->tensors[i];
}

tg_status tg_checkpoint_get_named_tensor(const tg_checkpoint *c, tg_str name, const tg_tensor **out,
                                         tg_err *e)
{
    *out = tg_checkpoint_find_tensor(c, name);
    if (*out) return TG_OK;
    tg_buf hint = {0};
    tg_names_print_hint(&hint, &c->names, name);
    tg_status s = tg_fail(e, TG_E_CORRUPT, "%s: has no tensor '%.*s'%s", c->path, (int)name.len,
                          name.ptr, tg_buf_cstr(&hint));
    tg_buf_deinit(&hint);
    return s;
}

const tg_gguf *tg_checkpoint_get_gguf(const tg_checkpoint *c)
{
    return c->gguf;
}

const json_t *tg_checkpoint_get_json(const tg_checkpoint *c, tg_hf_part part)
{
    TG_ASSERT((size_t)part < TG_HF_PART_COUNT);
    return c->json[part];
}

tg_str tg_checkpoint_get_text(const tg_checkpoint *c, tg_hf_part part)
{
    TG_ASSERT((size_t)part < TG_HF_PART_COUNT);
    const tg_opened_file *f = c->parts[part];
    if (!f) return (tg_str){0};
    /* An empty file is present: its text is "" and not NULL. */
    return (tg_str){f->map.data ? (const char *)f->map.data : "", f->map.n_bytes};
}

const char *tg_checkpoint_get_part_path(const tg_checkpoint *c, tg_hf_part part)
{
    TG_ASSERT((size_t)part < TG_HF_PART_COUNT);
    return c->part_paths[part] ? c->part_paths[part] : c->path;
}

int32_t tg_checkpoint_n_templates(const tg_checkpoint *c)
{
    return c->n_templates;
}

const tg_named_text *tg_checkpoint_get_template(const tg_checkpoint *c, int32_t i)
{
    TG_ASSERT(i >= 0 && i < c->n_templates);
    return &c->templates[i];
}

int32_t tg_checkpoint_n_files(const tg_checkpoint *c)
{
    return c->n_files;
}

const tg_source_file *tg_checkpoint_get_file(const tg_checkpoint *c, int32_t i)
{
    TG_ASSERT(i >= 0 && i < c->n_files);
    return &c->files[i]->about;
}

static void add_sized(XXH3_state_t *h, const void *bytes, size_t n)
{
    uint64_t size = n;
    XXH3_128bits_update(h, &size, sizeof size); /* so that "ab" "c" is not "a" "bc" */
    if (n) XXH3_128bits_update(h, bytes, n);
}

/* Piece by piece, so that memory holds one. */
static void add_map(XXH3_state_t *h, const tg_file_map *m)
{
    uint64_t size = m->n_bytes;
    XXH3_128bits_update(h, &size, sizeof size);
    for (size_t at = 0; at < m->n_bytes; at += HASH_BYTES) {
        size_t n = TG_MIN((size_t)HASH_BYTES, m->n_bytes - at);
        XXH3_128bits_update(h, m->data + at, n);
        tg_file_map_release(m, m->data + at, n);
    }
}

void tg_checkpoint_release(const tg_checkpoint *c, const void *p, size_t n_bytes)
{
    for (int32_t i = 0; i < c->n_files; i++) {
        const tg_file_map *m = &c->files[i]->map;
        uintptr_t at = (uintptr_t)p, base = (uintptr_t)m->data;
        if (at >= base && at + n_bytes <= base + m->n_bytes) tg_file_map_release(m, p, n_bytes);
    }
}

tg_content_hash tg_checkpoint_hash(const tg_checkpoint *c)
{
    XXH3_state_t h;
    XXH3_INITSTATE(&h);
    XXH3_128bits_reset(&h);
    for (int32_t i = 0; i < c->n_files; i++) {
        const tg_opened_file *f = c->files[i];
        add_sized(&h, f->about.part, strlen(f->about.part));
        add_map(&h, &f->map);
    }
    XXH128_hash_t v = XXH3_128bits_digest(&h);
    return (tg_content_hash){v.low64, v.high64};
}

tg_status tg_hf_get_token(const json_t *object, const char *key, tg_str *out, bool *is_present,
                          const char *name, tg_err *e)
{
    const json_t *v = json_object_get(object, key);
    if (is_present) *is_present = false;
    if (!v || json_is_null(v)) return TG_OK;
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (!json_is_string(v))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: key '%s' is neither a string nor an object with a \"content\" string",
                       name, key);
    *out = (tg_str){json_string_value(v), json_string_length(v)};
    if (is_present) *is_present = true;
    return TG_OK;
}
