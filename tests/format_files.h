/* SPDX-License-Identifier: Apache-2.0
 * format_files.h - small writers of GGUF and safetensors bytes, for tests that need wrong ones.
 *
 * They write what they are told, lies included; nothing here is shared with the readers. A file is
 * a tg_buf; it is written below a folder of its own and removed at the end. */
#ifndef TG_TESTS_FORMAT_FILES_H
#define TG_TESTS_FORMAT_FILES_H

#include "base/file.h"
#include "base/log.h"
#include "check.h"

#include <stdio.h>

static inline void put(tg_buf *b, const void *bytes, size_t n)
{
    tg_buf_add(b, bytes, n);
}

static inline void put_u8(tg_buf *b, uint8_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_u16(tg_buf *b, uint16_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_u32(tg_buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_u64(tg_buf *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_str(tg_buf *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static inline void put_zeros(tg_buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_u8(b, 0);
}

static inline void put_header(tg_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kvs)
{
    put(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_kvs);
}

/* Type numbers of the format itself, written out so that a mistake in the reader's enum shows. */
enum {
    KV_U8 = 0,
    KV_I8 = 1,
    KV_U16 = 2,
    KV_I16 = 3,
    KV_U32 = 4,
    KV_I32 = 5,
    KV_F32 = 6,
    KV_BOOL = 7,
    KV_STRING = 8,
    KV_ARRAY = 9,
    KV_U64 = 10,
    KV_I64 = 11,
    KV_F64 = 12
};
enum { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q4_0 = 2, GGUF_Q8_0 = 8, GGUF_Q5_K = 13 };

static inline void put_key(tg_buf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_u32(b, type);
}

static inline void put_kv_u32(tg_buf *b, const char *key, uint32_t v)
{
    put_key(b, key, KV_U32);
    put_u32(b, v);
}

static inline void put_kv_u16(tg_buf *b, const char *key, uint16_t v)
{
    put_key(b, key, KV_U16);
    put_u16(b, v);
}

static inline void put_kv_str(tg_buf *b, const char *key, const char *v)
{
    put_key(b, key, KV_STRING);
    put_str(b, v);
}

static inline void put_array(tg_buf *b, const char *key, uint32_t type, uint64_t n)
{
    put_key(b, key, KV_ARRAY);
    put_u32(b, type);
    put_u64(b, n);
}

/* dims in the file's order, fastest first. */
static inline void put_tensor(tg_buf *b, const char *name, uint32_t n_dims, const uint64_t *dims,
                              uint32_t type, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, n_dims);
    put(b, dims, n_dims * sizeof *dims);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_padding(tg_buf *b, size_t align)
{
    while (b->len % align)
        put_u8(b, 0);
}

/* A safetensors file from its JSON and the number of data bytes, which count 0, 1, 2, ... */
static inline void put_safetensors(tg_buf *b, const char *json, size_t n_data)
{
    put_str(b, json);
    for (size_t i = 0; i < n_data; i++)
        put_u8(b, (uint8_t)i);
}

/* ---- folders */

static inline char *make_folder(void)
{
    static char path[64];
    strcpy(path, "/tmp/tg-format-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

/* Writes dir/name, folders in between included; returns the path, valid until the next call. */
static inline const char *save_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    static char path[512];
    tg_err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(tg_dir_make(path, &e), TG_OK);
    *slash = '/';
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *save_text(const char *dir, const char *name, const char *text)
{
    return save_file(dir, name, text, strlen(text));
}

static inline const char *save_buf(const char *dir, const char *name, tg_buf *b)
{
    const char *path = save_file(dir, name, tg_buf_cstr(b), b->len);
    tg_buf_deinit(b);
    return path;
}

static inline void remove_folder(const char *path)
{
    tg_err e = {0};
    assert_int_equal(tg_path_remove(path, &e), TG_OK);
}

/* ---- messages */

static inline void assert_says(const tg_err *e, const char *words)
{
    if (strstr(e->msg, words)) return;
    print_error("the message is \"%s\"; wanted in it: \"%s\"\n", e->msg, words);
    fail();
}

/* Log lines of a test: kept, so that a test can ask for them and the output stays quiet. */
static char test_log[4096];

static inline void keep_line(void *context, const char *line)
{
    (void)context;
    strncat(test_log, line, sizeof test_log - strlen(test_log) - 1);
}

static inline void begin_log(void)
{
    test_log[0] = 0;
    tg_log_set_sink(keep_line, NULL);
}

/* A real model: $TG_MODELS or models/; NULL when it is not there. */
static inline const char *find_model(const char *file)
{
    static char path[512];
    const char *dir = getenv("TG_MODELS");
    snprintf(path, sizeof path, "%s/%s", dir ? dir : "models", file);
    return tg_path_is_file(path) ? path : NULL;
}

#endif
