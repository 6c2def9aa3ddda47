/* SPDX-License-Identifier: Apache-2.0
 * dense.h - hyperparameters of the decoders that spell them as Llama does: sizes, norm, activation,
 * vocabulary, one rotary table. Each family reads its own additions, before or after. */
#ifndef TG_MODEL_DENSE_H
#define TG_MODEL_DENSE_H

#include "model/keys.h"

/* The values for keys that config.json leaves out: the defaults of the family's class in
 * transformers. GGUF files hold every key. */
typedef struct tg_dense {
    double rope_theta, norm_eps;
    int32_t max_positions;          /* TG_KEY_NEEDED: the file must say */
    int32_t n_vocab;                /* likewise */
    int32_t head_dim;               /* 0: width / heads */
    int32_t original_max_positions; /* 0: what the rotary settings say, else max_positions */
    double rotary_part;             /* of a head; 0: all */
    const char *rope;               /* the object of rotary settings; NULL: rope_parameters */
    const char *act;
    bool is_tied;
} tg_dense;

/* Everything of *h but windows and what only some families have: attn_scale is that of the head
 * size, and a GGUF file's window, where it has one, holds in every layer. is_layer_norm is set. */
TG_MUST_USE tg_status tg_dense_read(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                                    const tg_dense *absent, tg_arena *a, tg_err *e);

#endif
