/* SPDX-License-Identifier: Apache-2.0
 * qwen3.c - Qwen 3: Llama with a norm of each head of q and k before rotation.
 *
 * Truth: transformers' models/qwen3 and llama.cpp's qwen3, whose files do not permute q and k. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-6,
    .max_positions = 32768,
    .n_vocab = 151936,
    .head_dim = 128,
    .act = "silu",
};

/* Layers from max_window_layers on see a window, where it is switched on at all. */
static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    bool has_types = false, is_present = false;
    int32_t first = 28;
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    if (tg_config_get_kind(c) == TG_CHECKPOINT_GGUF) return TG_OK;
    TG_TRY(tg_config_get_i32(c, "max_window_layers", 0, INT32_MAX, &first, &is_present, e));
    TG_TRY(tg_hparams_read_window(h, c, ck, 4096, false, &has_types, e));
    for (int32_t l = 0; l < h->n_layers && !has_types; l++)
        h->is_sliding[l] = h->is_sliding[l] && l >= first;
    return TG_OK;
}

static void forward(tg_build *b, const tg_hparams *h)
{
    tg_block_decoder(b, h, tg_layer_before);
}

const tg_arch tg_arch_qwen3 = {
    .name = "qwen3",
    .hf_types = {"qwen3"},
    .gguf_arch = "qwen3",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_qk_norm,
              &tg_rules_ffn_norm, &tg_rules_glu},
    .ignored_tensors = tg_ignored_rope_tensors,
    .read_hparams = read_hparams,
    .forward = forward,
};
