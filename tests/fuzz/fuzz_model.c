/* SPDX-License-Identifier: Apache-2.0 From a checkpoint to packed weights: any GGUF file, and any
 * config.json (an input that begins with a brace) beside a fixed weights file, either is refused
 * with a message or can be compiled and packed. */
#include "compile/compile.h"
#include "folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An embedding and a norm: enough for a folder to be read up to its weights. */
static void save_weights(void)
{
    static const char json[] =
        "{\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [4, 8], "
        "\"data_offsets\": [0, 128]}, \"model.norm.weight\": {\"dtype\": \"F32\", "
        "\"shape\": [8], \"data_offsets\": [128, 160]}}";
    uint8_t file[8 + sizeof json - 1 + 160] = {sizeof json - 1};
    _Static_assert(sizeof json - 1 < 256, "the length is one byte");
    memcpy(file + 8, json, sizeof json - 1);
    save("model.safetensors", file, sizeof file);
}

/* Packs the first and the last piece of every matrix and all of every vector, as the table says. */
static void pack(const tg_loaded_checkpoint *b, const tg_program *p)
{
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        if (w->role == TG_W_ROPE_0 || w->role == TG_W_ROPE_1) continue;
        const tg_found_weight *f =
            tg_loaded_checkpoint_find_weight(b, (tg_weight_role)w->role, w->layer);
        size_t n = w->is_plain ? (size_t)w->rows * sizeof(float)
                               : tg_layout_tile_bytes((tg_layout)w->layout, w->cols);
        uint8_t *piece = tg_mem_new(n);
        if (piece && w->is_plain) tg_pack_vector(f->tensor, &f->order, (float *)(void *)piece);
        int64_t last = (w->rows - 1) / TG_TILE_ROWS;
        for (int k = 0; piece && !w->is_plain && k < 2; k++)
            (void)!tg_pack_tile((tg_layout)w->layout, f->tensor, &f->order, k ? last : 0, NULL,
                                piece, NULL);
        tg_mem_free(piece);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[128];
    bool is_config = size > 0 && data[0] == '{';
    tg_err e = {0};
    tg_checkpoint *c = NULL;
    tg_loaded_checkpoint *b = NULL;
    tg_compiled compiled = {0};
    if (begin_folder()) save_weights();
    save(is_config ? "config.json" : "model.gguf", data, size);
    snprintf(path, sizeof path, "%s%s", folder, is_config ? "" : "/model.gguf");
    tg_status s = tg_checkpoint_open(&c, path, &e);
    if (s == TG_OK) s = tg_loaded_checkpoint_open(&b, c, &e);
    if (s == TG_OK) {
        const tg_hparams *h = tg_loaded_checkpoint_hparams(b);
        tg_export_config config = {.max_length = TG_MIN(h->position_limit, 100),
                                   .speculation = h->position_limit > 1,
                                   .weights = (tg_weights_mode)(size % 6)};
        s = tg_compile(&compiled, b, &config, NULL, NULL, &e);
        if (s == TG_OK) pack(b, &compiled.program);
        tg_compiled_deinit(&compiled);
    }
    if (s != TG_OK && e.msg[0] == 0) abort(); /* refused without a word */
    tg_loaded_checkpoint_free(b);
    tg_checkpoint_close(c);
    return 0;
}
