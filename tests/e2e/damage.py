"""Damages a copy of a Hugging Face folder in one way.

usage: damage.py FOLDER KIND
"""
import json
import pathlib
import struct
import sys

folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
weights = folder / "model.safetensors"


def edit_header(change):
    data = weights.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    change(header)
    text = json.dumps(header).encode()
    weights.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n :])


def tensors(header):
    names = [k for k in header if k != "__metadata__"]
    return sorted(names, key=lambda k: header[k]["data_offsets"][0])


def edit_config(change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def overlap(h):
    a, b = tensors(h)[:2]
    begin, end = h[b]["data_offsets"]
    h[b]["data_offsets"] = [begin - 4, end - 4]


def outside(h):
    last = h[tensors(h)[-1]]
    last["data_offsets"] = [last["data_offsets"][0] + 1 << 40, last["data_offsets"][1] + 1 << 40]


def wrong_dtype(h):
    h[tensors(h)[0]]["dtype"] = "F33"


def missing_tensor(h):
    # its bytes stay, under a name no model has
    name = next(k for k in tensors(h) if k.endswith("layers.0.self_attn.q_proj.weight"))
    h["model.layers.0.self_attn.q_porj.weight"] = h.pop(name)


def wrong_shape(h):
    name = next(k for k in tensors(h) if k.endswith("layers.0.self_attn.q_proj.weight"))
    rows, cols = h[name]["shape"]
    h[name]["shape"] = [rows // 2, cols * 2]


if kind == "long-header":
    data = weights.read_bytes()
    weights.write_bytes(struct.pack("<Q", len(data) * 2) + data[8:])
elif kind == "unknown-architecture":
    edit_config(lambda c: c.update(model_type="perceiver", architectures=["PerceiverForText"]))
elif kind == "not-json":
    (folder / "config.json").write_text("{\n \"model_type\": \n")
elif kind == "no-tokenizer":
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).unlink(missing_ok=True)
else:
    edit_header({"overlap": overlap, "outside": outside, "dtype": wrong_dtype,
                 "missing-tensor": missing_tensor, "shape": wrong_shape}[kind])
