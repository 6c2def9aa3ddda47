/* SPDX-License-Identifier: Apache-2.0
 * folder.c - Hugging Face checkpoints: a folder of JSON, templates and safetensors.
 *
 * Which weight files count:
 *
 *   model.safetensors.index.json   it alone says which files, and which tensor is in which
 *   model.safetensors              otherwise, when it is there
 *   the only *.safetensors         otherwise; several without an index are refused, since nothing
 *                                  says whether they are shards, copies or adapters
 *
 * consolidated*.safetensors is a second copy of the same weights and never counts. Pickles
 * are not read at all. File names inside the index are plain names: nothing outside the folder is
 * opened but through links that the user's own tools made. */
#include "base/log.h"
#include "format/opened.h"
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

/* Which of them counts when a folder has several. */
typedef enum part_rank {
    PART_ALWAYS,
    PART_VOCABULARY, /* the first one of the table that is there */
    PART_BESIDE      /* where the vocabulary is no tokenizer.json, which says all of it */
} part_rank;

static const struct {
    const char *name;
    const char *suffix; /* of a file that stands for this part when it is named alone; "": none */
    bool is_json, is_text;
    part_rank rank;
} parts[] = {
    [TG_HF_CONFIG] = {"config.json", "", true, false, PART_ALWAYS},
    [TG_HF_GENERATION_CONFIG] = {"generation_config.json", "", true, false, PART_ALWAYS},
    [TG_HF_TOKENIZER_CONFIG] = {"tokenizer_config.json", "", true, true, PART_ALWAYS},
    [TG_HF_TOKENIZER] = {"tokenizer.json", ".json", false, true, PART_VOCABULARY},
    [TG_HF_CHAT_TEMPLATE] = {"chat_template.jinja", ".jinja", false, true, PART_ALWAYS},
    [TG_HF_CHAT_CONFIG] = {"chat_template.json", "", true, true, PART_ALWAYS},
    [TG_HF_TOKENIZER_MODEL] = {"tokenizer.model", ".model", false, true, PART_VOCABULARY},
    [TG_HF_TIKTOKEN] = {"tiktoken.model", ".tiktoken", false, true, PART_VOCABULARY},
    [TG_HF_VOCAB] = {"vocab.json", "", false, true, PART_VOCABULARY},
    [TG_HF_SPECIAL_TOKENS_MAP] = {"special_tokens_map.json", "", false, true, PART_BESIDE},
    [TG_HF_ADDED_TOKENS] = {"added_tokens.json", "", false, true, PART_BESIDE},
    [TG_HF_MERGES] = {"merges.txt", "", false, true, PART_BESIDE},
};
_Static_assert(TG_COUNT(parts) == TG_HF_PART_COUNT, "a part has no row");

static const char index_name[] = "model.safetensors.index.json";

/* The part that a file is by its name: a part's own name, or its suffix. TG_HF_PART_COUNT: none. */
static tg_hf_part find_part(const char *name)
{
    tg_str s = tg_str_from_cstr(name);
    for (int i = 0; i < TG_HF_PART_COUNT; i++)
        if (tg_str_is(s, parts[i].name)) return (tg_hf_part)i;
    for (int i = 0; i < TG_HF_PART_COUNT; i++)
        if (*parts[i].suffix && tg_str_has_suffix(s, tg_str_from_cstr(parts[i].suffix)))
            return (tg_hf_part)i;
    return TG_HF_PART_COUNT;
}

bool tg_checkpoint_is_part(const char *name)
{
    tg_hf_part part = find_part(name);
    return part != TG_HF_PART_COUNT && parts[part].is_text;
}

/* A vocabulary that was named alone wins over the folder's own. */
static bool is_outranked(const tg_checkpoint *c, tg_hf_part part)
{
    if (parts[part].rank == PART_BESIDE) return c->parts[TG_HF_TOKENIZER] != NULL;
    for (int i = 0; parts[part].rank == PART_VOCABULARY && i < TG_HF_PART_COUNT; i++)
        if (parts[i].rank == PART_VOCABULARY && (c->parts[i] || (int)c->named == i))
            return i != (int)part;
    return false;
}

