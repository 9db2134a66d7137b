#!/usr/bin/env python3
"""Times a training step of GPT-2 124M in PyTorch on the processor, in each mode a user would try.

Prints one JSON object a line: peer, mode, precision, batch, sequence, tokens_per_second, step_seconds.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 12, 12, 768, 1024, 50257
PADDED_VOCABULARY = 50304  # as nanoGPT and llm.c do; faster than 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, time_steps, _ = x.shape
        parts = self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(batch, time_steps, HEADS, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(PADDED_VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def multiplies_bfloat16():
    with open("/proc/cpuinfo") as info:
        flags = info.read().split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def modes():
    """Name, precision, fused AdamW, torch.compile."""
    yield "eager", "fp32", False, False
    yield "eager, fused AdamW", "fp32", True, False
    yield "compiled, fused AdamW", "fp32", True, True
    if multiplies_bfloat16():
        yield "autocast, fused AdamW", "bf16", True, False
        yield "autocast, compiled, fused AdamW", "bf16", True, True


def step_seconds(arguments, sequence, precision, fused, compiled):
    torch.manual_seed(1)
    torch._dynamo.reset()
    model = GPT2()
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0},
        ],
        lr=1e-4, betas=(0.9, 0.95), fused=fused,
    )  # fmt: skip
    run = torch.compile(model) if compiled else model
    tokens = torch.randint(VOCABULARY, (arguments.batch, sequence + 1))
    seconds = []
    for _ in range(arguments.warm_up + arguments.steps):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = run(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
    return seconds[arguments.warm_up :]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", default="64,256", help="lengths, separated by commas")
    parser.add_argument("--steps", type=int, default=7, help="timed steps; the median counts")
    parser.add_argument("--warm-up", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for sequence in map(int, arguments.sequence.split(",")):
        for mode, precision, fused, compiled in modes():
            print(f"PyTorch {torch.__version__}: {mode}, T = {sequence}", file=sys.stderr, flush=True)
            try:
                seconds = step_seconds(arguments, sequence, precision, fused, compiled)
            except Exception as error:  # a mode that this machine cannot run is left out, and said
                print(f"  left out: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            result = {
                "peer": f"PyTorch {torch.__version__.split('+')[0]}", "mode": mode, "precision": precision,
                "batch": arguments.batch, "sequence": sequence,
                "tokens_per_second": arguments.batch * sequence / statistics.median(seconds),
                "step_seconds": seconds,
            }  # fmt: skip
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
