/* SPDX-License-Identifier: Apache-2.0 checkpoint_files.h - checkpoints that the tests of
 * checkpoint.c and folder.c write, and what opening them gives. */
#ifndef TG_TESTS_CHECKPOINT_FILES_H
#define TG_TESTS_CHECKPOINT_FILES_H

#include "format/checkpoint.h"
#include "format_files.h"

static const uint64_t dims_4[] = {4};

/* Takes the folder away again and checks that nothing stayed allocated. */
typedef struct place {
    const char *dir;
    int64_t alive;
} place;

static inline place begin(void)
{
    begin_log();
    return (place){make_folder(), tg_mem_n_alive()};
}

static inline void end(place p, tg_checkpoint *c)
{
    tg_checkpoint_close(c);
    assert_int_equal(tg_mem_n_alive(), p.alive);
    remove_folder(p.dir);
}

static inline tg_checkpoint *open_good(const char *path)
{
    tg_checkpoint *c = NULL;
    tg_err e = {0};
    if (tg_checkpoint_open(&c, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return c;
}

static inline void assert_refused(const char *path, const char *words)
{
    tg_checkpoint *c = NULL;
    tg_err e = {0};
    assert_int_not_equal(tg_checkpoint_open(&c, path, &e), TG_OK);
    assert_null(c);
    assert_says(&e, words);
}
static inline void save_weights(const char *dir, const char *name, const char *json, size_t n_data)
{
    tg_buf b = {0};
    put_safetensors(&b, json, n_data);
    save_buf(dir, name, &b);
}

#define U8_TENSOR(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static inline void save_sharded(const char *dir)
{
    save_text(dir, "config.json", "{\"model_type\":\"llama\"}");
    save_weights(dir, "model-00001-of-00002.safetensors", U8_TENSOR("a"), 4);
    save_weights(dir, "model-00002-of-00002.safetensors", U8_TENSOR("b"), 4);
    save_text(dir, "model.safetensors.index.json",
              "{\"metadata\":{\"total_size\":8},\"weight_map\":{"
              "\"b\":\"model-00002-of-00002.safetensors\","
              "\"a\":\"model-00001-of-00002.safetensors\"}}");
}

#endif
