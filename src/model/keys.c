/* SPDX-License-Identifier: Apache-2.0
 * keys.c - numbers of config.json and of GGUF metadata, checked before they are computed with.
 *
 * Limits here are those of our own arithmetic (an int32_t, a head the kernels can hold) and of
 * sense; they come before the first allocation that a number decides. */
#include "model/keys.h"

#include "base/log.h"
#include "ir/infer.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)TG_MAX_ROTARY_DIM == (int)TG_MAX_HEAD_DIM, "a whole head may rotate");

static bool is_gguf(const tg_config *c)
{
    return tg_config_get_kind(c) == TG_CHECKPOINT_GGUF;
}

tg_status tg_hparams_read_rows(tg_hparams *h, tg_config *c, const tg_key_row *rows, int32_t n,
                               tg_err *e)
{
    for (int32_t i = 0; i < n; i++) {
        /* A key that a format has and a file lacks takes the family's default, unless there is none
         * that would not be a guess. */
        const tg_key_row *r = &rows[i];
        const char *key = is_gguf(c) ? r->gguf : r->hf;
        int32_t value = r->absent;
        bool is_present = false;
        if (key)
            TG_TRY(tg_config_get_i32(c, key, r->low, r->high, &value,
                                     r->absent == TG_KEY_NEEDED ? NULL : &is_present, e));
        memcpy((char *)h + r->field, &value, sizeof value);
    }
    return TG_OK;
}

tg_status tg_config_check_float(const tg_config *c, const char *key, double value, float *out,
                                tg_err *e)
{
    float x = (float)value;
    if (!(x >= FLT_MIN && x <= FLT_MAX)) /* NaN too */
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: %s is %g, but must be greater than 0 and a number that float32 holds.",
                       tg_config_get_file(c), key, value);
    *out = x;
    return TG_OK;
}

tg_status tg_hparams_read_numbers(tg_hparams *h, tg_config *c, const tg_number_row *rows, int32_t n,
                                  tg_err *e)
{
    tg_buf absent = {0};
    tg_status s = TG_OK;
    for (int32_t i = 0; i < n && s == TG_OK; i++) {
        const tg_number_row *r = &rows[i];
        const char *key = is_gguf(c) ? r->gguf : r->hf;
        bool is_needed = is_gguf(c) && r->is_gguf_needed, is_present = false;
        double value = 0;
        float field;
        memcpy(&field, (char *)h + r->field, sizeof field);
        if (key) s = tg_config_get_f64(c, key, &value, is_needed ? NULL : &is_present, e);
        if (s != TG_OK || !key) continue;
        if (is_present || is_needed) {
            s = tg_config_check_float(c, key, value, &field, e);
            if (s == TG_OK && r->is_inverse)
                s = tg_config_check_float(c, key, 1 / value, &field, e);
            memcpy((char *)h + r->field, &field, sizeof field);
        } else if (is_gguf(c)) {
            tg_buf_printf(&absent, "%s%s (%g is used)", absent.len ? ", " : "", key + 2,
                          (double)field);
        }
    }
    if (s == TG_OK && absent.len)
        tg_log_warn("%s: does not say %s, as llama.cpp does then", tg_config_get_file(c),
                    tg_buf_cstr(&absent));
    tg_buf_deinit(&absent);
    return s;
}

/* clang-format off */
#define FIELD(name) offsetof(tg_hparams, name)
static const tg_key_row gguf_sizes[] = {
    {NULL, "*.block_count", FIELD(n_layers), 1, TG_MAX_LAYERS, TG_KEY_NEEDED},
    {NULL, "*.embedding_length", FIELD(width), 1, 1 << 20, TG_KEY_NEEDED},
    {NULL, "*.feed_forward_length", FIELD(ffn), 1, 1 << 22, TG_KEY_NEEDED},
    {NULL, "*.attention.head_count", FIELD(n_heads), 1, 1 << 14, TG_KEY_NEEDED},
    {NULL, "*.attention.head_count_kv", FIELD(n_kv_heads), 1, 1 << 14, TG_KEY_NEEDED},
    {NULL, "*.attention.key_length", FIELD(head_dim), 1, 1 << 14, TG_KEY_NEEDED},
    {NULL, "*.context_length", FIELD(max_positions), 1, INT32_MAX, TG_KEY_NEEDED},
};
/* clang-format on */

