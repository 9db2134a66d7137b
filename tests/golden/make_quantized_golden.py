#!/usr/bin/env python3
"""Writes llama_nf4/, llama_fp4/ and llama_int8/: the model of llama_a as saved by transformers with products quantized
by bitsandbytes. Each expected.safetensors contains the logits of the dequantized codes."""

import pathlib

import bitsandbytes.functional as functional
import torch
import transformers
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from safetensors.torch import load_file, save_file

here = pathlib.Path(__file__).parent
tokens = load_file(here / "llama_a/expected.safetensors")["tokens"]


def values_of(folder, name, shape):
    file = load_file(folder / "model.safetensors")
    if f"{name.removesuffix('.weight')}.SCB" in file:
        return functional.int8_vectorwise_dequant(file[name], file[f"{name.removesuffix('.weight')}.SCB"])
    if f"{name}.absmax" not in file:
        return file[name]
    beside = {key.removeprefix(name + "."): value for key, value in file.items() if key.startswith(name + ".")}
    state = functional.QuantState.from_dict(beside, device=torch.device("cpu"))
    assert tuple(state.shape) == tuple(shape)
    sizes = state.absmax
    if state.nested:
        sizes = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    # the reference, because the CPU kernel uses wrong scales if rows are not complete blocks
    return _dequantize_4bit_compute(file[name].reshape(-1), sizes, state.code, 64, state.shape, torch.float32)


for name, settings in {
    "llama_nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "llama_fp4": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "llama_int8": dict(load_in_8bit=True),
}.items():
    quantized = transformers.AutoModelForCausalLM.from_pretrained(
        here / "llama_a", dtype=torch.float32, quantization_config=transformers.BitsAndBytesConfig(**settings)
    )
    quantized.save_pretrained(here / name)
    (here / name / "generation_config.json").unlink()
    plain = transformers.AutoModelForCausalLM.from_pretrained(here / "llama_a", dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for key, parameter in plain.named_parameters():
            parameter.copy_(values_of(here / name, key, parameter.shape))
        logits = plain(tokens.long()).logits
    save_file({"tokens": tokens, "logits": logits}, here / name / "expected.safetensors")
