#!/usr/bin/env python3
"""Times a training step of GPT-2 124M, or of a Llama of 125M, in PyTorch on the processor, in each mode a user would try.

Prints one JSON object a line: peer, mode, precision, batch, sequence, tokens_per_second, step_seconds.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
from gpt2_pytorch import GPT2

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 12, 12, 768, 1024, 50257
PADDED_VOCABULARY = 50304  # as nanoGPT and llm.c do; faster than 50257


def multiplies_bfloat16():
    with open("/proc/cpuinfo") as info:
        flags = info.read().split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


class Llama(torch.nn.Module):
    """transformers' Llama of the preset llama-125m."""

    def __init__(self):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=PADDED_VOCABULARY, hidden_size=WIDTH, intermediate_size=2048, num_hidden_layers=LAYERS,
                num_attention_heads=HEADS, num_key_value_heads=4, max_position_embeddings=CONTEXT,
                tie_word_embeddings=True, use_cache=False,
            )
        )  # fmt: skip

    def forward(self, tokens, targets):
        logits = self.model(tokens).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


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
    llama = arguments.model == "llama"
    model = Llama() if llama else GPT2(LAYERS, HEADS, WIDTH, CONTEXT, PADDED_VOCABULARY)
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
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2", help="llama needs transformers")
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