tg_status tg_hparams_read_gguf_sizes(tg_hparams *h, tg_config *c, tg_err *e)
{
    return tg_hparams_read_rows(h, c, gguf_sizes, TG_COUNT(gguf_sizes), e);
}

tg_status tg_hparams_check_values(const tg_hparams *h, tg_config *c, tg_err *e)
{
    int32_t value_dim = h->head_dim;
    bool is_present = false;
    TG_TRY(
        tg_config_get_i32(c, "*.attention.value_length", 1, 1 << 14, &value_dim, &is_present, e));
    if (value_dim == h->head_dim) return TG_OK;
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: keys of %d and values of %d numbers are not supported; they must be equal.",
                   tg_config_get_file(c), h->head_dim, value_dim);
}

tg_status tg_hparams_check_heads(tg_hparams *h, tg_config *c, tg_err *e)
{
    const char *file = tg_config_get_file(c);
    /* Files from before grouped queries have one kind of heads. */
    if (h->n_kv_heads == 0) h->n_kv_heads = h->n_heads;
    if (h->n_kv_heads > h->n_heads || h->n_heads % h->n_kv_heads != 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: %d attention heads cannot share %d key/value heads: the first number "
                       "must be a multiple of the second.",
                       file, h->n_heads, h->n_kv_heads);
    if (h->head_dim == 0) {
        if (h->width % h->n_heads != 0)
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: a width of %d does not divide into %d heads, and the file names no "
                           "head size (%s).",
                           file, h->width, h->n_heads,
                           is_gguf(c) ? "attention.key_length" : "head_dim");
        h->head_dim = h->width / h->n_heads;
    }
    if (h->head_dim % TG_HEAD_DIM_STEP != 0 || h->head_dim > TG_MAX_HEAD_DIM)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: a head size of %d is not supported; it must be a multiple of %d, at "
                       "most %d.",
                       file, h->head_dim, TG_HEAD_DIM_STEP, TG_MAX_HEAD_DIM);
    return TG_OK;
}

tg_status tg_hparams_read_eps(tg_hparams *h, tg_config *c, double absent, tg_err *e)
{
    const char *key = h->is_layer_norm
                          ? (is_gguf(c) ? "*.attention.layer_norm_epsilon" : "layer_norm_eps")
                          : (is_gguf(c) ? "*.attention.layer_norm_rms_epsilon" : "rms_norm_eps");
    double eps = absent;
    bool is_present = false;
    TG_TRY(tg_config_get_f64(c, key, &eps, is_gguf(c) ? NULL : &is_present, e));
    /* Written so that NaN fails too. Zero would divide by it for a row of zeros. */
    if (!(eps > 0 && eps < 1))
        return tg_fail(e, TG_E_CORRUPT, "%s: %s is %g, but must lie between 0 and 1.",
                       tg_config_get_file(c), key, eps);
    return tg_config_check_float(c, key, eps, &h->norm_eps, e);
}

tg_status tg_hparams_read_act(tg_hparams *h, tg_config *c, const char *key, const char *absent,
                              tg_err *e)
{
    static const struct {
        const char *name;
        tg_act act;
    } acts[] = {
        {"silu", TG_ACT_SILU}, {"swish", TG_ACT_SILU}, {"gelu_pytorch_tanh", TG_ACT_GELU_TANH}};
    tg_str name = tg_str_from_cstr(absent);
    bool is_present = false;
    /* "gelu" alone is the exact one with erf, and "gelu_new" another spelling of the approximation
     * whose last bits differ: neither may pass for the one we have. */
    TG_TRY(tg_config_get_str(c, key, &name, &is_present, e));
    for (size_t i = 0; i < TG_COUNT(acts); i++) {
        if (!tg_str_is(name, acts[i].name)) continue;
        h->act = (int32_t)acts[i].act;
        return TG_OK;
    }
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: %s '%.*s' is not supported; known are silu and gelu_pytorch_tanh.",
                   tg_config_get_file(c), key, (int)TG_MIN(name.len, (size_t)60), name.ptr);
}

