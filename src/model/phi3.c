/* SPDX-License-Identifier: Apache-2.0
 * phi3.c - Phi 3, 3.5, 4 and 4-mini: Llama with q, k and v in one tensor, gate and up in another,
 * a part of each head rotating in some, and longrope in the long ones.
 *
 * Truth: transformers' models/phi3 and llama.cpp's phi3, whose files do not permute q and k. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

/* clang-format off */
static const tg_weight_rule rules[] = {
    {.role = TG_W_Q, .hf = "model.layers.#.self_attn.qkv_proj.weight",
     .gguf = "blk.#.attn_qkv.weight", .rows = TG_DIM_HD, .cols = TG_DIM_D,
     .hf_part = TG_WEIGHT_PART_Q, .gguf_part = TG_WEIGHT_PART_Q},
    {.role = TG_W_K, .hf = "model.layers.#.self_attn.qkv_proj.weight",
     .gguf = "blk.#.attn_qkv.weight", .rows = TG_DIM_KD, .cols = TG_DIM_D,
     .hf_part = TG_WEIGHT_PART_K, .gguf_part = TG_WEIGHT_PART_K},
    {.role = TG_W_V, .hf = "model.layers.#.self_attn.qkv_proj.weight",
     .gguf = "blk.#.attn_qkv.weight", .rows = TG_DIM_KD, .cols = TG_DIM_D,
     .hf_part = TG_WEIGHT_PART_V, .gguf_part = TG_WEIGHT_PART_V},
    {.role = TG_W_O, .hf = "model.layers.#.self_attn.o_proj.weight",
     .gguf = "blk.#.attn_output.weight",
     .rows = TG_DIM_D, .cols = TG_DIM_HD},
};
/* clang-format on */
static const tg_rule_list own_rules = TG_RULE_LIST(rules);

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .max_positions = 4096,
    .original_max_positions = 4096,
    .n_vocab = 32064,
    .act = "silu",
};

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    bool has_types = false;
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    if (tg_config_get_kind(c) == TG_CHECKPOINT_GGUF) return TG_OK;
    /* Phi3Config takes a "yarn" for longrope, whose lists such a file need not have. */
    if (h->ropes[0].kind != TG_ROPE_PLAIN && h->ropes[0].kind != TG_ROPE_LONGROPE)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: rope_scaling of phi3 must be of the type default or longrope.",
                       tg_config_get_file(c));
    /* The original length matters to longrope alone, which has read it; dropout is for training;
     * the last two are 1 in Phi 4's files, and never read. */
    static const char *const ignored[] = {
        "original_max_position_embeddings",
        "resid_pdrop",
        "embd_pdrop",
        "full_attn_mod",
        "interpolate_factor",
    };
    for (size_t i = 0; i < TG_COUNT(ignored); i++)
        tg_config_ignore(c, ignored[i]);
    return tg_hparams_read_window(h, c, ck, 0, true, &has_types, e);
}

const tg_arch tg_arch_phi3 = {
    .name = "phi3",
    .hf_types = {"phi3"},
    .gguf_arch = "phi3",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_ffn_norm, &own_rules,
              &tg_rules_gate_up},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_pre_norm,
};
