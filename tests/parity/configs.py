"""configs.py - the random models of tests/parity/kit: for each architecture a few rows, each a
config.json of its kind with other choices in it.

    type    model_type of transformers
    config  its keys
    gguf    llama.cpp's converter knows it
    old     config.json as transformers 4 wrote it
    seed    the first to try, where an earlier one gave no clear greedy choices
    become  for a model that transformers lacks: what makes another kind's files its own
    ship    how its weights are quantized (prequantize.py)
"""

import re

import torch
from prequantize import Awq, Fp8, Gptq, Int8, Packed

SIZES = dict(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
)


def row(model_type, gguf=True, old=False, seed=1, become=None, ship=None, **config):
    return dict(type=model_type, config=SIZES | config, gguf=gguf, old=old, seed=seed,
                become=become, ship=ship)


def shipped(ship, model_type="llama", **config):
    """A layer whose matrices have 128 columns and more."""
    sizes = dict(hidden_size=128, intermediate_size=192, num_hidden_layers=1)
    return row(model_type, gguf=False, ship=ship, **sizes | config)


class InternLM2:
    """Llama's files under InternLM2's names; q, k and v in one tensor, group by group, as
    modeling_internlm2.py (with the checkpoints) takes it apart."""

    names = [
        ("model.embed_tokens", "model.tok_embeddings"), ("lm_head", "output"),
        ("self_attn.o_proj", "attention.wo"), ("self_attn.q_proj", "attention.wqkv"),
        ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"),
        ("mlp.down_proj", "feed_forward.w2"),
    ]

    def rename(self, name):
        for old, new in self.names:
            name = name.replace(old, new)
        return name

    def change_config(self, config):
        config["model_type"] = "internlm2"
        config["architectures"] = ["InternLM2ForCausalLM"]
        config["bias"] = False
        for key in ("attention_bias", "mlp_bias", "head_dim"):
            config.pop(key, None)

    def change_tensors(self, tensors, config):
        groups = config["num_key_value_heads"]
        out = {}
        for name, t in tensors.items():
            if re.search("[kv]_proj", name):
                continue
            if "q_proj" in name:
                parts = [tensors[name.replace("q_proj", f"{p}_proj")] for p in "qkv"]
                rows = [p.reshape(groups, -1, p.shape[-1]) for p in parts]
                t = torch.cat(rows, dim=1).reshape(-1, t.shape[-1])
            out[self.rename(name)] = t.contiguous()
        return out


def rope(kind, theta=10000.0, **kw):
    return {"rope_type": kind, "rope_theta": theta} | kw


class Mistral3:
    """A text model's files as those of Mistral Small 3: nested keys, longer names, and a part that
    sees."""

    def rename(self, name):
        return name.replace("model.", "model.language_model.", 1)

    def change_config(self, config):
        text = dict(config)
        config.clear()
        config |= dict(model_type="mistral3", architectures=["Mistral3ForConditionalGeneration"],
                       dtype="bfloat16", image_token_index=10, projector_hidden_act="gelu",
                       multimodal_projector_bias=False, spatial_merge_size=2,
                       vision_feature_layer=-1, vision_config={"model_type": "pixtral"},
                       text_config=text)

    def change_tensors(self, tensors, config):
        out = {self.rename(name): t for name, t in tensors.items()}
        out["model.vision_tower.patch_conv.weight"] = torch.zeros(2, 2)
        out["model.multi_modal_projector.linear_1.weight"] = torch.zeros(2, 2)
        return out


SHORT = [1.0 + 0.1 * i for i in range(4)]
LONG = [1.0 + 0.9 * i for i in range(4)]

GEMMA_ROPES = {
    "full_attention": rope("default", 1000000.0), "sliding_attention": rope("default", 10000.0),
}

