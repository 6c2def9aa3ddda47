/* SPDX-License-Identifier: Apache-2.0
 * stablelm.c - StableLM: layer norms with biases, a part of each head rotating, and in some models
 * attention and feed-forward side by side.
 *
 * Truth: transformers' models/stablelm and llama.cpp's stablelm, whose files do not permute q and
 * k. The 12B model also norms q and k, which is refused by its key. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

/* clang-format off */
static const tg_weight_rule rules[] = {
    {.role = TG_W_OUT_NORM_BIAS, .hf = "model.norm.bias", .gguf = "output_norm.bias",
     .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_ATTN_NORM_BIAS, .hf = "model.layers.#.input_layernorm.bias",
     .gguf = "blk.#.attn_norm.bias", .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_FFN_NORM, .hf = "model.layers.#.post_attention_layernorm.weight",
     .gguf = "blk.#.ffn_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1,
     .group = TG_WEIGHT_GROUP_FFN_NORM},
    {.role = TG_W_FFN_NORM_BIAS, .hf = "model.layers.#.post_attention_layernorm.bias",
     .gguf = "blk.#.ffn_norm.bias", .rows = TG_DIM_D, .cols = TG_DIM_1,
     .group = TG_WEIGHT_GROUP_FFN_NORM},
};
/* clang-format on */
static const tg_rule_list own_rules = TG_RULE_LIST(rules);

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .max_positions = 4096,
    .n_vocab = 50304,
    .rotary_part = 0.25,
    .act = "silu",
};

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    bool is_gguf = tg_config_get_kind(c) == TG_CHECKPOINT_GGUF, is_present = false;
    h->is_layer_norm = true;
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    return tg_config_get_bool(c, is_gguf ? "*.use_parallel_residual" : "use_parallel_residual",
                              &h->is_parallel, &is_present, e);
}

const tg_arch tg_arch_stablelm = {
    .name = "stablelm",
    .hf_types = {"stablelm"},
    .gguf_arch = "stablelm",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_glu, &own_rules},
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "use_qkv_bias"},
               [TG_WEIGHT_GROUP_FFN_NORM] = {.hf = "use_parallel_residual",
                                             .gguf = "*.use_parallel_residual",
                                             .is_inverse = true}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_pre_norm,
};