/* tiktoken's files have names of their own: the only one counts. */
static tg_status find_tiktoken(tg_checkpoint *c, const char *folder, const char **path, tg_err *e)
{
    char **names = NULL;
    int32_t n = 0;
    const char *found = NULL;
    if (tg_path_exists(*path)) return TG_OK;
    TG_TRY(tg_dir_list(&c->arena, folder, &names, &n, e));
    for (int32_t i = 0; i < n; i++) {
        if (!tg_str_has_suffix(tg_str_from_cstr(names[i]), TG_STR(".tiktoken"))) continue;
        if (found)
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: has %s and %s, and nothing says which is the model's; take one "
                           "away",
                           folder, found, names[i]);
        found = names[i];
    }
    if (found) *path = tg_checkpoint_join(c, folder, found);
    return *path ? TG_OK : tg_fail_nomem(e, strlen(folder), "a path");
}

static tg_status load_part(tg_checkpoint *c, tg_hf_part part, const char *folder, tg_err *e)
{
    const char *path = c->part_paths[part]; /* set: a file that was named alone */
    if (!path) path = tg_checkpoint_join(c, folder, parts[part].name);
    if (!path) return tg_fail_nomem(e, strlen(folder), "a path");
    c->part_paths[part] = path;
    if (is_outranked(c, part)) return TG_OK;
    if (part == TG_HF_TIKTOKEN) TG_TRY(find_tiktoken(c, folder, &c->part_paths[part], e));
    path = c->part_paths[part];
    if (!tg_path_exists(path)) return TG_OK;
    TG_TRY(tg_checkpoint_add_file(c, path, parts[part].name, &c->parts[part], e));
    if (!parts[part].is_json) return TG_OK;
    TG_TRY(tg_json_parse(&c->json[part], tg_checkpoint_get_text(c, part), path, e));
    if (!json_is_object(c->json[part]))
        return tg_fail(e, TG_E_CORRUPT, "%s: is no JSON object", path);
    return TG_OK;
}

static tg_status load_templates(tg_checkpoint *c, const char *folder, tg_err *e)
{
    static const char suffix[] = ".jinja";
    char **names = NULL;
    int32_t n = 0;
    const char *dir = tg_checkpoint_join(c, folder, "additional_chat_templates");
    if (!dir) return tg_fail_nomem(e, strlen(folder), "a path");
    if (!tg_path_is_dir(dir)) return TG_OK;
    TG_TRY(tg_dir_list(&c->arena, dir, &names, &n, e));
    c->templates = TG_ARENA_ARRAY(&c->arena, tg_named_text, n);
    if (!c->templates) return tg_fail_nomem(e, (size_t)n * sizeof *c->templates, "templates");
    for (int32_t i = 0; i < n; i++) {
        const tg_opened_file *f = NULL;
        tg_str name = tg_str_from_cstr(names[i]);
        if (!tg_str_has_suffix(name, TG_STR(".jinja"))) continue;
        const char *path = tg_checkpoint_join(c, dir, names[i]);
        const char *part = tg_checkpoint_join(c, "additional_chat_templates", names[i]);
        char *bare = tg_arena_copy_str(&c->arena, name.ptr, name.len - (sizeof suffix - 1));
        if (!path || !part || !bare) return tg_fail_nomem(e, name.len, "a template's name");
        TG_TRY(tg_checkpoint_add_file(c, path, part, &f, e));
        c->templates[c->n_templates++] =
            (tg_named_text){bare, {f->map.data ? (const char *)f->map.data : "", f->map.n_bytes}};
    }
    return TG_OK;
}

/* ---- which files */

