/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rules.h"

/* clang-format off */
static const tg_weight_rule ends[] = {
    {.role = TG_W_EMBED, .hf = "model.embed_tokens.weight", .gguf = "token_embd.weight",
     .rows = TG_DIM_V, .cols = TG_DIM_D},
    {.role = TG_W_OUT_NORM, .hf = "model.norm.weight", .gguf = "output_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_HEAD, .hf = "lm_head.weight", .gguf = "output.weight",
     .rows = TG_DIM_V, .cols = TG_DIM_D},
};

static const tg_weight_rule attn_norm[] = {
    {.role = TG_W_ATTN_NORM, .hf = "model.layers.#.input_layernorm.weight",
     .gguf = "blk.#.attn_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1},
};

static const tg_weight_rule attention[] = {
    {.role = TG_W_Q, .hf = "model.layers.#.self_attn.q_proj.weight", .gguf = "blk.#.attn_q.weight",
     .rows = TG_DIM_HD, .cols = TG_DIM_D},
    {.role = TG_W_K, .hf = "model.layers.#.self_attn.k_proj.weight", .gguf = "blk.#.attn_k.weight",
     .rows = TG_DIM_KD, .cols = TG_DIM_D},
    {.role = TG_W_V, .hf = "model.layers.#.self_attn.v_proj.weight", .gguf = "blk.#.attn_v.weight",
     .rows = TG_DIM_KD, .cols = TG_DIM_D},
    {.role = TG_W_Q_BIAS, .hf = "model.layers.#.self_attn.q_proj.bias", .gguf = "blk.#.attn_q.bias",
     .rows = TG_DIM_HD, .cols = TG_DIM_1, .group = TG_WEIGHT_GROUP_QKV_BIAS},
    {.role = TG_W_K_BIAS, .hf = "model.layers.#.self_attn.k_proj.bias", .gguf = "blk.#.attn_k.bias",
     .rows = TG_DIM_KD, .cols = TG_DIM_1, .group = TG_WEIGHT_GROUP_QKV_BIAS},
    {.role = TG_W_V_BIAS, .hf = "model.layers.#.self_attn.v_proj.bias", .gguf = "blk.#.attn_v.bias",
     .rows = TG_DIM_KD, .cols = TG_DIM_1, .group = TG_WEIGHT_GROUP_QKV_BIAS},
    {.role = TG_W_O, .hf = "model.layers.#.self_attn.o_proj.weight",
     .gguf = "blk.#.attn_output.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_HD},
    {.role = TG_W_O_BIAS, .hf = "model.layers.#.self_attn.o_proj.bias",
     .gguf = "blk.#.attn_output.bias",
     .rows = TG_DIM_D, .cols = TG_DIM_1, .group = TG_WEIGHT_GROUP_O_BIAS},
};

static const tg_weight_rule qk_norm[] = {
    {.role = TG_W_Q_NORM, .hf = "model.layers.#.self_attn.q_norm.weight",
     .gguf = "blk.#.attn_q_norm.weight", .rows = TG_DIM_HEAD, .cols = TG_DIM_1},
    {.role = TG_W_K_NORM, .hf = "model.layers.#.self_attn.k_norm.weight",
     .gguf = "blk.#.attn_k_norm.weight", .rows = TG_DIM_HEAD, .cols = TG_DIM_1},
};

static const tg_weight_rule ffn_norm[] = {
    {.role = TG_W_FFN_NORM, .hf = "model.layers.#.post_attention_layernorm.weight",
     .gguf = "blk.#.ffn_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1},
};

static const tg_weight_rule glu[] = {
    {.role = TG_W_GATE, .hf = "model.layers.#.mlp.gate_proj.weight",
     .gguf = "blk.#.ffn_gate.weight",
     .rows = TG_DIM_F, .cols = TG_DIM_D},
    {.role = TG_W_UP, .hf = "model.layers.#.mlp.up_proj.weight", .gguf = "blk.#.ffn_up.weight",
     .rows = TG_DIM_F, .cols = TG_DIM_D},
    {.role = TG_W_DOWN, .hf = "model.layers.#.mlp.down_proj.weight",
     .gguf = "blk.#.ffn_down.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_F},
    {.role = TG_W_GATE_BIAS, .hf = "model.layers.#.mlp.gate_proj.bias",
     .gguf = "blk.#.ffn_gate.bias",
     .rows = TG_DIM_F, .cols = TG_DIM_1, .group = TG_WEIGHT_GROUP_FFN_BIAS},
    {.role = TG_W_UP_BIAS, .hf = "model.layers.#.mlp.up_proj.bias", .gguf = "blk.#.ffn_up.bias",
     .rows = TG_DIM_F, .cols = TG_DIM_1, .group = TG_WEIGHT_GROUP_FFN_BIAS},
    {.role = TG_W_DOWN_BIAS, .hf = "model.layers.#.mlp.down_proj.bias",
     .gguf = "blk.#.ffn_down.bias",
     .rows = TG_DIM_D, .cols = TG_DIM_1, .group = TG_WEIGHT_GROUP_FFN_BIAS},
};

static const tg_weight_rule gate_up[] = {
    {.role = TG_W_GATE, .hf = "model.layers.#.mlp.gate_up_proj.weight",
     .gguf = "blk.#.ffn_up.weight", .rows = TG_DIM_F, .cols = TG_DIM_D,
     .hf_part = TG_WEIGHT_PART_GATE, .gguf_part = TG_WEIGHT_PART_GATE},
    {.role = TG_W_UP, .hf = "model.layers.#.mlp.gate_up_proj.weight",
     .gguf = "blk.#.ffn_up.weight", .rows = TG_DIM_F, .cols = TG_DIM_D,
     .hf_part = TG_WEIGHT_PART_UP, .gguf_part = TG_WEIGHT_PART_UP},
    {.role = TG_W_DOWN, .hf = "model.layers.#.mlp.down_proj.weight",
     .gguf = "blk.#.ffn_down.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_F},
};

static const tg_weight_rule gemma[] = {
    {.role = TG_W_EMBED, .hf = "model.embed_tokens.weight", .gguf = "token_embd.weight",
     .rows = TG_DIM_V, .cols = TG_DIM_D},
    {.role = TG_W_OUT_NORM, .hf = "model.norm.weight", .gguf = "output_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1, .hf_fix = TG_WEIGHT_FIX_ADD_ONE},
    {.role = TG_W_HEAD, .hf = "lm_head.weight", .gguf = "output.weight",
     .rows = TG_DIM_V, .cols = TG_DIM_D},
    {.role = TG_W_ATTN_NORM, .hf = "model.layers.#.input_layernorm.weight",
     .gguf = "blk.#.attn_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1, .hf_fix = TG_WEIGHT_FIX_ADD_ONE},
    {.role = TG_W_ATTN_POST_NORM, .hf = "model.layers.#.post_attention_layernorm.weight",
     .gguf = "blk.#.post_attention_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1, .hf_fix = TG_WEIGHT_FIX_ADD_ONE},
    {.role = TG_W_FFN_NORM, .hf = "model.layers.#.pre_feedforward_layernorm.weight",
     .gguf = "blk.#.ffn_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1, .hf_fix = TG_WEIGHT_FIX_ADD_ONE},
    {.role = TG_W_FFN_POST_NORM, .hf = "model.layers.#.post_feedforward_layernorm.weight",
     .gguf = "blk.#.post_ffw_norm.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_1, .hf_fix = TG_WEIGHT_FIX_ADD_ONE},
};
/* clang-format on */

const tg_rule_list tg_rules_ends = TG_RULE_LIST(ends);
const tg_rule_list tg_rules_attn_norm = TG_RULE_LIST(attn_norm);
const tg_rule_list tg_rules_attention = TG_RULE_LIST(attention);
const tg_rule_list tg_rules_qk_norm = TG_RULE_LIST(qk_norm);
const tg_rule_list tg_rules_ffn_norm = TG_RULE_LIST(ffn_norm);
const tg_rule_list tg_rules_glu = TG_RULE_LIST(glu);
const tg_rule_list tg_rules_gate_up = TG_RULE_LIST(gate_up);
const tg_rule_list tg_rules_gemma = TG_RULE_LIST(gemma);

const char *const tg_ignored_rope_hf[] = {
    "model.layers.#.self_attn.rotary_emb.inv_freq",
    "model.rotary_emb.inv_freq",
    NULL,
};

const char *const tg_ignored_rope_gguf[] = {
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
    NULL,
};
