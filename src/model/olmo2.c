/* SPDX-License-Identifier: Apache-2.0
 * olmo2.c - OLMo 2: Llama with norms behind attention and feed-forward instead of before them, and
 * q and k normed over all heads together.
 *
 * Truth: transformers' models/olmo2 and llama.cpp's olmo2, whose files do not permute q and k. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

/* clang-format off */
static const tg_weight_rule rules[] = {
    {.role = TG_W_Q_NORM, .hf = "model.layers.#.self_attn.q_norm.weight",
     .gguf = "blk.#.attn_q_norm.weight", .rows = TG_SIZE_HD, .cols = TG_SIZE_1},
    {.role = TG_W_K_NORM, .hf = "model.layers.#.self_attn.k_norm.weight",
     .gguf = "blk.#.attn_k_norm.weight", .rows = TG_SIZE_KD, .cols = TG_SIZE_1},
    {.role = TG_W_ATTN_POST_NORM, .hf = "model.layers.#.post_attention_layernorm.weight",
     .gguf = "blk.#.post_attention_norm.weight", .rows = TG_SIZE_D, .cols = TG_SIZE_1},
    {.role = TG_W_FFN_POST_NORM, .hf = "model.layers.#.post_feedforward_layernorm.weight",
     .gguf = "blk.#.post_ffw_norm.weight", .rows = TG_SIZE_D, .cols = TG_SIZE_1},
};
/* clang-format on */
static const tg_rule_list own_rules = TG_RULE_LIST(rules);

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .max_positions = 2048,
    .n_vocab = 50304,
    .act = "silu",
};

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    h->is_qk_norm_whole = true;
    return tg_dense_read(h, c, ck, &absent, a, e);
}

static void forward(tg_build *b, const tg_hparams *h)
{
    tg_block_decoder(b, h, tg_layer_after);
}

const tg_arch tg_arch_olmo2 = {
    .name = "olmo2",
    .hf_types = {"olmo2"},
    .gguf_arch = "olmo2",
    .rules = {&tg_rules_ends, &tg_rules_attention, &tg_rules_glu, &own_rules},
    .ignored_tensors = tg_ignored_rope_tensors,
    .read_hparams = read_hparams,
    .forward = forward,
};
