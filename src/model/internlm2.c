/* SPDX-License-Identifier: Apache-2.0
 * internlm2.c - InternLM 2 and 2.5: Llama with names of its own, and q, k and v in one tensor,
 * group by group.
 *
 * Truth: the code that comes with the checkpoints (modeling_internlm2.py: "b q (h gs d)", of each
 * group its queries, then key and value), and llama.cpp's internlm2, whose files hold q, k and v
 * apart and permuted as Llama's. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

/* clang-format off */
static const tg_weight_rule rules[] = {
    {.role = TG_W_EMBED, .hf = "model.tok_embeddings.weight", .gguf = "token_embd.weight",
     .rows = TG_DIM_V, .cols = TG_DIM_D},
    {.role = TG_W_OUT_NORM, .hf = "model.norm.weight", .gguf = "output_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_HEAD, .hf = "output.weight", .gguf = "output.weight",
     .rows = TG_DIM_V, .cols = TG_DIM_D},
    {.role = TG_W_ATTN_NORM, .hf = "model.layers.#.attention_norm.weight",
     .gguf = "blk.#.attn_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_Q, .hf = "model.layers.#.attention.wqkv.weight", .gguf = "blk.#.attn_q.weight",
     .rows = TG_DIM_HD, .cols = TG_DIM_D, .hf_part = TG_WEIGHT_PART_GROUP_Q},
    {.role = TG_W_K, .hf = "model.layers.#.attention.wqkv.weight", .gguf = "blk.#.attn_k.weight",
     .rows = TG_DIM_KD, .cols = TG_DIM_D, .hf_part = TG_WEIGHT_PART_GROUP_K},
    {.role = TG_W_V, .hf = "model.layers.#.attention.wqkv.weight", .gguf = "blk.#.attn_v.weight",
     .rows = TG_DIM_KD, .cols = TG_DIM_D, .hf_part = TG_WEIGHT_PART_GROUP_V},
    {.role = TG_W_O, .hf = "model.layers.#.attention.wo.weight",
     .gguf = "blk.#.attn_output.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_HD},
    {.role = TG_W_FFN_NORM, .hf = "model.layers.#.ffn_norm.weight", .gguf = "blk.#.ffn_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_GATE, .hf = "model.layers.#.feed_forward.w1.weight",
     .gguf = "blk.#.ffn_gate.weight",
     .rows = TG_DIM_F, .cols = TG_DIM_D},
    {.role = TG_W_UP, .hf = "model.layers.#.feed_forward.w3.weight", .gguf = "blk.#.ffn_up.weight",
     .rows = TG_DIM_F, .cols = TG_DIM_D},
    {.role = TG_W_DOWN, .hf = "model.layers.#.feed_forward.w2.weight",
     .gguf = "blk.#.ffn_down.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_F},
};
/* clang-format on */
static const tg_rule_list own_rules = TG_RULE_LIST(rules);

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-6,
    .max_positions = 2048,
    .n_vocab = 103168,
    .act = "silu",
};

static const char *const hf_ignored[] = {"model.layers.#.attention.rotary_emb.inv_freq", NULL};

static const tg_refusal refusals[] = {
    {"bias", TG_REFUSE_TRUE, 0, "its matrices have no biases"},
};

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    if (tg_config_get_kind(c) == TG_CHECKPOINT_HF)
        TG_TRY(tg_config_refuse(c, refusals, TG_COUNT(refusals), e));
    return tg_dense_read(h, c, ck, &absent, a, e);
}

const tg_arch tg_arch_internlm2 = {
    .name = "internlm2",
    .hf_types = {"internlm2"},
    .gguf_arch = "internlm2",
    .rules = {&own_rules},
    .gguf_has_pairs = true,
    .hf_ignored = hf_ignored,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_pre_norm,
};
