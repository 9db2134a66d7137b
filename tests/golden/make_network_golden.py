#!/usr/bin/env python3
"""Writes network_golden.txt: PyTorch's loss and gradients of a network of different parts.
tests/nn/graph/network_golden_test.cpp checks a ModuleGraph with them. Needs torch.
usage: make_network_golden.py > network_golden.txt

The first line is the loss. Then each parameter follows: its name, number of values and gradient."""
import torch
from torch.nn import functional

WIDTH, HEADS, VOCABULARY = 4, 2, 5
parameters = {}


def counted(shape, factor):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) * factor + 11) % 41 - 20).div(16).reshape(shape)


def parameter(name, *shape):
    value = counted(shape, len(parameters) % 40 + 1).requires_grad_()
    parameters[name] = value
    return value


def linear(x, name, outputs):
    weight = parameter(f"{name}.weight", outputs, x.shape[-1])
    return functional.linear(x, weight, parameter(f"{name}.bias", outputs))


def norm(x, name):
    weight = parameter(f"{name}.weight", WIDTH)
    return functional.layer_norm(x, (WIDTH,), weight, parameter(f"{name}.bias", WIDTH), 1e-5)


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attended(q, k, v, causal):
    y = functional.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=causal)
    return y.transpose(1, 2).flatten(2)


def transformer(x, name, causal, source=None):
    block = f"{name}.h.0"
    q, k, v = linear(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn", 3 * WIDTH).chunk(3, -1)
    x = x + linear(attended(q, k, v, causal), f"{block}.attn.c_proj", WIDTH)
    if source is not None:
        q = linear(norm(x, f"{block}.ln_cross"), f"{block}.cross.c_q", WIDTH)
        k, v = linear(source, f"{block}.cross.c_kv", 2 * WIDTH).chunk(2, -1)
        x = x + linear(attended(q, k, v, False), f"{block}.cross.c_proj", WIDTH)
    inner = functional.gelu(linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc", 4 * WIDTH), approximate="tanh")
    return norm(x + linear(inner, f"{block}.mlp.c_proj", WIDTH), f"{name}.ln_f")


video, series = counted((2, 2, 4, 3, 2), 3), counted((2, 5, 3), 5)
words = torch.arange(6).reshape(2, 3) * 3 % VOCABULARY
next_words = torch.tensor([[1, 4, -1], [2, 0, 3]])
speeds = counted((2, 2), 9) * 4

weight = parameter("cnn.0.weight", WIDTH, 27 * 2).view(WIDTH, 3, 3, 3, 2).permute(0, 4, 1, 2, 3)
x = functional.conv3d(video.movedim(-1, 1), weight, parameter("cnn.0.bias", WIDTH), stride=(1, 2, 1), padding=1)
x = functional.group_norm(x, 2, parameter("cnn.1.weight", WIDTH), parameter("cnn.1.bias", WIDTH), 1e-5)
tokens = functional.silu(x).movedim(1, -1).flatten(1, 3)
tokens = tokens + parameter("cnn.4.weight", tokens.shape[1], WIDTH)
blocks = transformer(linear(series, "embed", WIDTH), "blocks", False)
table = parameter("words_in.weight", VOCABULARY, WIDTH)
text = transformer(table[words], "text", True, torch.cat((tokens, blocks), 1))
logits = linear(text, "text_out", VOCABULARY)
# The mean is over all words, including ignored targets.
of_text = functional.cross_entropy(
    logits.flatten(0, 1), next_words.flatten(), ignore_index=-1, label_smoothing=0.1, reduction="sum") / 6  # fmt: skip
of_speed = functional.huber_loss(linear(blocks.mean(1), "speed_out", 2), speeds, delta=0.75)
loss = 0.7 * of_text + 0.5 * of_speed
loss.backward()
print(f"{loss.item():.9g}")
for name, value in parameters.items():
    print(name, value.numel())
    print(*(f"{number:.8g}" for number in value.grad.flatten().tolist()))
