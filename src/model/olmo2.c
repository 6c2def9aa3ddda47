/* SPDX-License-Identifier: Apache-2.0
 * olmo2.c - OLMo 2 and 3: Llama with norms behind attention and feed-forward instead of before
 * them, and q and k normed over all heads together. In OLMo 3 three layers of four see a window,
 * and only the others' rotation is scaled.
 *
 * Truth: transformers' models/olmo2 and olmo3, and llama.cpp's olmo2, whose files do not permute q
 * and k. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

/* clang-format off */
static const tg_weight_rule rules[] = {
    {.role = TG_W_Q_NORM, .hf = "model.layers.#.self_attn.q_norm.weight",
     .gguf = "blk.#.attn_q_norm.weight", .rows = TG_DIM_HD, .cols = TG_DIM_1},
    {.role = TG_W_K_NORM, .hf = "model.layers.#.self_attn.k_norm.weight",
     .gguf = "blk.#.attn_k_norm.weight", .rows = TG_DIM_KD, .cols = TG_DIM_1},
    {.role = TG_W_ATTN_POST_NORM, .hf = "model.layers.#.post_attention_layernorm.weight",
     .gguf = "blk.#.post_attention_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1},
    {.role = TG_W_FFN_POST_NORM, .hf = "model.layers.#.post_feedforward_layernorm.weight",
     .gguf = "blk.#.post_ffw_norm.weight", .rows = TG_DIM_D, .cols = TG_DIM_1},
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

static const tg_dense absent3 = {
    .rope_theta = 500000,
    .norm_eps = 1e-5,
    .max_positions = 2048,
    .n_vocab = 50304,
    .rope = "rope_parameters.full_attention",
    .act = "silu",
};

/* Three layers of four slide where nothing says which. */
enum { PATTERN = 4 };

static tg_status read_hf_olmo3(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                               tg_err *e)
{
    bool has_types = false;
    /* One theta for both kinds of layers before transformers 5 had an object for each. */
    tg_rope_keys sliding = {
        .object = "rope_parameters.sliding_attention",
        .theta_key = "rope_theta",
        .theta_absent = absent3.rope_theta,
    };
    TG_TRY(tg_dense_read(h, c, ck, &absent3, a, e));
    TG_TRY(tg_rope_read_hf(&h->ropes[1], h, c, &sliding, a, e));
    TG_TRY(tg_hparams_read_window(h, c, ck, 4096, true, &has_types, e));
    if (!has_types && h->window > 0) tg_hparams_set_pattern(h, PATTERN);
    return TG_OK;
}

/* OLMo 3's files say olmo2 too: they have a window. Sliding layers are not scaled. */
static tg_status read_gguf(tg_hparams *h, tg_config *c, tg_err *e)
{
    bool is_present = false;
    double theta = h->ropes[0].theta;
    if (h->window == 0) return TG_OK;
    TG_TRY(tg_config_get_f64(c, "*.rope.freq_base_swa", &theta, &is_present, e));
    if (!(theta > 1))
        return tg_fail(e, TG_E_CORRUPT, "%s: rope.freq_base_swa is %g, but must be greater than 1.",
                       tg_config_get_file(c), theta);
    h->ropes[1] = (tg_rope_spec){.rotary_dim = h->ropes[0].rotary_dim,
                                 .theta = theta,
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .original_max_positions = h->max_positions};
    return tg_hparams_read_gguf_pattern(h, c, PATTERN, e);
}

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    tg_str type = {0};
    bool is_gguf = tg_config_get_kind(c) == TG_CHECKPOINT_GGUF, is_present = false;
    h->is_qk_norm_whole = true;
    if (!is_gguf) TG_TRY(tg_config_get_str(c, "/model_type", &type, &is_present, e));
    if (tg_str_is(type, "olmo3")) return read_hf_olmo3(h, c, ck, a, e);
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    return is_gguf ? read_gguf(h, c, e) : TG_OK;
}

const tg_arch tg_arch_olmo2 = {
    .name = "olmo2",
    .hf_types = {"olmo2", "olmo3"},
    .gguf_arch = "olmo2",
    .rules = {&tg_rules_ends, &tg_rules_attention, &tg_rules_glu, &own_rules},
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias"},
               [TG_WEIGHT_GROUP_O_BIAS] = {.hf = "attention_bias"}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_post_norm,
};