tg_status tg_hparams_read_vocab(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                                int32_t absent, tg_err *e)
{
    h->n_vocab = absent;
    bool is_present = false;
    TG_TRY(tg_config_get_i32(c, is_gguf(c) ? "*.vocab_size" : "vocab_size", 1, INT32_MAX / 2,
                             &h->n_vocab, absent == TG_KEY_NEEDED ? NULL : &is_present, e));
    if (!is_gguf(c)) return TG_OK;

    /* The list of tokens is what can be spelled; a key that says more speaks of padding. */
    const tg_gguf_kv *tokens = tg_gguf_find(tg_checkpoint_get_gguf(ck), "tokenizer.ggml.tokens");
    if (tokens && tokens->n > 0 && (h->n_vocab == 0 || tokens->n != h->n_vocab)) {
        if (tokens->n > INT32_MAX / 2)
            return tg_fail(e, TG_E_CORRUPT, "%s: a list of %" PRId64 " tokens is too long.",
                           tg_config_get_file(c), tokens->n);
        h->n_vocab = (int32_t)tokens->n;
    }
    return TG_OK;
}

tg_status tg_hparams_read_layer_types(tg_hparams *h, tg_config *c, bool *is_present, tg_err *e)
{
    const tg_str *types = NULL;
    int32_t n = 0;
    TG_TRY(tg_config_get_strs(c, "layer_types", &types, &n, is_present, e));
    if (!*is_present) return TG_OK;
    if (n != h->n_layers)
        return tg_fail(e, TG_E_CORRUPT, "%s: layer_types has %d entries for %d layers.",
                       tg_config_get_file(c), n, h->n_layers);
    for (int32_t l = 0; l < n; l++) {
        h->is_sliding[l] = tg_str_is(types[l], "sliding_attention");
        if (!h->is_sliding[l] && !tg_str_is(types[l], "full_attention"))
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: layer_types[%d] is '%.*s'; supported are full_attention and "
                           "sliding_attention.",
                           tg_config_get_file(c), l, (int)TG_MIN(types[l].len, (size_t)60),
                           types[l].ptr);
    }
    return TG_OK;
}

void tg_hparams_set_pattern(tg_hparams *h, int32_t pattern)
{
    for (int32_t l = 0; l < h->n_layers; l++)
        h->is_sliding[l] = (l + 1) % pattern != 0;
}

tg_status tg_hparams_read_gguf_pattern(tg_hparams *h, tg_config *c, int32_t pattern, tg_err *e)
{
    static const char key[] = "*.attention.sliding_window_pattern";
    const bool *list = NULL;
    int32_t n = 0;
    bool is_present = false;
    if (tg_config_get_i32(c, key, 1, TG_MAX_LAYERS, &pattern, &is_present, NULL) == TG_OK) {
        tg_hparams_set_pattern(h, pattern);
        return TG_OK;
    }
    TG_TRY(tg_config_get_bools(c, key, &list, &n, NULL, e));
    if (n != h->n_layers)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: attention.sliding_window_pattern has %d entries for %d layers.",
                       tg_config_get_file(c), n, h->n_layers);
    for (int32_t l = 0; l < n; l++)
        h->is_sliding[l] = list[l];
    return TG_OK;
}

bool tg_checkpoint_names_key(const tg_checkpoint *ck, const char *key)
{
    const json_t *root = tg_checkpoint_get_json(ck, TG_HF_CONFIG);
    return json_object_get(root, key) || json_object_get(json_object_get(root, "text_config"), key);
}

tg_status tg_hparams_read_window(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                                 int32_t absent, bool is_on, bool *has_types, tg_err *e)
{
    bool is_present = false;
    h->window = tg_checkpoint_names_key(ck, "sliding_window") ? 0 : absent;
    TG_TRY(tg_config_get_i32(c, "sliding_window", 1, INT32_MAX, &h->window, &is_present, e));
    TG_TRY(tg_config_get_bool(c, "use_sliding_window", &is_on, &is_present, e));
    TG_TRY(tg_hparams_read_layer_types(h, c, has_types, e));
    if (!is_on) h->window = 0;
    for (int32_t l = 0; l < h->n_layers; l++)
        h->is_sliding[l] = h->window > 0 && (!*has_types || h->is_sliding[l]);
    return TG_OK;
}

tg_status tg_hparams_read_late_window(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                                      tg_err *e)
{
    bool has_types = false, is_present = false;
    int32_t first = 28;
    if (tg_config_get_kind(c) == TG_CHECKPOINT_GGUF) return TG_OK;
    TG_TRY(tg_config_get_i32(c, "max_window_layers", 0, INT32_MAX, &first, &is_present, e));
    TG_TRY(tg_hparams_read_window(h, c, ck, 4096, false, &has_types, e));
    for (int32_t l = 0; l < h->n_layers && !has_types; l++)
        h->is_sliding[l] = h->is_sliding[l] && l >= first;
    return TG_OK;
}

