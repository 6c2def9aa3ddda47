/* SPDX-License-Identifier: Apache-2.0 llama.c - Llama 2 and 3, and what copied them unchanged but
 * for numbers: SmolLM2, Yi, TinyLlama, and Mistral, whose layers all see a window.
 *
 * Truth: transformers' models/llama and models/mistral. GGUF files hold the rows of q and k (biases
 * too) with the rotary halves of each head interleaved, because ggml rotates neighbours for this
 * family. */
#include "model/block.h"
#include "model/keys.h"

#include <math.h>
#include <stddef.h>

/* clang-format off */
static const tg_weight_rule rules[] = {
    {.role = TG_W_EMBED, .hf = "model.embed_tokens.weight", .gguf = "token_embd.weight",
     .rows = TG_SIZE_V, .cols = TG_SIZE_D, .split = TG_SPLIT_ROWS},
    {.role = TG_W_OUT_NORM, .hf = "model.norm.weight", .gguf = "output_norm.weight",
     .rows = TG_SIZE_D, .cols = TG_SIZE_1},
    {.role = TG_W_HEAD, .hf = "lm_head.weight", .gguf = "output.weight",
     .rows = TG_SIZE_V, .cols = TG_SIZE_D, .split = TG_SPLIT_ROWS},

    {.role = TG_W_ATTN_NORM, .hf = "model.layers.#.input_layernorm.weight",
     .gguf = "blk.#.attn_norm.weight", .rows = TG_SIZE_D, .cols = TG_SIZE_1},
    {.role = TG_W_Q, .hf = "model.layers.#.self_attn.q_proj.weight", .gguf = "blk.#.attn_q.weight",
     .rows = TG_SIZE_HD, .cols = TG_SIZE_D, .split = TG_SPLIT_ROWS, .gguf_fix = TG_FIX_UNPERMUTE_Q},
    {.role = TG_W_K, .hf = "model.layers.#.self_attn.k_proj.weight", .gguf = "blk.#.attn_k.weight",
     .rows = TG_SIZE_KD, .cols = TG_SIZE_D, .split = TG_SPLIT_ROWS, .gguf_fix = TG_FIX_UNPERMUTE_K},
    {.role = TG_W_V, .hf = "model.layers.#.self_attn.v_proj.weight", .gguf = "blk.#.attn_v.weight",
     .rows = TG_SIZE_KD, .cols = TG_SIZE_D, .split = TG_SPLIT_ROWS},
    {.role = TG_W_Q_BIAS, .hf = "model.layers.#.self_attn.q_proj.bias", .gguf = "blk.#.attn_q.bias",
     .rows = TG_SIZE_HD, .cols = TG_SIZE_1, .is_optional = true, .split = TG_SPLIT_ROWS,
     .gguf_fix = TG_FIX_UNPERMUTE_Q},
    {.role = TG_W_K_BIAS, .hf = "model.layers.#.self_attn.k_proj.bias", .gguf = "blk.#.attn_k.bias",
     .rows = TG_SIZE_KD, .cols = TG_SIZE_1, .is_optional = true, .split = TG_SPLIT_ROWS,
     .gguf_fix = TG_FIX_UNPERMUTE_K},
    {.role = TG_W_V_BIAS, .hf = "model.layers.#.self_attn.v_proj.bias", .gguf = "blk.#.attn_v.bias",
     .rows = TG_SIZE_KD, .cols = TG_SIZE_1, .is_optional = true, .split = TG_SPLIT_ROWS},
    {.role = TG_W_O, .hf = "model.layers.#.self_attn.o_proj.weight",
     .gguf = "blk.#.attn_output.weight",
     .rows = TG_SIZE_D, .cols = TG_SIZE_HD, .split = TG_SPLIT_COLS},
    {.role = TG_W_O_BIAS, .hf = "model.layers.#.self_attn.o_proj.bias",
     .gguf = "blk.#.attn_output.bias", .rows = TG_SIZE_D, .cols = TG_SIZE_1, .is_optional = true},

    {.role = TG_W_FFN_NORM, .hf = "model.layers.#.post_attention_layernorm.weight",
     .gguf = "blk.#.ffn_norm.weight", .rows = TG_SIZE_D, .cols = TG_SIZE_1},
    {.role = TG_W_GATE, .hf = "model.layers.#.mlp.gate_proj.weight",
     .gguf = "blk.#.ffn_gate.weight",
     .rows = TG_SIZE_F, .cols = TG_SIZE_D, .split = TG_SPLIT_ROWS},
    {.role = TG_W_UP, .hf = "model.layers.#.mlp.up_proj.weight", .gguf = "blk.#.ffn_up.weight",
     .rows = TG_SIZE_F, .cols = TG_SIZE_D, .split = TG_SPLIT_ROWS},
    {.role = TG_W_DOWN, .hf = "model.layers.#.mlp.down_proj.weight",
     .gguf = "blk.#.ffn_down.weight",
     .rows = TG_SIZE_D, .cols = TG_SIZE_F, .split = TG_SPLIT_COLS},
    {.role = TG_W_GATE_BIAS, .hf = "model.layers.#.mlp.gate_proj.bias",
     .gguf = "blk.#.ffn_gate.bias",
     .rows = TG_SIZE_F, .cols = TG_SIZE_1, .is_optional = true, .split = TG_SPLIT_ROWS},
    {.role = TG_W_UP_BIAS, .hf = "model.layers.#.mlp.up_proj.bias", .gguf = "blk.#.ffn_up.bias",
     .rows = TG_SIZE_F, .cols = TG_SIZE_1, .is_optional = true, .split = TG_SPLIT_ROWS},
    {.role = TG_W_DOWN_BIAS, .hf = "model.layers.#.mlp.down_proj.bias",
     .gguf = "blk.#.ffn_down.bias",
     .rows = TG_SIZE_D, .cols = TG_SIZE_1, .is_optional = true},
};

