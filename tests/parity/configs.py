"""configs.py - the random models of tests/parity/kit: for each architecture a few rows, each a
config.json of its kind with other choices in it.

    type    model_type of transformers
    config  its keys
    gguf    llama.cpp's converter knows it
    old     config.json as transformers 4 wrote it
    seed    the first to try, where an earlier one gave no clear greedy choices
"""

SIZES = dict(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
)


def row(model_type, gguf=True, old=False, seed=1, **config):
    return dict(type=model_type, config=SIZES | config, gguf=gguf, old=old, seed=seed)


def rope(kind, theta=10000.0, **kw):
    return {"rope_type": kind, "rope_theta": theta} | kw


CONFIGS = {
    "llama": {
        "plain": row("llama", head_dim=16),
        "bias": row("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                    gguf=False),
        "old": row("llama", old=True, num_key_value_heads=4, rope_parameters=rope(
            "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64)),
    },
}
