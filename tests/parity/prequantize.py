"""prequantize.py - how published checkpoints ship quantized weights, for rows of configs.py ("ship").

Each class rounds every matrix of a model but the head to codes, leaves the model with the values
those codes stand for (so that transformers' float32 is the truth), and afterwards writes the codes
as the method's own tools do. Layouts: AutoGPTQ 0.7 (qlinear_cuda), AutoAWQ 0.2 (gemm), transformers
5 (finegrained_fp8), compressed-tensors 0.20, whose own packing `python tests/parity/prequantize.py`
compares with where the package is installed.
"""

import numpy as np
import torch

FP8 = torch.float8_e4m3fn


def matrices(model):
    for name, m in model.named_modules():
        if isinstance(m, torch.nn.Linear) and "lm_head" not in name:
            yield name, m.weight.data


def round_groups(w, bits, group, is_symmetric, index=None, kind=torch.float16):
    """(codes from 0, zeros, scales): [rows, cols], [rows, groups] twice. Column c is in group
    index[c]."""
    rows, cols = w.shape
    n = -(-cols // group)
    index = torch.arange(cols) // group if index is None else index
    codes = torch.zeros(rows, cols, dtype=torch.int64)
    zeros = torch.zeros(rows, n, dtype=torch.int64)
    scales = torch.zeros(rows, n)
    top = 2**bits - 1
    for g in range(n):
        at = (index == g).nonzero()[:, 0]
        x = w[:, at]
        if is_symmetric:
            d = (2 * x.abs().amax(1) / top).to(kind).float()
            z = torch.full((rows,), 2 ** (bits - 1))
        else:
            low, high = x.amin(1).clamp(max=0), x.amax(1).clamp(min=0)
            d = ((high - low) / top).to(kind).float()
            z = torch.round(-low / d).clamp(0, top)
        codes[:, at] = (torch.round(x / d[:, None]) + z[:, None]).clamp(0, top).long()
        zeros[:, g], scales[:, g] = z.long(), d
    value = scales[:, index] * (codes - zeros[:, index]).float()
    return codes, zeros, scales, index, value


def pack(x, bits):
    """int32 words of neighbors along the last dimension, the first in the lowest bits."""
    per = 32 // bits
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % per)).numpy().astype(np.uint32)
    x = x.reshape(*x.shape[:-1], -1, per)
    words = np.zeros(x.shape[:-1], np.uint32)
    for i in range(per):
        words |= x[..., i] << np.uint32(bits * i)
    return torch.from_numpy(words.view(np.int32).copy())


class Ship:
    def quantize(self, model):
        self.parts = {}
        for name, w in matrices(model):
            value, parts = self.take(w)
            w.copy_(value)
            for part, t in parts.items():
                self.parts[f"{name}.{part}"] = t.contiguous()

    def change_tensors(self, tensors, config):
        names = {k.rsplit(".", 1)[0] + ".weight" for k in self.parts}
        rest = {k: v.to(torch.bfloat16) for k, v in tensors.items() if k not in names}
        return rest | self.parts

    def change_config(self, config):
        config["quantization_config"] = self.about()

    def rename(self, name):
        return name


class Gptq(Ship):
    def __init__(self, bits=4, group=32, sym=True, act_order=False, v2=False):
        self.bits, self.group, self.sym, self.act_order, self.v2 = bits, group, sym, act_order, v2

    def take(self, w):
        cols = w.shape[1]
        group = cols if self.group == -1 else self.group
        index = torch.arange(cols, dtype=torch.int32) // group
        if self.act_order:
            index = index[torch.randperm(cols, generator=torch.Generator().manual_seed(7))]
        q, z, d, _, value = round_groups(w, self.bits, group, self.sym, index)
        stored = z if self.v2 else (z - 1) & (2**self.bits - 1)
        return value, {
            "qweight": pack(q, self.bits).T,
            "qzeros": pack(stored.T, self.bits),
            "scales": d.T.to(torch.float16),
            "g_idx": index,
        }

    def about(self):
        return dict(quant_method="gptq", bits=self.bits, group_size=self.group, sym=self.sym,
                    desc_act=self.act_order, checkpoint_format="gptq_v2" if self.v2 else "gptq")


class Awq(Ship):
    def __init__(self, group=32):
        self.group = group

    def take(self, w):
        q, z, d, _, value = round_groups(w, 4, self.group, False)
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        mix = lambda x: x.reshape(*x.shape[:-1], -1, 8)[..., order].reshape(x.shape)
        return value, {
            "qweight": pack(mix(q.T), 4),
            "qzeros": pack(mix(z.T), 4),
            "scales": d.T.to(torch.float16),
        }

    def about(self):
        return dict(quant_method="awq", bits=4, group_size=self.group, zero_point=True,
                    version="gemm", modules_to_not_convert=None)