/* Rotary frequencies that old exporters saved beside the weights; GGUF's are read as keys are. */
static const char *const ignored_tensors[] = {
    "rotary_emb.inv_freq", "rope_freqs.weight", "rope_factors_short.weight",
    "rope_factors_long.weight", NULL,
};

#define FIELD(name) offsetof(tg_hparams, name)
static const tg_key_row keys[] = {
    {"num_hidden_layers", "*.block_count", FIELD(n_layers), 1, TG_MAX_LAYERS, TG_KEY_NEEDED},
    {"hidden_size", "*.embedding_length", FIELD(width), 1, 1 << 20, TG_KEY_NEEDED},
    {"intermediate_size", "*.feed_forward_length", FIELD(ffn), 1, 1 << 22, TG_KEY_NEEDED},
    {"num_attention_heads", "*.attention.head_count", FIELD(n_heads), 1, 1 << 14, TG_KEY_NEEDED},
    {"num_key_value_heads", "*.attention.head_count_kv", FIELD(n_kv_heads), 1, 1 << 14, 0},
    {"head_dim", "*.attention.key_length", FIELD(head_dim), 1, 1 << 14, 0},
};

static const tg_refusal hf_refusals[] = {
    {"quantization_config", TG_REFUSE_PRESENT, 0, "quantized Hugging Face weights are not read"},
    {"rope_interleaved", TG_REFUSE_TRUE, 0, "rotation goes by halves"},
    {"rope_parameters.full_attention", TG_REFUSE_PRESENT, 0, "all layers share one rotary table"},
    {"embedding_multiplier", TG_REFUSE_UNLESS, 1, "embeddings are not scaled"},
    {"residual_multiplier", TG_REFUSE_UNLESS, 1, "residuals are not scaled"},
    {"attention_multiplier", TG_REFUSE_PRESENT, 0, "scores are scaled by the head size"},
    {"logits_scaling", TG_REFUSE_UNLESS, 1, "logits are not scaled"},
    {"attn_logit_softcapping", TG_REFUSE_PRESENT, 0, "scores are not capped"},
    {"final_logit_softcapping", TG_REFUSE_PRESENT, 0, "logits are not capped"},
    {"no_rope_layers", TG_REFUSE_PRESENT, 0, "every layer rotates"},
    {"use_qk_norm", TG_REFUSE_TRUE, 0, "queries and keys are not normalized"},
    {"clip_qkv", TG_REFUSE_PRESENT, 0, "queries, keys and values are not clipped"},
    {"alibi", TG_REFUSE_TRUE, 0, "positions are rotary"},
    {"num_local_experts", TG_REFUSE_UNLESS, 0, "there are no experts"},
};

