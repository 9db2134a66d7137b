#!/usr/bin/env python3
"""Makes gguf_blocks.safetensors: gguf-py 0.19.0's output for random values and random blocks.

usage: make_gguf_golden.py OUTPUT     needs numpy, gguf and safetensors from PyPI
"""
import sys

import numpy
from gguf import GGMLQuantizationType, quants
from safetensors.numpy import save_file

ROWS, COLUMNS = 2, 256
WRITTEN = ("F32", "F16", "BF16", "Q8_0", "Q4_0")
READ = {"F16": (1, 2), "BF16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34),
        "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "MXFP4": (32, 17)}
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def main():
    generator = numpy.random.default_rng(7)
    values = generator.normal(size=(ROWS, COLUMNS)).astype(numpy.float32)
    values[0, :32] = 0  # a block of zeros
    values[1, 32:64] *= 1e-3
    values[1, 64] = values[1, 65] = -5  # two equal largest magnitudes
    tensors = {"values": values}
    for name in WRITTEN:
        kind = GGMLQuantizationType[name]
        made = quants.quantize(values, kind)
        tensors["written." + name.lower()] = numpy.ascontiguousarray(made).view(numpy.uint8).reshape(-1)
    for name, (elements, size) in READ.items():
        blocks = generator.integers(0, 256, size=(ROWS, COLUMNS // elements, size), dtype=numpy.uint8)
        for at in HALVES.get(name, ()):  # scales that are finite
            halves = generator.normal(size=(ROWS, COLUMNS // elements)).astype(numpy.float16)
            blocks[:, :, at:at + 2] = halves[..., None].view(numpy.uint8)
        if name in ("F16", "BF16"):
            blocks = numpy.ascontiguousarray(quants.quantize(values, GGMLQuantizationType[name])).view(numpy.uint8)
        if name == "MXFP4":
            blocks[:, :, 0] = generator.integers(100, 150, size=blocks.shape[:2])
        flat = blocks.reshape(ROWS, -1)
        tensors["blocks." + name.lower()] = flat.reshape(-1)
        tensors["read." + name.lower()] = quants.dequantize(flat, GGMLQuantizationType[name]).astype(numpy.float32).reshape(-1)
    save_file(tensors, sys.argv[1])


main()