/* Files to load, in order, and the index's word on tensors (NULL without an index). */
typedef struct weight_files {
    const char **names;
    int32_t n;
    json_t *index; /* the whole document; owned */
    json_t *map;   /* its "weight_map"; borrowed */
    const char *index_path;
} weight_files;

/* A name out of the index becomes part of a path. */
static bool is_plain_name(const char *s)
{
    return tg_name_is_printable(tg_str_from_cstr(s)) && !strchr(s, '/') && !strchr(s, '\\') &&
           strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tg_status check_index_entry(const weight_files *w, const char *tensor, const json_t *file,
                                   tg_err *e)
{
    tg_shown_name shown = tg_name_show(tg_str_from_cstr(tensor));
    const char *name = json_string_value(file);
    if (!name)
        return tg_fail(e, TG_E_CORRUPT, "%s: the file of tensor '%s' is no string", w->index_path,
                       shown.text);
    if (!is_plain_name(name))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: tensor '%s' is said to be in '%s', which is no plain file name",
                       w->index_path, shown.text, tg_name_show(tg_str_from_cstr(name)).text);
    if (!tg_str_has_suffix(tg_str_from_cstr(name), TG_STR(".safetensors")))
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: tensor '%s' is in '%s', which is no safetensors file", w->index_path,
                       shown.text, name);
    return TG_OK;
}

/* The distinct file names of the index, sorted. */
static tg_status list_indexed(tg_checkpoint *c, weight_files *w, tg_str text, tg_err *e)
{
    const char *tensor;
    json_t *file;
    TG_TRY(tg_json_parse(&w->index, text, w->index_path, e));
    w->map = json_object_get(w->index, "weight_map");
    if (!json_is_object(w->map))
        return tg_fail(e, TG_E_CORRUPT, "%s: has no \"weight_map\" object", w->index_path);
    if (json_object_size(w->map) > INT32_MAX)
        return tg_fail(e, TG_E_LIMIT, "%s: lists %zu tensors", w->index_path,
                       json_object_size(w->map));
    w->names = TG_ARENA_ARRAY(&c->arena, const char *, json_object_size(w->map));
    if (!w->names) return tg_fail_nomem(e, json_object_size(w->map), "a list of shards");
    json_object_foreach(w->map, tensor, file)
    {
        TG_TRY(check_index_entry(w, tensor, file, e));
        /* Tensors of a file mostly follow each other: sorting sees few doubles. */
        if (w->n == 0 || strcmp(w->names[w->n - 1], json_string_value(file)) != 0)
            w->names[w->n++] = json_string_value(file);
    }
    if (w->n > 0) qsort(w->names, (size_t)w->n, sizeof *w->names, compare_names);
    int32_t n = 0;
    for (int32_t i = 0; i < w->n; i++)
        if (n == 0 || strcmp(w->names[n - 1], w->names[i]) != 0) w->names[n++] = w->names[i];
    w->n = n;
    return TG_OK;
}

/* Without an index: model.safetensors or the only one. */
static tg_status list_unindexed(tg_checkpoint *c, weight_files *w, const char *folder, tg_err *e)
{
    char **names = NULL;
    int32_t n = 0, n_found = 0;
    const char *found = NULL, *other = NULL;
    w->names = TG_ARENA_NEW(&c->arena, const char *);
    if (!w->names) return tg_fail_nomem(e, sizeof *w->names, "a list of shards");
    TG_TRY(tg_dir_list(&c->arena, folder, &names, &n, e));
    for (int32_t i = 0; i < n; i++) {
        tg_str s = tg_str_from_cstr(names[i]);
        bool is_own_form = tg_str_has_prefix(s, TG_STR("consolidated"));
        if (tg_str_has_suffix(s, TG_STR(".bin")) || tg_str_has_suffix(s, TG_STR(".pt")) ||
            tg_str_has_suffix(s, TG_STR(".pth")) || is_own_form)
            other = names[i];
        if (is_own_form || !tg_str_has_suffix(s, TG_STR(".safetensors"))) continue;
        if (n_found == 0 || tg_str_is(s, "model.safetensors")) found = names[i];
        n_found++;
    }
    if (n_found == 0 && other)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: has weights only as %s, which is not read; fetch or save them as "
                       "model.safetensors",
                       folder, other);
    if (n_found == 0)
        return tg_fail(e, TG_E_CORRUPT, "%s: has no weights: no safetensors file is in it", folder);
    if (n_found > 1 && strcmp(found, "model.safetensors") != 0)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: has %d safetensors files and no %s that says which belong to the model",
                       folder, n_found, index_name);
    w->names[0] = found;
    w->n = 1;
    return TG_OK;
}