static const tg_refusal gguf_refusals[] = {
    {"*.expert_count", TG_REFUSE_UNLESS, 0, "there are no experts"},
    {"*.embedding_scale", TG_REFUSE_UNLESS, 1, "embeddings are not scaled"},
    {"*.residual_scale", TG_REFUSE_UNLESS, 1, "residuals are not scaled"},
    {"*.logit_scale", TG_REFUSE_UNLESS, 1, "logits are not scaled"},
    {"*.attention.scale", TG_REFUSE_PRESENT, 0, "scores are scaled by the head size"},
    {"*.attention.clamp_kqv", TG_REFUSE_UNLESS, 0, "queries, keys and values are not clipped"},
    {"*.attention.max_alibi_bias", TG_REFUSE_UNLESS, 0, "positions are rotary"},
    {"*.attention.causal", TG_REFUSE_FALSE, 0, "attention is causal"},
    {"*.attn_logit_softcapping", TG_REFUSE_UNLESS, 0, "scores are not capped"},
    {"*.final_logit_softcapping", TG_REFUSE_UNLESS, 0, "logits are not capped"},
    {"*.use_parallel_residual", TG_REFUSE_TRUE, 0, "attention comes before the feed-forward"},
    {"*.rope.dimension_sections", TG_REFUSE_PRESENT, 0, "a position is one number"},
    {"*.pooling_type", TG_REFUSE_UNLESS, 0, "the model must give logits"},
};

/* clang-format on */

/* Mistral's window holds in every layer unless layer_types says otherwise. A config without the key
 * means 4096 (MistralConfig's default), one with null means none, and use_sliding_window can switch
 * it off. A Llama config's sliding_window is not used by Llama, and stays an unknown key. */
static tg_status read_hf_window(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_err *e)
{
    tg_str type = {0};
    bool is_present = false, is_on = true, has_types = false;
    TG_TRY(tg_config_get_str(c, "/model_type", &type, &is_present, e));
    if (!tg_str_is(type, "mistral")) return TG_OK;

    const json_t *root = tg_checkpoint_get_json(ck, TG_HF_CONFIG);
    h->window = root && json_object_get(root, "sliding_window") ? 0 : 4096;
    TG_TRY(tg_config_get_i32(c, "sliding_window", 1, INT32_MAX, &h->window, &is_present, e));
    TG_TRY(tg_config_get_bool(c, "use_sliding_window", &is_on, &is_present, e));
    TG_TRY(tg_hparams_read_layer_types(h, c, &has_types, e));
    if (!is_on) h->window = 0;
    for (int32_t l = 0; l < h->n_layers; l++)
        h->is_sliding[l] = h->window > 0 && (!has_types || h->is_sliding[l]);
    return TG_OK;
}

/* attention_bias and mlp_bias need no reading, since biases are used where the checkpoint has them;
 * but a promise that the weights do not keep is an error. */
static tg_status check_bias_flags(tg_config *c, const tg_checkpoint *ck, tg_err *e)
{
    static const char *const flags[][2] = {
        {"attention_bias", "model.layers.0.self_attn.q_proj.bias"},
        {"mlp_bias", "model.layers.0.mlp.gate_proj.bias"},
    };
    for (size_t i = 0; i < TG_COUNT(flags); i++) {
        bool is_on = false, is_present = false;
        TG_TRY(tg_config_get_bool(c, flags[i][0], &is_on, &is_present, e));
        if (is_on && !tg_checkpoint_find_tensor(ck, tg_str_from_cstr(flags[i][1])))
            return tg_fail(e, TG_E_CORRUPT, "%s: %s is true, but there is no tensor '%s'.",
                           tg_config_get_file(c), flags[i][0], flags[i][1]);
    }
    return TG_OK;
}

