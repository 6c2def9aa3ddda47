/* SPDX-License-Identifier: Apache-2.0 GGUF: any bytes either are refused with a message or give
 * views that can be read to their ends. */
#include "base/log.h"
#include "format/hparams.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void be_quiet(void *context, const char *line)
{
    (void)context;
    (void)line;
}

static void read_tensor(const tg_tensor *t)
{
    static float out[TG_MAX_BLOCK_ELEMS];
    int32_t block = tg_dtype_get_row(t->dtype)->block_elems;
    volatile uint8_t last = 0;
    if (t->n_bytes == 0) return;
    tg_dtype_unpack(t->dtype, t->data, out, block);
    last = ((const uint8_t *)t->data)[t->n_bytes - 1];
    (void)last;
}

static void read_key(const tg_gguf *g, tg_arena *a, const tg_gguf_kv *kv)
{
    int64_t n, i;
    int32_t id;
    double d;
    bool is;
    tg_str s, *strs;
    float *floats;
    int32_t *ints;
    char *key = tg_arena_copy_str(a, kv->key.ptr, kv->key.len);
    if (!key || tg_gguf_find(g, key) != kv) abort();
    for (int64_t k = 0; k < kv->n; k += kv->n / 8 + 1) {
        (void)tg_gguf_read_i64(kv, k, &i);
        (void)tg_gguf_read_f64(kv, k, &d);
        (void)tg_gguf_read_bool(kv, k, &is);
    }
    (void)tg_gguf_read_str(kv, &s);
    if (tg_gguf_get_strs(g, key, a, &strs, &n, NULL, NULL) == TG_OK)
        for (i = 0; i < n; i++)
            (void)tg_utf8_find_invalid(strs[i]);
    (void)!tg_gguf_get_f32s(g, key, a, &floats, &n, NULL, NULL);
    (void)!tg_gguf_get_i32s(g, key, a, &ints, &n, NULL, NULL);
    (void)!tg_gguf_get_token_id(g, key, 100, &id, NULL);
}

static void read_config(const tg_gguf *g, tg_arena *a)
{
    tg_config *c = NULL;
    int64_t each[4];
    const char **keys;
    int32_t n;
    if (tg_config_new_gguf(&c, g, NULL) == TG_OK) {
        (void)!tg_config_get_i64_each(c, "*.attention.head_count", each, 4, NULL, NULL);
        if (tg_config_unread(c, a, &keys, &n, NULL) != TG_OK) abort();
    }
    tg_config_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_arena a = {0};
    tg_gguf g;
    tg_err e = {0};
    tg_log_set_sink(be_quiet, NULL);
    tg_status s = tg_gguf_parse(&g, &a, data, size, "fuzz", &e);
    if (s != TG_OK && e.msg[0] == 0) abort(); /* never without a word */
    if (s == TG_OK) {
        for (int32_t i = 0; i < g.n_tensors; i++)
            read_tensor(&g.tensors[i]);
        for (int32_t i = 0; i < g.n_kvs; i++)
            read_key(&g, &a, &g.kvs[i]);
        read_config(&g, &a);
    }
    tg_arena_deinit(&a);
    if (tg_mem_n_alive() != 0) abort();
    return 0;
}