static tg_status find_weight_files(tg_checkpoint *c, weight_files *w, const char *folder, tg_err *e)
{
    const tg_opened_file *f = NULL;
    w->index_path = tg_checkpoint_join(c, folder, index_name);
    if (!w->index_path) return tg_fail_nomem(e, strlen(folder), "a path");
    if (!tg_path_exists(w->index_path)) return list_unindexed(c, w, folder, e);
    TG_TRY(tg_checkpoint_add_file(c, w->index_path, index_name, &f, e));
    return list_indexed(c, w, (tg_str){(const char *)f->map.data, f->map.n_bytes}, e);
}

/* ---- tensors */

/* Does the index put this tensor into this file? Without an index every tensor counts. */
static bool is_output_row(const weight_files *w, const tg_tensor *t, const char *file)
{
    if (!w->map) return true;
    const char *listed = json_string_value(json_object_get(w->map, t->name.ptr));
    return listed && strcmp(listed, file) == 0;
}

static tg_status parse_files(tg_checkpoint *c, const weight_files *w, const char *folder,
                             tg_safetensors *files, tg_err *e)
{
    for (int32_t i = 0; i < w->n; i++) {
        const tg_opened_file *f = NULL;
        const char *path = tg_checkpoint_join(c, folder, w->names[i]);
        if (!path) return tg_fail_nomem(e, strlen(folder), "a path");
        if (!tg_path_exists(path))
            return tg_fail(e, TG_E_IO, "%s: lists the file %s, which is missing: fetch it",
                           w->index_path, w->names[i]);
        TG_TRY(tg_checkpoint_add_file(c, path, w->names[i], &f, e));
        TG_TRY(tg_safetensors_parse(&files[i], &c->arena, f->map.data, f->map.n_bytes,
                                    f->about.path, e));
    }
    return TG_OK;
}

static tg_status merge_tensors(tg_checkpoint *c, const weight_files *w, const tg_safetensors *files,
                               tg_err *e)
{
    int64_t n = 0;
    int32_t n_unlisted = 0;
    const tg_tensor *unlisted = NULL;
    for (int32_t i = 0; i < w->n; i++)
        n += files[i].n_tensors;
    if (n > INT32_MAX) return tg_fail(e, TG_E_LIMIT, "%s: has %" PRId64 " tensors", c->path, n);
    c->tensors = TG_ARENA_ARRAY(&c->arena, tg_tensor, n);
    if (!c->tensors) return tg_fail_nomem(e, (size_t)n * sizeof *c->tensors, "a list of tensors");
    for (int32_t i = 0; i < w->n; i++) {
        for (int32_t j = 0; j < files[i].n_tensors; j++) {
            const tg_tensor *t = &files[i].tensors[j];
            if (is_output_row(w, t, w->names[i])) {
                c->tensors[c->n_tensors++] = *t;
            } else if (n_unlisted++ == 0) {
                unlisted = t;
            }
        }
    }
    if (unlisted)
        tg_log_warn("%s: %d tensors are not in the index and are not used, such as '%s' in %s",
                    w->index_path, n_unlisted, unlisted->name.ptr, unlisted->file);
    return tg_checkpoint_index_tensors(c, e);
}

