/* SPDX-License-Identifier: Apache-2.0
 * glm4.c - GLM 4 (0414): norms before and behind both halves of a layer, half of each head
 * rotating, biases on q, k and v, gate and up in one tensor.
 *
 * Truth: transformers' models/glm4 and llama.cpp's glm4. Both formats hold q and k for rotating
 * neighbors. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

/* clang-format off */
static const tg_weight_rule rules[] = {
    {.role = TG_W_ATTN_POST_NORM, .hf = "model.layers.#.post_self_attn_layernorm.weight",
     .gguf = "blk.#.post_attention_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_FFN_POST_NORM, .hf = "model.layers.#.post_mlp_layernorm.weight",
     .gguf = "blk.#.post_ffw_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1},
};
/* clang-format on */
static const tg_rule_list own_rules = TG_RULE_LIST(rules);

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 0.00000015625,
    .max_positions = 131072,
    .n_vocab = 151552,
    .head_dim = 128,
    .rotary_part = 0.5,
    .act = "silu",
};

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    return tg_dense_read(h, c, ck, &absent, a, e);
}

const tg_arch tg_arch_glm4 = {
    .name = "glm4",
    .hf_types = {"glm4"},
    .gguf_arch = "glm4",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_ffn_norm,
              &own_rules, &tg_rules_gate_up},
    .hf_has_pairs = true,
    .gguf_has_pairs = true,
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias"}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_sandwich_norm,
};
