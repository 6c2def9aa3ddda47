/* SPDX-License-Identifier: Apache-2.0
 * safetensors: any bytes either are refused with a message or give tensors that can be read. */
#include "format/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_arena a = {0};
    tg_safetensors x;
    tg_err e = {0};
    tg_status s = tg_safetensors_parse(&x, &a, data, size, "fuzz", &e);
    if (s != TG_OK && e.msg[0] == 0) abort();
    size_t n_bytes = 0;
    for (int32_t i = 0; s == TG_OK && i < x.n_tensors; i++) {
        const tg_tensor *t = &x.tensors[i];
        float out;
        volatile uint8_t last = 0;
        n_bytes += t->n_bytes;
        if (t->n_bytes == 0) continue;
        tg_dtype_unpack(t->dtype, t->data, &out, 1);
        last = ((const uint8_t *)t->data)[t->n_bytes - 1];
        (void)last;
    }
    if (n_bytes > size) abort(); /* tensors share no byte */
    tg_arena_deinit(&a);
    if (tg_mem_n_alive() != 0) abort();
    return 0;
}
