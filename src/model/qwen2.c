/* SPDX-License-Identifier: Apache-2.0
 * qwen2.c - Qwen 2 and 2.5: Llama with biases on q, k and v, and a window in the later layers.
 *
 * Truth: transformers' models/qwen2 and llama.cpp's qwen2, whose files do not permute q and k. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-6,
    .max_positions = 32768,
    .n_vocab = 151936,
    .act = "silu",
};

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    return tg_hparams_read_late_window(h, c, ck, e);
}

const tg_arch tg_arch_qwen2 = {
    .name = "qwen2",
    .hf_types = {"qwen2"},
    .gguf_arch = "qwen2",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_ffn_norm,
              &tg_rules_glu},
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.is_always = true, .hf = "attention_bias"}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_pre_norm,
};