# Windows of 16 are shorter than the longest text, of 72.
CONFIGS = {
    "llama": {
        "plain": row("llama", head_dim=16),
        "bias": row("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                    gguf=False),
        "old": row("llama", old=True, num_key_value_heads=4, rope_parameters=rope(
            "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64)),
    },
    "mistral": {
        "window": row("mistral", sliding_window=16, num_key_value_heads=1, gguf=False),
        "none": row("mistral", sliding_window=None, head_dim=16, old=True),
        "ministral": row("ministral", head_dim=8, sliding_window=16, num_hidden_layers=4, gguf=False,
                         layer_types=["full_attention", "sliding_attention"] * 2),
    },
    "mistral3": {
        "small": row("mistral", sliding_window=None, head_dim=16, become=Mistral3(), gguf=False),
    },
    "qwen2": {
        "plain": row("qwen2"),
        "tied": row("qwen2", tie_word_embeddings=True, num_key_value_heads=1, old=True,
                    rope_parameters=rope("yarn", 1000000.0, factor=4.0,
                                         original_max_position_embeddings=64)),
        "window": row("qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=1,
                      num_key_value_heads=4, gguf=False),
    },
    "qwen3": {
        "plain": row("qwen3", head_dim=16, rope_parameters=rope("default", 1000000.0)),
        "tied": row("qwen3", head_dim=8, tie_word_embeddings=True, old=True),
        "window": row("qwen3", head_dim=16, attention_bias=True, num_key_value_heads=4,
                      use_sliding_window=True, sliding_window=16, max_window_layers=1, gguf=False),
    },
    "phi3": {
        "plain": row("phi3", sliding_window=None),
        "window": row("phi3", sliding_window=16, num_key_value_heads=4, old=True, gguf=False),
        "partial": row("phi3", num_attention_heads=2, tie_word_embeddings=True,
                       rope_parameters=rope("default", partial_rotary_factor=0.5)),
        # Short factors up to the original length, long ones for all positions beyond it: the first
        # sequence crosses it while it is continued, beside others that stay short.
        "across": row("phi3", original_max_position_embeddings=48, num_key_value_heads=4,
                      rope_parameters=rope("longrope", short_factor=SHORT, long_factor=LONG,
                                           original_max_position_embeddings=48)),
        "short": row("phi3", original_max_position_embeddings=128,
                     rope_parameters=rope("longrope", short_factor=SHORT, long_factor=LONG,
                                          original_max_position_embeddings=128)),
        "long": row("phi3", original_max_position_embeddings=4, old=True, rope_parameters=rope(
            "longrope", short_factor=SHORT, long_factor=LONG,
            original_max_position_embeddings=4)),
    },
    "granite": {
        "plain": row("granite", embedding_multiplier=3.0, attention_multiplier=0.2,
                     residual_multiplier=0.4, logits_scaling=0.5),
        "tied": row("granite", tie_word_embeddings=True, embedding_multiplier=2.0,
                    attention_multiplier=0.5, residual_multiplier=0.7, logits_scaling=0.25,
                    old=True),
        "bias": row("granite", attention_bias=True, mlp_bias=True, num_key_value_heads=4,
                    attention_multiplier=0.3, gguf=False),
    },
    "smollm3": {
        "plain": row("smollm3", num_hidden_layers=4, num_key_value_heads=1, intermediate_size=32,
                     tie_word_embeddings=True),
        "list": row("smollm3", no_rope_layers=[0, 1], gguf=False),
        "window": row("smollm3", no_rope_layers=[1, 0], use_sliding_window=True,
                      sliding_window=16, num_key_value_heads=4, gguf=False, old=True),
    },
    "gemma2": {
        "plain": row("gemma2", head_dim=16, num_attention_heads=2, num_key_value_heads=1,
                     intermediate_size=32, num_hidden_layers=3, sliding_window=16,
                     query_pre_attn_scalar=16, attn_logit_softcapping=2.0,
                     final_logit_softcapping=3.0, tie_word_embeddings=True),
        "scalar": row("gemma2", head_dim=16, sliding_window=16, query_pre_attn_scalar=24,
                      attn_logit_softcapping=1.0, final_logit_softcapping=None,
                      tie_word_embeddings=True, gguf=False),
        "types": row("gemma2", head_dim=8, num_key_value_heads=4, sliding_window=16,
                     layer_types=["full_attention", "sliding_attention"],
                     attn_logit_softcapping=None, final_logit_softcapping=5.0, gguf=False,
                     old=True, tie_word_embeddings=True),
    },
    "gemma3": {
        "plain": row("gemma3_text", head_dim=16, num_attention_heads=2, num_key_value_heads=1,
                     intermediate_size=32, sliding_window=16, query_pre_attn_scalar=16,
                     layer_types=["sliding_attention", "full_attention"], gguf=False,
                     tie_word_embeddings=True, rope_parameters=GEMMA_ROPES),
        "scalar": row("gemma3_text", head_dim=8, sliding_window=16, query_pre_attn_scalar=24,
                      layer_types=["full_attention", "sliding_attention"], gguf=False,
                      tie_word_embeddings=True, rope_parameters=GEMMA_ROPES),
        "linear": row("gemma3_text", head_dim=16, num_key_value_heads=4, sliding_window=16,
                      query_pre_attn_scalar=16, gguf=False, tie_word_embeddings=True,
                      layer_types=["sliding_attention", "full_attention"],
                      rope_parameters=GEMMA_ROPES | {
                          "full_attention": rope("linear", 1000000.0, factor=8.0)}),
    },
    "olmo2": {
        "plain": row("olmo2"),
        "tied": row("olmo2", num_key_value_heads=4, tie_word_embeddings=True, old=True),
        "yarn": row("olmo2", num_key_value_heads=1, rope_parameters=rope(
            "yarn", 500000.0, factor=4.0, original_max_position_embeddings=64)),
    },
    "cohere": {
        "plain": row("cohere", logit_scale=0.7, tie_word_embeddings=True),
        "mha": row("cohere", num_key_value_heads=4, logit_scale=1.5, tie_word_embeddings=True,
                   rope_parameters=rope("default", 4000000.0), old=True),
        "bias": row("cohere", num_key_value_heads=1, attention_bias=True, logit_scale=1.0,
                    tie_word_embeddings=True, gguf=False),
    },
    "cohere2": {
        "plain": row("cohere2", num_hidden_layers=4, intermediate_size=32, sliding_window=16,
                     num_key_value_heads=1, logit_scale=0.7, tie_word_embeddings=True, gguf=False),
        "types": row("cohere2", sliding_window=16, logit_scale=1.5, tie_word_embeddings=True,
                     layer_types=["full_attention", "sliding_attention"], gguf=False),
        "bias": row("cohere2", sliding_window=16, attention_bias=True, num_key_value_heads=4,
                    layer_types=["sliding_attention", "full_attention"], logit_scale=1.0,
                    tie_word_embeddings=True, gguf=False),
    },
    "glm4": {
        "plain": row("glm4", head_dim=16, num_attention_heads=2, num_key_value_heads=1,
                     attention_bias=True, rope_parameters=rope("default",
                                                               partial_rotary_factor=0.5)),
        "whole": row("glm4", head_dim=8, attention_bias=True, tie_word_embeddings=True, old=True,
                     rope_parameters=rope("default", partial_rotary_factor=1.0)),
        "quarter": row("glm4", head_dim=16, num_key_value_heads=4, attention_bias=False,
                       gguf=False, rope_parameters=rope("default", partial_rotary_factor=0.25)),
    },
    "olmo3": {
        "plain": row("olmo3", sliding_window=16, num_hidden_layers=4, intermediate_size=24,
                     num_attention_heads=2, num_key_value_heads=1, head_dim=8, rope_parameters={
                         "full_attention": rope("yarn", 500000.0, factor=4.0,
                                                original_max_position_embeddings=64),
                         "sliding_attention": rope("default", 500000.0)}),
        "types": row("olmo3", sliding_window=16, gguf=False,
                     layer_types=["full_attention", "sliding_attention"]),
    },
    "stablelm": {
        "plain": row("stablelm", num_attention_heads=2,
                     rope_parameters=rope("default", partial_rotary_factor=0.25)),
        "parallel": row("stablelm", num_attention_heads=2, num_key_value_heads=1,
                        use_parallel_residual=True,
                        rope_parameters=rope("default", partial_rotary_factor=0.5)),
        "bias": row("stablelm", use_qkv_bias=True, num_key_value_heads=1, old=True,
                    rope_parameters=rope("default", partial_rotary_factor=1.0)),
    },
    "internlm2": {
        "plain": row("llama", become=InternLM2()),
        "mqa": row("llama", num_key_value_heads=1, become=InternLM2(), old=True,
                   rope_parameters=rope("dynamic", 1000000.0, factor=2.0)),
        "mha": row("llama", num_key_value_heads=4, become=InternLM2(), gguf=False),
    },
    "shipped": {
        "gptq32": shipped(Gptq()),
        "gptq128": shipped(Gptq(group=128, sym=False), intermediate_size=256),
        "gptq-order": shipped(Gptq(group=64, sym=False, act_order=True)),
        "gptq-v2": shipped(Gptq(group=64, sym=False, v2=True), "phi3", head_dim=32),
        "gptq8": shipped(Gptq(bits=8, group=-1)),
        "awq32": shipped(Awq()),
        "awq64": shipped(Awq(group=64), "qwen2"),
        "packed32": shipped(Packed()),
        "packed64": shipped(Packed(group=64, sym=False)),
        "packed-order": shipped(Packed(act_order=True)),
        "packed8": shipped(Packed(bits=8, group=64)),
        "int8-channel": shipped(Int8()),
        "int8-tensor": shipped(Int8("tensor", torch.bfloat16), "qwen3", head_dim=32),
        "fp8-block": shipped(Fp8("fp8", "block")),
        "fp8-tensor": shipped(Fp8("fp8", "tensor")),
        "fbgemm": shipped(Fp8("fbgemm_fp8", "channel")),
        "float-channel": shipped(Fp8("compressed-tensors", "channel")),
        "float-block": shipped(Fp8("compressed-tensors", "block")),
    },
}
