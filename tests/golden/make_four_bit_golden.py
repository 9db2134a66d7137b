#!/usr/bin/env python3
"""Writes four_bit.safetensors beside itself: numbers, what bitsandbytes makes of them in 4 bits (NF4) with its magnitudes quantised
too, by the reference in PyTorch of its default backend (repeated here for
the magnitudes, where its processor backend looks codes up in a coarser table), and what it makes of that again."""

import pathlib

import bitsandbytes.functional as functional
import torch
from safetensors.torch import save_file


def blockwise(values, code, size):
    count, whole = values.numel(), values.numel() // size * size
    blocks = values[:whole].reshape(-1, size)
    magnitudes = blocks.abs().max(dim=-1)[0]
    scaled = torch.clamp(blocks * (1.0 / magnitudes.clamp(min=1e-38).view(-1, 1)), -1, 1).reshape(-1)
    if count > whole:
        rest = values[whole:].abs().max().clamp(min=1e-38)
        magnitudes = torch.cat([magnitudes, rest.unsqueeze(0)])
        scaled = torch.cat([scaled, torch.clamp(values[whole:] / rest, -1, 1)])
    middles = (code[:-1] + code[1:]) / 2
    return torch.bucketize(scaled, middles, out_int32=True).to(torch.uint8), magnitudes


tensors = {}
for count in (63, 64, 65, 129, 16_650):
    torch.manual_seed(count)
    values = (torch.randn(count) * torch.rand(count).mul(3).exp() * 0.02).bfloat16()
    if count == 129:
        values[:64] = 0
    if count > 1000:
        values[640:704] = 0
    packed, magnitudes = torch.ops.bitsandbytes.quantize_4bit.default(values.float(), 64, "nf4", torch.uint8)
    codes, again = blockwise(values.float(), functional.get_4bit_type("nf4", device="cpu"), 64)
    padded = torch.cat([codes, torch.full((count % 2,), 7, dtype=torch.uint8)])
    assert torch.equal(packed.flatten(), padded[::2] << 4 | padded[1::2]) and torch.equal(magnitudes, again)
    offset = magnitudes.mean()
    levels, scales = blockwise(magnitudes - offset, functional.create_dynamic_map(), 256)
    state = functional.QuantState(
        absmax=levels,
        shape=values.shape,
        dtype=torch.float32,
        blocksize=64,
        code=functional.get_4bit_type("nf4", device="cpu"),
        quant_type="nf4",
        offset=offset,
        state2=functional.QuantState(absmax=scales, code=functional.create_dynamic_map(), blocksize=256, dtype=torch.float32),
    )
    of = f"{count}."
    tensors |= {of + "values": values, of + "codes": packed.flatten(), of + "levels": levels, of + "scales": scales}
    tensors |= {of + "offset": offset.reshape(1), of + "again": functional.dequantize_4bit(packed, state)}
save_file(tensors, pathlib.Path(__file__).parent / "four_bit.safetensors")
print({name: tuple(tensor.shape) for name, tensor in tensors.items() if name.startswith("16650")})
