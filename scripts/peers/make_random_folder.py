#!/usr/bin/env python3
"""Writes a Hugging Face folder of a Llama shape with random BF16 weights, to measure memory and time.

usage: make_random_folder.py OUTPUT [--shape tiny|1b|1b-32k|7b|8b] [--seed 0]

Needs numpy. A shard contains one layer, and at most one layer is in memory. The tokenizer is byte-level.
"""
import argparse
import json
import pathlib
import struct

import numpy as np

SHAPES = {  # hidden, intermediate, layers, heads, key/value heads, words, tied head
    "tiny": (64, 160, 2, 4, 2, 320, True),
    "1b": (2048, 8192, 16, 32, 8, 128256, True),
    "1b-32k": (2048, 8192, 16, 32, 8, 32000, False),
    "7b": (4096, 11008, 32, 32, 32, 32000, False),
    "8b": (4096, 14336, 32, 32, 8, 128256, False),
}


def random_bf16(rng, shape, deviation):
    values = rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
    return ((values.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def write_shard(path, tensors):
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    hidden, inner, layers, heads, groups, words, tied = SHAPES[given.shape]
    rng = np.random.default_rng(given.seed)
    one = np.full(hidden, 0x3F80, np.uint16)  # 1.0
    matrix = lambda rows, columns: random_bf16(rng, (rows, columns), 0.02)
    keys = hidden // heads * groups
    given.output.mkdir(parents=True, exist_ok=True)
    places, size = {}, 0

    def add(shard, tensors):
        nonlocal size
        name = f"model-{shard:05d}-of-{layers + 1:05d}.safetensors"
        write_shard(given.output / name, tensors)
        places.update({key: name for key in tensors})
        size += sum(values.nbytes for values in tensors.values())

    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        add(layer + 1, {
            prefix + "input_layernorm.weight": one,
            prefix + "self_attn.q_proj.weight": matrix(hidden, hidden),
            prefix + "self_attn.k_proj.weight": matrix(keys, hidden),
            prefix + "self_attn.v_proj.weight": matrix(keys, hidden),
            prefix + "self_attn.o_proj.weight": matrix(hidden, hidden),
            prefix + "post_attention_layernorm.weight": one,
            prefix + "mlp.gate_proj.weight": matrix(inner, hidden),
            prefix + "mlp.up_proj.weight": matrix(inner, hidden),
            prefix + "mlp.down_proj.weight": matrix(hidden, inner),
        })
    last = {"model.embed_tokens.weight": matrix(words, hidden), "model.norm.weight": one}
    if not tied:
        last["lm_head.weight"] = matrix(words, hidden)
    add(layers + 1, last)
    (given.output / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": places}))
    (given.output / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": groups, "vocab_size": words, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "tie_word_embeddings": tied, "torch_dtype": "bfloat16"}, indent=1))
    (given.output / "tokenizer.json").write_text('{"type":"bytes"}')


if __name__ == "__main__":
    main()
