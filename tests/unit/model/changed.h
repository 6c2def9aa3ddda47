/* SPDX-License-Identifier: Apache-2.0 changed.h - opens tiny checkpoints as they are, with another
 * config.json, or with keys of a GGUF file. */
#ifndef TG_TESTS_CHANGED_H
#define TG_TESTS_CHANGED_H

#include "base/json.h"
#include "format_files.h"
#include "model/model.h"

/* A checkpoint and what it was understood as; NULL and a message where it was refused. */
typedef struct opened {
    tg_checkpoint *c;
    tg_loaded_checkpoint *b;
    const tg_hparams *h;
    tg_status status;
    tg_err e;
} opened;

static inline opened open_path(const char *path)
{
    opened o = {0};
    begin_log();
    o.status = tg_checkpoint_open(&o.c, path, &o.e);
    if (o.status == TG_OK) o.status = tg_loaded_checkpoint_open(&o.b, o.c, &o.e);
    if (o.b) o.h = tg_loaded_checkpoint_hparams(o.b);
    return o;
}

static inline void close_opened(opened *o)
{
    tg_loaded_checkpoint_free(o->b);
    tg_checkpoint_close(o->c);
    tg_log_set_sink(NULL, NULL);
}

static inline opened open_tiny(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tests/tiny/%s", name);
    opened o = open_path(path);
    if (o.status != TG_OK) fail_msg("%s", o.e.msg);
    return o;
}

/* A folder below tests, or a variant of tests/tiny. */
static inline void print_folder(char path[256], const char *variant, const char *file)
{
    const char *root = strchr(variant, '/') ? "tests" : "tests/tiny";
    snprintf(path, 256, "%s/%s/%s", root, variant, file);
}

/* Every `from` in the bytes becomes `to`, of the same length; it must be there. */
static inline void patch(tg_buf *b, const char *from, const char *to)
{
    size_t n = strlen(from), n_found = 0;
    assert_int_equal(n, strlen(to));
    for (size_t i = 0; i + n <= b->len; i++)
        if (memcmp(b->ptr + i, from, n) == 0) {
            memcpy(b->ptr + i, to, n);
            n_found++;
        }
    if (n_found == 0) fail_msg("'%s' is not there", from);
}

/* config.json with every key of the JSON object `change`: one after "text_config." goes into that
 * object, and one whose new value is the string "(absent)" is taken away. */
static inline void change_config(tg_buf *text, const char *path, const char *change)
{
    static const char nested[] = "text_config.";
    tg_err e = {0};
    json_t *config = NULL, *changes = NULL, *v;
    const char *key;
    assert_int_equal(tg_json_load(&config, path, &e), TG_OK);
    if (tg_json_parse(&changes, tg_str_from_cstr(change), "change", &e)) fail_msg("%s", e.msg);
    json_object_foreach(changes, key, v)
    {
        bool is_absent = json_is_string(v) && strcmp(json_string_value(v), "(absent)") == 0;
        bool is_nested = strncmp(key, nested, sizeof nested - 1) == 0;
        json_t *object = is_nested ? json_object_get(config, "text_config") : config;
        const char *name = is_nested ? key + sizeof nested - 1 : key;
        if (is_absent)
            json_object_del(object, name);
        else
            json_object_set(object, name, v);
    }
    assert_int_equal(tg_json_print(text, config, 1, &e), TG_OK);
    json_decref(config);
    json_decref(changes);
}

/* The tiny checkpoint `variant` with another config.json, and with the names of its tensors
 * patched unless `from` is NULL. */
static inline opened open_patched(const char *variant, const char *change, const char *from,
                                  const char *to)
{
    char path[256], dir[64];
    tg_err e = {0};
    tg_buf text = {0}, weights = {0};
    strcpy(dir, make_folder());
    print_folder(path, variant, "config.json");
    change_config(&text, path, change);
    save_buf(dir, "config.json", &text);
    print_folder(path, variant, "model.safetensors");
    assert_int_equal(tg_file_load(&weights, path, 1 << 24, &e), TG_OK);
    if (from) patch(&weights, from, to);
    save_buf(dir, "model.safetensors", &weights);
    opened o = open_path(dir);
    remove_folder(dir); /* what is mapped stays */
    return o;
}

static inline opened open_changed(const char *variant, const char *change)
{
    return open_patched(variant, change, NULL, NULL);
}

/* The GGUF file of a tiny checkpoint with its bytes patched. */
static inline opened open_patched_gguf(const char *variant, const char *from, const char *to)
{
    char path[256], dir[64];
    tg_err e = {0};
    tg_buf file = {0};
    strcpy(dir, make_folder());
    print_folder(path, variant, "model.gguf");
    assert_int_equal(tg_file_load(&file, path, 1 << 24, &e), TG_OK);
    patch(&file, from, to);
    save_buf(dir, "model.gguf", &file);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    opened o = open_path(path);
    remove_folder(dir);
    return o;
}

/* It must be refused, and the message hold every word of the list that ends in NULL. */
static inline void check_refused(opened o, tg_status status, const char *const *words)
{
    if (o.status != status) fail_msg("status %d instead of %d: %s", o.status, status, o.e.msg);
    for (; *words; words++)
        assert_says(&o.e, *words);
    assert_null(o.b);
    close_opened(&o);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The graph of a tiny checkpoint against tests/golden/ir/tiny-NAME.txt. */
static inline void print_graph(const opened *o, int32_t max_length, tg_buf *out)
{
    tg_err e = {0};
    tg_graph *g = NULL;
    if (tg_loaded_checkpoint_build(o->b, max_length, &g, &e) != TG_OK) fail_msg("%s", e.msg);
    tg_graph_print(g, out);
    tg_graph_free(g);
}

#endif