static tg_status read_hf(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                         tg_err *e)
{
    TG_TRY(tg_config_refuse(c, hf_refusals, TG_COUNT(hf_refusals), e));
    TG_TRY(tg_hparams_read_act(h, c, "hidden_act", "silu", e));
    TG_TRY(read_hf_window(h, c, ck, e));
    TG_TRY(check_bias_flags(c, ck, e));
    bool is_present = false;
    h->max_positions = 2048; /* LlamaConfig's default */
    TG_TRY(tg_config_get_i32(c, "max_position_embeddings", 1, INT32_MAX, &h->max_positions,
                             &is_present, e));
    TG_TRY(tg_config_get_bool(c, "tie_word_embeddings", &h->is_tied, &is_present, e));

    /* rope_scaling is how it was written before rope_parameters; transformers lets the older one
     * win. */
    tg_rope_keys rope = {
        .object = tg_rope_has_scaling(c) ? "rope_scaling" : "rope_parameters",
        .theta_key = "rope_theta",
        .theta_absent = 10000,
    };
    TG_TRY(tg_rope_read_hf(&h->ropes[0], h, c, &rope, a, e));
    h->position_limit = h->max_positions;
    if (h->ropes[0].kind == TG_ROPE_DYNAMIC)
        h->position_limit = (int32_t)fmin(h->max_positions * h->ropes[0].factor, INT32_MAX);
    return TG_OK;
}

static tg_status read_gguf(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                           tg_err *e)
{
    int32_t value_dim = h->head_dim;
    bool is_present = false;
    TG_TRY(tg_config_refuse(c, gguf_refusals, TG_COUNT(gguf_refusals), e));
    TG_TRY(tg_config_get_i32(c, "*.context_length", 1, INT32_MAX, &h->max_positions, NULL, e));
    TG_TRY(
        tg_config_get_i32(c, "*.attention.value_length", 1, 1 << 14, &value_dim, &is_present, e));
    if (value_dim != h->head_dim)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: keys of %d and values of %d numbers are not supported; they must be "
                       "equal.",
                       tg_config_get_file(c), h->head_dim, value_dim);
    TG_TRY(tg_config_get_i32(c, "*.attention.sliding_window", 0, INT32_MAX, &h->window, &is_present,
                             e));
    for (int32_t l = 0; l < h->n_layers; l++)
        h->is_sliding[l] = h->window > 0;
    (void)tg_config_has(c, "*.expert_used_count"); /* 0 beside expert_count 0 */
    h->position_limit = h->max_positions;
    return tg_rope_read_gguf(&h->ropes[0], h, c, ck, 10000, a, e);
}

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    bool is_gguf = tg_config_get_kind(c) == TG_CHECKPOINT_GGUF;
    TG_TRY(tg_hparams_read_rows(h, c, keys, TG_COUNT(keys), e));
    TG_TRY(tg_hparams_check_heads(h, c, e));
    TG_TRY(tg_hparams_read_eps(h, c, 1e-6, e));
    TG_TRY(tg_hparams_read_vocab(h, c, ck, is_gguf ? 0 : TG_KEY_NEEDED, e));
    TG_TRY(is_gguf ? read_gguf(h, c, ck, a, e) : read_hf(h, c, ck, a, e));
    h->embed_scale = 1;
    h->attn_scale = (float)(1 / sqrt((double)h->head_dim));
    return TG_OK;
}

static void forward(tg_build *b, const tg_hparams *h)
{
    tg_value x = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), h->embed_scale); /* [T, D] */
    for (int32_t l = 0; l < h->n_layers; l++) {
        tg_attention_block attention = {
            .rope = TG_W_ROPE_0,
            .rotary_dim = h->ropes[0].rotary_dim,
            .window = h->is_sliding[l] ? h->window : 0,
        };
        x = tg_build_layer_begin(b, l, x);
        tg_value y = tg_build_rms_norm(b, x, TG_W_ATTN_NORM, h->norm_eps);
        x = tg_build_add(b, x, tg_block_attention(b, h, y, &attention));
        y = tg_build_rms_norm(b, x, TG_W_FFN_NORM, h->norm_eps);
        x = tg_build_add(b, x, tg_block_glu(b, h, y));
        x = tg_build_layer_end(b, x);
    }
    tg_block_output(b, h, x);
}

const tg_arch tg_arch_llama = {
    .name = "llama",
    .hf_types = {"llama", "mistral"},
    .gguf_arch = "llama",
    .rules = rules,
    .n_rules = TG_COUNT(rules),
    .ignored_tensors = ignored_tensors,
    .read_hparams = read_hparams,
    .forward = forward,
};
