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

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    return tg_hparams_read_late_window(h, c, ck, e);
}

const tg_arch tg_arch_qwen3 = {
    .name = "qwen3",
    .hf_types = {"qwen3"},
    .gguf_arch = "qwen3",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_qk_norm,
              &tg_rules_ffn_norm, &tg_rules_glu},
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias"},
               [TG_WEIGHT_GROUP_O_BIAS] = {.hf = "attention_bias"}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_pre_norm,
};
