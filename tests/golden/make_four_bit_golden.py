#!/usr/bin/env python3
"""Writes four_bit.safetensors next to this script: numbers, their 4-bit quantization by bitsandbytes (NF4) with
quantized scales, and the dequantized numbers. Uses the PyTorch reference of bitsandbytes' default backend, repeated
here for the scales, because its CPU backend looks codes up in a coarser table. Also contains FP4, and a matrix in 8
bits by rows."""

import pathlib

import bitsandbytes.functional as functional
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from safetensors.torch import save_file


def of_fp4(values, count, magnitudes, offset, levels, scales):
    """FP4, also with f32 scales that are not quantized."""
    packed, same = torch.ops.bitsandbytes.quantize_4bit.default(values.float(), 64, "fp4", torch.uint8)
    assert torch.equal(magnitudes, same)
    code = functional.get_4bit_type("fp4", device="cpu")
    inner = functional.QuantState(absmax=scales, code=functional.create_dynamic_map(), blocksize=256, dtype=torch.float32)
    nested = functional.dequantize_blockwise(levels, inner) + offset

    def again(sizes):  # the CPU kernel gives different last bits with AVX-512
        return _dequantize_4bit_compute(packed.reshape(-1), sizes, code, 64, values.shape, torch.float32)

    return {
        f"{count}.magnitudes": magnitudes,
        f"{count}.fp4.codes": packed.flatten(),
        f"{count}.fp4.again": again(nested),
        f"{count}.fp4.plain": again(magnitudes),
    }


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
    tensors |= of_fp4(values, count, magnitudes, offset, levels, scales)
torch.manual_seed(8)
values = torch.randn(37, 50) * torch.rand(37, 1).mul(3).exp() * 0.02
values[5] = torch.arange(50) - 24.5  # halves of the unit
values[5, 0] = 127
codes, magnitudes, _ = torch.ops.bitsandbytes.int8_vectorwise_quant.default(values)
tensors |= {"int8.values": values, "int8.codes": codes, "int8.magnitudes": magnitudes}
tensors |= {"int8.again": functional.int8_vectorwise_dequant(codes, magnitudes)}
save_file(tensors, pathlib.Path(__file__).parent / "four_bit.safetensors")
print({name: tuple(tensor.shape) for name, tensor in tensors.items() if name.startswith("16650")})