/* A key of the wrong type is an error too: it was meant to say something. */
static tg_status find_refused(bool *out, tg_config *c, const tg_refusal *r, tg_err *e)
{
    bool is_present = false, flag = false;
    double number = 0;
    *out = false;
    switch (r->when) {
    case TG_REFUSE_PRESENT: *out = tg_config_has(c, r->key); break;
    case TG_REFUSE_TRUE:
    case TG_REFUSE_FALSE:
        TG_TRY(tg_config_get_bool(c, r->key, &flag, &is_present, e));
        *out = is_present && flag == (r->when == TG_REFUSE_TRUE);
        break;
    case TG_REFUSE_UNLESS:
        TG_TRY(tg_config_get_f64(c, r->key, &number, &is_present, e));
        *out = is_present && number != r->neutral;
        break;
    }
    return TG_OK;
}

/* All refused keys in one sentence, so that they can be mended at once; of more than three
 * the first ones. */
static tg_status refuse(tg_config *c, const tg_refusal *rows, int32_t n, bool is_unread_only,
                        tg_err *e)
{
    enum { SHOWN = 3 };
    int32_t n_refused = 0;
    tg_buf text = {0};
    tg_status s = TG_OK;
    for (int32_t i = 0; i < n && s == TG_OK; i++) {
        bool is_refused = false;
        if (is_unread_only && tg_config_was_read(c, rows[i].key)) continue;
        s = find_refused(&is_refused, c, &rows[i], e);
        if (is_refused && n_refused++ < SHOWN)
            tg_buf_printf(&text, "%s'%s' (%s)", n_refused > 1 ? ", " : "", rows[i].key,
                          rows[i].reason);
    }
    if (n_refused > SHOWN) tg_buf_printf(&text, " and %" PRId32 " more", n_refused - SHOWN);
    if (s == TG_OK && n_refused > 0)
        s = tg_fail(e, TG_E_UNSUPPORTED,
                    "%s: key%s %s change%s the model's arithmetic in a way that is not supported.",
                    tg_config_get_file(c), n_refused > 1 ? "s" : "", tg_buf_cstr(&text),
                    n_refused > 1 ? "" : "s");
    tg_buf_deinit(&text);
    return s;
}

tg_status tg_config_refuse(tg_config *c, const tg_refusal *rows, int32_t n, tg_err *e)
{
    return refuse(c, rows, n, false, e);
}

