/* SPDX-License-Identifier: Apache-2.0
 * Quantized Hugging Face weights: the line of a config.json, then the bytes of a safetensors file.
 * Either is refused with a message, or every matrix has rows that can be read and unpacked. */
#include "folder.h"
#include "format/prequant_matrix.h"
#include "format/prequantized.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_rows(const tg_tensor *t)
{
    int64_t rows[] = {0, t->dims[0] / 2, t->dims[0] - 1};
    size_t n = tg_dtype_row_bytes(t->dtype, t->dims[1]);
    uint8_t *made = tg_mem_new(n);
    float *values = tg_mem_new_array((size_t)t->dims[1], sizeof *values);
    for (size_t i = 0; made && values && i < TG_COUNT(rows); i++) {
        tg_prequant_matrix_read(t, rows[i], made);
        tg_dtype_unpack(t->dtype, made, values, t->dims[1]);
    }
    tg_mem_free(made);
    tg_mem_free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    tg_err e = {0};
    tg_checkpoint *c = NULL;
    tg_prequantized *s = NULL;
    if (!end) return 0;
    begin_folder();
    save("config.json", data, (size_t)(end - data));
    save("model.safetensors", end + 1, size - (size_t)(end + 1 - data));
    tg_status status = tg_checkpoint_open(&c, folder, &e);
    if (status == TG_OK) {
        const json_t *about =
            json_object_get(tg_checkpoint_get_json(c, TG_HF_CONFIG), "quantization_config");
        status = tg_prequantized_new(&s, c, about, &e);
    }
    for (int32_t i = 0; status == TG_OK && i < tg_checkpoint_n_tensors(c); i++) {
        const tg_tensor *t = tg_prequantized_find_codes(s, tg_checkpoint_get_tensor(c, i)->name);
        if (t && tg_prequantized_find(s, t->name) != t) abort();
        if (t) read_rows(t);
    }
    if (status != TG_OK && e.msg[0] == 0) abort(); /* refused without a word */
    tg_prequantized_free(s);
    tg_checkpoint_close(c);
    return 0;
}