class Packed(Ship):
    """compressed-tensors, pack-quantized."""

    def __init__(self, bits=4, group=32, sym=True, act_order=False):
        self.bits, self.group, self.sym, self.act_order = bits, group, sym, act_order

    def take(self, w):
        rows, cols = w.shape
        index = torch.arange(cols, dtype=torch.int32) // self.group
        if self.act_order:
            index = index[torch.randperm(cols, generator=torch.Generator().manual_seed(7))]
        q, z, d, _, value = round_groups(w, self.bits, self.group, self.sym, index,
                                         torch.bfloat16)
        parts = {
            "weight_packed": pack(q, self.bits),
            "weight_scale": d.to(torch.bfloat16),
            "weight_shape": torch.tensor([rows, cols]),
        }
        if not self.sym:
            parts["weight_zero_point"] = pack(z.T, self.bits).T
        if self.act_order:
            parts["weight_g_idx"] = index
        return value, parts

    def about(self):
        weights = dict(num_bits=self.bits, type="int", strategy="group", group_size=self.group,
                       symmetric=self.sym, dynamic=False,
                       actorder="group" if self.act_order else None)
        return compressed("pack-quantized", weights)


def compressed(form, weights, inputs=None):
    group = dict(targets=["Linear"], weights=weights, input_activations=inputs,
                 output_activations=None)
    return dict(quant_method="compressed-tensors", format=form, config_groups={"group_0": group},
                ignore=["lm_head"], kv_cache_scheme=None, quantization_status="compressed")


class Int8(Ship):
    """compressed-tensors, int-quantized: W8A8 as published, one scale a row or one in all."""

    def __init__(self, strategy="channel", kind=torch.float32):
        self.strategy, self.kind = strategy, kind

    def take(self, w):
        most = w.abs().amax(1, keepdim=True) if self.strategy == "channel" else w.abs().amax()
        d = (most / 127).to(self.kind)
        q = torch.round(w / d.float()).clamp(-128, 127).to(torch.int8)
        scale = d if self.strategy == "channel" else d.reshape(1)
        return q.float() * d.float(), {"weight": q, "weight_scale": scale}

    def about(self):
        weights = dict(num_bits=8, type="int", strategy=self.strategy, symmetric=True,
                       dynamic=False)
        inputs = dict(num_bits=8, type="int", strategy="token", symmetric=True, dynamic=True)
        return compressed("int-quantized", weights, inputs)


class Fp8(Ship):
    """One scale ("tensor"), one a row ("channel"), or one for blocks of 128 x 128 ("block")."""

    def __init__(self, method, strategy):
        self.method, self.strategy = method, strategy

    def take(self, w):
        rows, cols = w.shape
        if self.strategy == "block":
            d = torch.zeros(-(-rows // 128), -(-cols // 128))
            for i in range(d.shape[0]):
                for j in range(d.shape[1]):
                    d[i, j] = w[128 * i:128 * i + 128, 128 * j:128 * j + 128].abs().amax() / 448
            each = d.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
        else:
            d = w.abs().amax(1, keepdim=True) if self.strategy == "channel" else w.abs().amax()
            d = each = d / 448
        q = (w / each).to(FP8)
        part = "weight_scale_inv" if self.method == "fp8" else "weight_scale"
        scale = d.reshape(1) if self.strategy == "tensor" else d
        return q.float() * each, {"weight": q, part: scale.contiguous()}

    def about(self):
        if self.method == "fp8":
            block = [128, 128] if self.strategy == "block" else None
            return dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=block)
        if self.method == "fbgemm_fp8":
            return dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0,
                        modules_to_not_convert=["lm_head"])
        block = [128, 128] if self.strategy == "block" else None
        weights = dict(num_bits=8, type="float", strategy=self.strategy, symmetric=True,
                       dynamic=False, block_structure=block)
        return compressed("float-quantized", weights)


def main():
    from compressed_tensors.compressors import pack_to_int32

    g = torch.Generator().manual_seed(1)
    for bits in (4, 8):
        x = torch.randint(0, 2**bits, (6, 40), generator=g)
        signed = (x - 2 ** (bits - 1)).to(torch.int8)
        assert torch.equal(pack_to_int32(signed, bits), pack(x, bits))
        assert torch.equal(pack_to_int32(signed, bits, packed_dim=0), pack(x.T, bits).T)
    print("compressed-tensors packs as we do")


if __name__ == "__main__":
    main()