/* clang-format off */
static const tg_refusal hf_refusals[] = {
    {"rope_interleaved", TG_REFUSE_TRUE, 0, "rotation goes by halves"},
    {"rope_parameters.llama_4_scaling_beta", TG_REFUSE_PRESENT, 0,
     "queries are not scaled by position"},
    {"embedding_multiplier", TG_REFUSE_UNLESS, 1, "embeddings are not scaled"},
    {"residual_multiplier", TG_REFUSE_UNLESS, 1, "residuals are not scaled"},
    {"attention_multiplier", TG_REFUSE_PRESENT, 0, "scores are scaled by the head size"},
    {"query_pre_attn_scalar", TG_REFUSE_PRESENT, 0, "scores are scaled by the head size"},
    {"logits_scaling", TG_REFUSE_UNLESS, 1, "logits are not scaled"},
    {"logit_scale", TG_REFUSE_UNLESS, 1, "logits are not scaled"},
    {"attn_logit_softcapping", TG_REFUSE_PRESENT, 0, "scores are not capped"},
    {"final_logit_softcapping", TG_REFUSE_PRESENT, 0, "logits are not capped"},
    {"use_bidirectional_attention", TG_REFUSE_TRUE, 0, "attention is causal"},
    {"no_rope_layers", TG_REFUSE_PRESENT, 0, "every layer rotates"},
    {"use_qk_norm", TG_REFUSE_TRUE, 0, "queries and keys are not normalized"},
    {"qk_layernorm", TG_REFUSE_TRUE, 0, "queries and keys are not normalized"},
    {"use_parallel_residual", TG_REFUSE_TRUE, 0, "attention comes before the feed-forward"},
    {"parallel_attn", TG_REFUSE_TRUE, 0, "attention comes before the feed-forward"},
    {"clip_qkv", TG_REFUSE_PRESENT, 0, "queries, keys and values are not clipped"},
    {"alibi", TG_REFUSE_TRUE, 0, "positions are rotary"},
    {"use_mrope", TG_REFUSE_TRUE, 0, "a position is one number"},
    {"lm_head_bias", TG_REFUSE_TRUE, 0, "the head has no bias"},
    {"attention_bias", TG_REFUSE_TRUE, 0, "the attention has no biases"},
    {"use_qkv_bias", TG_REFUSE_TRUE, 0, "the attention has no biases"},
    {"mlp_bias", TG_REFUSE_TRUE, 0, "the feed-forward has no biases"},
    {"num_local_experts", TG_REFUSE_UNLESS, 0, "there are no experts"},
    {"num_experts", TG_REFUSE_UNLESS, 0, "there are no experts"},
    {"n_routed_experts", TG_REFUSE_UNLESS, 0, "there are no experts"},
    {"moe_num_experts", TG_REFUSE_UNLESS, 0, "there are no experts"},
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
    {"*.attention.temperature_scale", TG_REFUSE_PRESENT, 0, "queries are not scaled by position"},
    {"*.attn_logit_softcapping", TG_REFUSE_UNLESS, 0, "scores are not capped"},
    {"*.final_logit_softcapping", TG_REFUSE_UNLESS, 0, "logits are not capped"},
    {"*.use_parallel_residual", TG_REFUSE_TRUE, 0, "attention comes before the feed-forward"},
    {"*.rope.freq_base_swa", TG_REFUSE_PRESENT, 0, "all layers share one rotary table"},
    {"*.rope.dimension_count_swa", TG_REFUSE_PRESENT, 0, "all layers rotate alike"},
    {"*.attention.key_length_swa", TG_REFUSE_PRESENT, 0, "all layers have one head size"},
    {"*.attention.value_length_swa", TG_REFUSE_PRESENT, 0, "all layers have one head size"},
    {"*.rope.scaling.alpha", TG_REFUSE_UNLESS, 0, "theta is not scaled"},
    {"*.nextn_predict_layers", TG_REFUSE_UNLESS, 0, "every layer is one of the decoder"},
    {"*.rope.dimension_sections", TG_REFUSE_PRESENT, 0, "a position is one number"},
    {"*.pooling_type", TG_REFUSE_UNLESS, 0, "the model must give logits"},
};
/* clang-format on */

tg_status tg_config_refuse_unread(tg_config *c, tg_err *e)
{
    return is_gguf(c) ? refuse(c, gguf_refusals, TG_COUNT(gguf_refusals), true, e)
                      : refuse(c, hf_refusals, TG_COUNT(hf_refusals), true, e);
}

void tg_config_ignore_common(tg_config *c)
{
    /* Keys about the file itself, training, text and sampling. Token ids are read
     * elsewhere. */
    static const char *const hf[] = {
        "/model_type",
        "model_type",
        "architectures",
        "auto_map",
        "transformers_version",
        "transformers.js_config",
        "torch_dtype",
        "dtype",
        "_name_or_path",
        "_attn_implementation*",
        "attn_implementation",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "sep_token_id",
        "unk_token_id",
        "decoder_start_token_id",
        "use_cache",
        "cache_implementation",
        "initializer_range",
        "attention_dropout",
        "hidden_dropout*",
        "pretraining_tp",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "is_encoder_decoder",
        "is_decoder",
        "chunk_size_feed_forward",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "problem_type",
        "torchscript",
        "unsloth_*",
        "is_llama_config",
        /* generation settings that old configs carry */
        "max_length",
        "min_length",
        "do_sample",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "num_beams",
        "num_beam_groups",
        "num_return_sequences",
        "early_stopping",
        "diversity_penalty",
        "suppress_tokens",
        "bad_words_ids",
        "task_specific_params",
        "prefix",
    };
    static const char *const gguf[] = {"general.*", "tokenizer.*", "split.*", "quantize.*"};
    if (is_gguf(c)) {
        for (size_t i = 0; i < TG_COUNT(gguf); i++)
            tg_config_ignore(c, gguf[i]);
        /* Asking marks a key as read; a pattern cannot hold the architecture's name. */
        (void)tg_config_has(c, "*.rope.scaling.finetuned");
        (void)tg_config_has(c, "*.tensor_data_layout");
    } else {
        for (size_t i = 0; i < TG_COUNT(hf); i++)
            tg_config_ignore(c, hf[i]);
    }
}
