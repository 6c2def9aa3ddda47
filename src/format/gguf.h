/* SPDX-License-Identifier: Apache-2.0
 * gguf.h - one GGUF file, versions 2 and 3: its keys and its tensors, as views into the bytes.
 *
 * tg_gguf_parse checks everything the file claims about itself before anything is believed: every
 * length is compared with the bytes that are left, every product is checked, and what is allocated
 * is bounded by a small multiple of the file. After it, all views are in bounds and all names are
 * printable. The meaning of keys is not decided here; split files are put together by
 * checkpoint.c. */
#ifndef TG_FORMAT_GGUF_H
#define TG_FORMAT_GGUF_H

#include "base/mem.h"
#include "format/tensor.h"

/* The format's own numbers. */
typedef enum tg_gguf_type {
    TG_GGUF_U8,
    TG_GGUF_I8,
    TG_GGUF_U16,
    TG_GGUF_I16,
    TG_GGUF_U32,
    TG_GGUF_I32,
    TG_GGUF_F32,
    TG_GGUF_BOOL,
    TG_GGUF_STRING,
    TG_GGUF_ARRAY,
    TG_GGUF_U64,
    TG_GGUF_I64,
    TG_GGUF_F64,
    TG_GGUF_TYPE_COUNT
} tg_gguf_type;

/* "u32", "string": for messages. */
const char *tg_gguf_type_name(tg_gguf_type t);

/* A key with its value or its array of values. */
typedef struct tg_gguf_kv {
    tg_str key;
    tg_gguf_type type; /* of the value, or of each element; never TG_GGUF_ARRAY */
    bool is_array;
    int64_t n;           /* elements; 1 for a value that is no array */
    const uint8_t *data; /* elements one after another, unaligned; strings with their lengths */
    size_t n_bytes;
} tg_gguf_kv;

typedef struct tg_gguf {
    const char *file; /* for messages; borrowed */
    int32_t version;
    size_t alignment;
    int32_t n_kvs, n_tensors;
    tg_gguf_kv *kvs;    /* in the file's order */
    tg_tensor *tensors; /* in the file's order */
    tg_name_index kv_names;
    size_t data_offset; /* where the tensor region begins */
} tg_gguf;

/* `data` is borrowed and must outlive *out; lists go into the arena, and stay there on failure. */
TG_MUST_USE tg_status tg_gguf_parse(tg_gguf *out, tg_arena *a, const uint8_t *data, size_t n_bytes,
                                    const char *file, tg_err *e);

/* NULL when there is no such key. */
const tg_gguf_kv *tg_gguf_find(const tg_gguf *g, const char *key);

/* Element i of a value that holds numbers of that kind; false, and *out untouched, when the type is
 * another or the number does not fit. Integers are read as floats, never floats as integers. */
bool tg_gguf_read_i64(const tg_gguf_kv *kv, int64_t i, int64_t *out);
bool tg_gguf_read_f64(const tg_gguf_kv *kv, int64_t i, double *out);
bool tg_gguf_read_bool(const tg_gguf_kv *kv, int64_t i, bool *out);
/* A string that is no array element: for those use tg_gguf_get_strs, which walks once. */
bool tg_gguf_read_str(const tg_gguf_kv *kv, tg_str *out);

/* Typed reads by key, as in base/json.h: absent gives *is_present = false and TG_OK; another type
 * is an error that names file, key and type. With is_present NULL the key must be there. */
TG_MUST_USE tg_status tg_gguf_get_i64(const tg_gguf *g, const char *key, int64_t *out,
                                      bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_gguf_get_f64(const tg_gguf *g, const char *key, double *out,
                                      bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_gguf_get_bool(const tg_gguf *g, const char *key, bool *out,
                                       bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_gguf_get_str(const tg_gguf *g, const char *key, tg_str *out,
                                      bool *is_present, tg_err *e);
/* Arrays; the lists are made in the arena, the strings in them are views into the file. */
TG_MUST_USE tg_status tg_gguf_get_strs(const tg_gguf *g, const char *key, tg_arena *a, tg_str **out,
                                       int64_t *n, bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_gguf_get_f32s(const tg_gguf *g, const char *key, tg_arena *a, float **out,
                                       int64_t *n, bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_gguf_get_i32s(const tg_gguf *g, const char *key, tg_arena *a,
                                       int32_t **out, int64_t *n, bool *is_present, tg_err *e);
/* A token id below n_tokens: -1 when the key is absent (never a default), an error beyond. */
TG_MUST_USE tg_status tg_gguf_get_token_id(const tg_gguf *g, const char *key, int64_t n_tokens,
                                           int32_t *out, tg_err *e);

#endif