/* A stale index names tensors that their file does not hold. */
static tg_status check_listed(const tg_checkpoint *c, const weight_files *w, tg_err *e)
{
    const char *tensor;
    json_t *file;
    if (!w->map) return TG_OK;
    json_object_foreach(w->map, tensor, file)
    {
        if (tg_names_find(&c->names, tg_str_from_cstr(tensor)) < 0)
            return tg_fail(e, TG_E_CORRUPT, "%s: puts tensor '%s' into %s, which does not hold it",
                           w->index_path, tg_name_show(tg_str_from_cstr(tensor)).text,
                           json_string_value(file));
    }
    return TG_OK;
}

/* Tensors that share memory are saved once, and the names left out are noted in the metadata:
 * {"lm_head.weight": "model.embed_tokens.weight"}. */
static tg_status collect_aliases(tg_checkpoint *c, const weight_files *w,
                                 const tg_safetensors *files, tg_err *e)
{
    int64_t n = 0;
    int32_t n_aliases = 0;
    tg_str duplicate = {0};
    for (int32_t i = 0; i < w->n; i++)
        n += files[i].n_notes;
    tg_name_entry *list = TG_ARENA_ARRAY(&c->arena, tg_name_entry, n);
    if (!list) return tg_fail_nomem(e, (size_t)n * sizeof *list, "shared tensors");
    for (int32_t i = 0; i < w->n; i++) {
        for (int32_t j = 0; j < files[i].n_notes; j++) {
            const tg_note *note = &files[i].notes[j];
            int32_t id = tg_names_find(&c->names, note->value);
            if (id >= 0 && tg_names_find(&c->names, note->key) < 0)
                list[n_aliases++] = (tg_name_entry){note->key, id};
        }
    }
    if (tg_names_init(&c->aliases, list, n_aliases, &duplicate)) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "%s: two files say what shares the tensor of '%.*s'", c->path,
                   (int)duplicate.len, duplicate.ptr);
}

static tg_status load_weights(tg_checkpoint *c, weight_files *w, const char *folder, tg_err *e)
{
    TG_TRY(find_weight_files(c, w, folder, e));
    tg_safetensors *files = TG_ARENA_ARRAY(&c->arena, tg_safetensors, w->n);
    if (!files) return tg_fail_nomem(e, (size_t)w->n * sizeof *files, "a list of shards");
    TG_TRY(parse_files(c, w, folder, files, e));
    TG_TRY(merge_tensors(c, w, files, e));
    TG_TRY(check_listed(c, w, e));
    return collect_aliases(c, w, files, e);
}

tg_status tg_checkpoint_load_folder(tg_checkpoint *c, const char *path, tg_err *e)
{
    weight_files w = {0};
    c->kind = TG_CHECKPOINT_HF;
    c->path = tg_arena_copy_str(&c->arena, path, strlen(path));
    if (!c->path) return tg_fail_nomem(e, strlen(path), "a path");
    for (int i = 0; i < TG_HF_PART_COUNT; i++)
        if (parts[i].is_text || !c->is_texts) TG_TRY(load_part(c, (tg_hf_part)i, path, e));
    TG_TRY(load_templates(c, path, e));
    if (c->is_texts) return TG_OK;
    tg_status s = load_weights(c, &w, path, e);
    json_decref(w.index);
    return s;
}

tg_status tg_checkpoint_load_file(tg_checkpoint *c, const char *file, tg_err *e)
{
    const char *name = tg_path_name(file);
    size_t n = (size_t)(name - file);
    TG_ASSERT(c->is_texts && tg_checkpoint_is_part(name));
    /* "dir/" of "dir/file", and "/" of "/file". */
    const char *folder = n == 0 ? "." : n == 1 ? "/" : tg_arena_copy_str(&c->arena, file, n - 1);
    char *path = tg_arena_copy_str(&c->arena, file, strlen(file));
    if (!folder || !path) return tg_fail_nomem(e, strlen(file), "a path");
    c->named = find_part(name);
    c->part_paths[c->named] = path;
    return tg_checkpoint_load_folder(c, folder, e);
}
