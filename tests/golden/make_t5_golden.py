#!/usr/bin/env python3
"""Writes t5_golden.txt: results of transformers' T5 encoder and decoder, each alone, whose attention has a relative
position bias. tests/nn/graph/relative_bias_golden_test.cpp checks stacks of blocks with them. In F64, eager
attention.
usage: make_t5_golden.py > t5_golden.txt

For each of the two: the loss, then each parameter's name in this project, number of values and gradient."""

import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Stack

BATCH, TIME, WIDTH, HEADS, INNER = 2, 11, 12, 3, 20


def counted(shape, factor, size):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) * factor + 11) % 41 - 20).mul(size / 16).reshape(shape)


def parameters_of(stack, layers):
    """Parameters by their names in this project and in its order; concatenates modules that are one parameter there."""
    table = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    named = {"blocks.relative.weight": [table]}
    for i in range(layers):
        attention, dense = stack.block[i].layer[0], stack.block[i].layer[-1]
        own, inner = attention.SelfAttention, dense.DenseReluDense
        named[f"blocks.h.{i}.ln_1.weight"] = [attention.layer_norm.weight]
        named[f"blocks.h.{i}.attn.c_attn.weight"] = [own.q.weight, own.k.weight, own.v.weight]
        named[f"blocks.h.{i}.attn.c_proj.weight"] = [own.o.weight]
        named[f"blocks.h.{i}.ln_2.weight"] = [dense.layer_norm.weight]
        named[f"blocks.h.{i}.mlp.c_fc.weight"] = [inner.wi.weight]
        named[f"blocks.h.{i}.mlp.c_proj.weight"] = [inner.wo.weight]
    named["blocks.ln_f.weight"] = [stack.final_layer_norm.weight]
    return named


def here(name, tensors):
    return torch.cat([tensor.T if "relative" in name else tensor for tensor in tensors])


def write(is_decoder, head_size, buckets, distance, layers):
    config = transformers.T5Config(
        d_model=WIDTH, d_kv=head_size, d_ff=INNER, num_layers=layers, num_heads=HEADS, feed_forward_proj="gelu_new",
        relative_attention_num_buckets=buckets, relative_attention_max_distance=distance, dropout_rate=0.0,
        attn_implementation="eager", vocab_size=5)  # fmt: skip
    config.is_decoder, config.use_cache = is_decoder, False
    stack = T5Stack(config).double().eval()
    named = parameters_of(stack, layers)
    for drawn, (name, tensors) in enumerate(named.items()):
        size = 1.5 if "relative" in name else 1.0 if "ln_" in name else 0.3
        values = counted(here(name, tensors).shape, drawn % 40 + 1, size)
        for tensor, part in zip(tensors, values.split([len(here(name, [tensor])) for tensor in tensors])):
            tensor.data.copy_(part.T if "relative" in name else part)
    x, wanted = counted((BATCH, TIME, WIDTH), 3, 1), counted((BATCH, TIME, WIDTH), 5, 1)
    loss = torch.nn.functional.mse_loss(stack(inputs_embeds=x).last_hidden_state, wanted)
    loss.backward()
    print(f"{loss.item():.9g}")
    for name, tensors in named.items():
        gradient = here(name, [tensor.grad for tensor in tensors])
        print(name, gradient.numel())
        print(*(f"{number:.8g}" for number in gradient.flatten().tolist()))


write(is_decoder=False, head_size=5, buckets=8, distance=6, layers=2)
write(is_decoder=True, head_size=4, buckets=6, distance=9, layers=3)
