/* SPDX-License-Identifier: Apache-2.0
 * found.h - inside a loaded checkpoint: shared by model.c, which reads its config and builds the
 * graph, and found.c, which finds a tensor for every weight. */
#ifndef TG_MODEL_FOUND_H
#define TG_MODEL_FOUND_H

#include "format/prequantized.h"
#include "model/model.h"

/* Whether the weights of a group are in this checkpoint. */
typedef enum tg_weight_presence {
    TG_PRESENCE_NEVER, /* refused where they are there all the same */
    TG_PRESENCE_ALWAYS,
    TG_PRESENCE_BY_FILE /* GGUF says it by the tensors: all of a group, in all layers, or none */
} tg_weight_presence;

struct tg_loaded_checkpoint {
    const tg_checkpoint *c; /* borrowed */
    const tg_arch *arch;
    const char *prefix;            /* what stands for "model." in this checkpoint's names */
    tg_prequantized *prequantized; /* weights quantized in the folder's own way; NULL: none */
    tg_hparams h;
    tg_weight_presence groups[TG_WEIGHT_GROUP_COUNT];
    const char *group_keys[TG_WEIGHT_GROUP_COUNT]; /* the key that decided; NULL: none */
    bool is_key_absent[TG_WEIGHT_GROUP_COUNT];     /* it is not in the file, and so false */
    tg_found_weight *found;                        /* [TG_W_COUNT][n_layers] */
    tg_arena arena;
};

bool tg_loaded_checkpoint_is_gguf(const tg_loaded_checkpoint *b);
int32_t tg_loaded_checkpoint_n_layers(const tg_loaded_checkpoint *b, tg_weight_role role);

/* Fills n_embed_rows, is_tied and `found`. After the hyperparameters and the groups. */
TG_MUST_USE tg_status tg_loaded_checkpoint_find_weights(tg_loaded_checkpoint *b, tg_err *e);

#endif
