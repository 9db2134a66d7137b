#!/usr/bin/env python3
"""Trains a GPT-2 in PyTorch on a folder of `hybrid prepare`: a variant of `hybrid compare` that is a command.

Uses the same model, data, batch, schedule and decay as `hybrid train` by default, in the requested mode. The seconds
exclude compilation and evaluation. Prints a line {"step", "tokens", "seconds", "validation_loss"} after the last
step.
"""

import argparse
import json
import math
import os
import pathlib
import time

import numpy
import torch
import torch.nn as nn
from gpt2_pytorch import GPT2

HEADER_BYTES = 1024
NARROW = 20240520  # magic of token files with 16 bits a token


def read_tokens(folder, split):
    parts = []
    for path in sorted(pathlib.Path(folder).glob(f"{split}_*.bin")):
        magic = numpy.fromfile(path, dtype="<i4", count=1)[0]
        kind = "<u2" if magic == NARROW else "<u4"
        parts.append(numpy.fromfile(path, dtype=kind, offset=HEADER_BYTES).astype(numpy.int64))
    return torch.from_numpy(numpy.concatenate(parts))


def training_batches(tokens, shape, seed):
    """Windows that do not overlap, from a new random offset and in a new order in each epoch."""
    generator = numpy.random.default_rng(seed)
    windows = (len(tokens) - shape.sequence) // shape.sequence
    starts = []
    while True:
        while len(starts) < shape.batch:
            offset = generator.integers(shape.sequence)
            order = generator.permutation(windows) * shape.sequence + offset
            starts.extend(start for start in order if start + shape.sequence < len(tokens))
        rows = torch.stack([tokens[start : start + shape.sequence + 1] for start in starts[: shape.batch]])
        del starts[: shape.batch]
        yield rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


@torch.no_grad()
def validation_loss(model, tokens, shape):
    windows = (len(tokens) - 1) // shape.sequence
    total = 0.0
    for first in range(0, windows, shape.batch):
        starts = [i * shape.sequence for i in range(first, min(first + shape.batch, windows))]
        rows = torch.stack([tokens[start : start + shape.sequence + 1] for start in starts])
        total += model(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()).item() * len(starts)
    return total / windows


def make_optimizers(model, arguments):
    named = list(model.named_parameters())
    decayed = [p for _, p in named if p.dim() == 2]
    rest = [p for _, p in named if p.dim() != 2]
    matrices = []
    if arguments.optimizer == "muon":
        matrices = [p for name, p in named if p.dim() == 2 and name.startswith("blocks.")]
        decayed = [model.wte.weight, model.wpe.weight]
    adamw = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=arguments.learning_rate, betas=(0.9, 0.99), fused=True,
    )  # fmt: skip
    if not matrices:
        return [adamw]
    muon = torch.optim.Muon(
        matrices, lr=arguments.learning_rate, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    return [adamw, muon]


def rate_share(step, steps, warm_up, final=0.05):
    if step < warm_up:
        return (step + 1) / warm_up
    progress = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("seed", type=int)
    parser.add_argument("learning_rate", type=float)
    parser.add_argument("steps", type=int)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warm-up", type=int, default=100, help="steps of the learning rate's rise")
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)

    train, validation = read_tokens(arguments.data, "train"), read_tokens(arguments.data, "val")
    info = json.loads((pathlib.Path(arguments.data) / "data.json").read_text())
    model = GPT2(
        arguments.layers, arguments.heads, arguments.width, arguments.sequence, -(-info["vocabulary_size"] // 64) * 64
    )
    optimizers = make_optimizers(model, arguments)
    run = torch.compile(model) if arguments.compile else model
    batches = training_batches(train, arguments, arguments.seed)

    def gradient(inputs, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
            loss = run(inputs, targets)
        loss.backward()
        return loss

    for _ in range(2):  # compiles, and selects kernels
        gradient(*next(training_batches(train, arguments, 12345)))
    model.zero_grad(set_to_none=True)

    seconds = 0.0
    for step in range(arguments.steps):
        begin = time.perf_counter()
        inputs, targets = next(batches)
        loss = gradient(inputs, targets)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = arguments.learning_rate * rate_share(step, arguments.steps, arguments.warm_up)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds += time.perf_counter() - begin
    tokens = arguments.steps * arguments.batch * arguments.sequence
    loss = validation_loss(model, validation, arguments)
    print(json.dumps({"step": arguments.steps, "tokens": tokens, "seconds": seconds, "validation_loss": loss}))


if __name__ == "__main__":
    main()
