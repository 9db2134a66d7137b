#!/usr/bin/env python3
"""Times a training step of GPT-2 in PyTorch on a CUDA device, as its users write it, and prints JSON.

The model is compiled, attention is F.scaled_dot_product_attention, AdamW is fused, the vocabulary is padded to 50304
and the gradient is clipped. Two variants are timed and the faster one counts:
  bf16      all weights, gradients and moments in bf16: less memory traffic, and no f32 master
  autocast  f32 weights and moments, bf16 by torch.autocast, which keeps training as exact as HybridTrainer's bf16
After each variant, prints a line with all results so far, so that an interrupted run keeps them. Needs an NVIDIA GPU
and PyTorch 2.1 or newer. --device cpu --tiny runs everything in seconds to test the script. Exit code 71: the batch
does not fit into the device's memory.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
from gpt2_pytorch import GPT2

MODELS = {"124m": (12, 12, 768), "350m": (24, 16, 1024), "774m": (36, 20, 1280), "1558m": (48, 25, 1600)}
VOCABULARY, PADDED_VOCABULARY = 50257, 50304
OUT_OF_MEMORY = 71


class Clock:
    """Seconds between marks. Uses the device's clock on CUDA, so that no step waits for the host."""

    def __init__(self, device):
        self.on_cuda, self.marks = device.type == "cuda", []

    def mark(self):
        if self.on_cuda:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def seconds(self):
        pairs = list(zip(self.marks, self.marks[1:]))
        if not self.on_cuda:
            return [end - begin for begin, end in pairs]
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in pairs]


def make_step(arguments, shape, variant, device):
    """Returns a function that makes one training step on random tokens and returns its loss."""
    layers, heads, width, vocabulary, drawn = shape
    torch.manual_seed(1)
    with torch.device(device):
        model = GPT2(layers, heads, width, arguments.sequence, vocabulary)
    if variant == "bf16":
        model = model.to(torch.bfloat16)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    if arguments.compile == "blocks":
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)
    run = torch.compile(model) if arguments.compile == "model" else model
    tokens = torch.randint(drawn, (arguments.batch, arguments.sequence + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step():
        autocast = torch.autocast(device.type, torch.bfloat16) if variant == "autocast" else contextlib.nullcontext()
        with autocast:
            loss = run(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def timed(arguments, shape, variant, device):
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    begin = time.perf_counter()
    step = make_step(arguments, shape, variant, device)
    for _ in range(arguments.warm_up):
        loss = step().item()
    ready_seconds = time.perf_counter() - begin
    clock = Clock(device)
    clock.mark()
    for _ in range(arguments.steps):
        step()
        clock.mark()
    seconds = clock.seconds()
    if loss != loss:
        raise RuntimeError("the loss is not a number")
    median = statistics.median(seconds)
    result = {
        "variant": variant,
        "tokens_per_second": arguments.batch * arguments.sequence / median,
        "step_seconds": median,
        "spread": (max(seconds) - min(seconds)) / median,
        "ready_seconds": ready_seconds,
        "loss": loss,
    }
    if device.type == "cuda":
        result["peak_total_bytes"] = torch.cuda.max_memory_allocated()
    return result


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="124m")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10, help="timed steps; the median counts")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before, the first of which compiles")
    parser.add_argument("--variants", default="bf16,autocast")
    parser.add_argument("--compile", choices=("model", "blocks", "none"), default="model",
                        help="what torch.compile is given; blocks compiles faster and runs slower")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0,
                        help="leave out a variant that would not be done by then, judged by the one before")  # fmt: skip
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, batch and sequence, to try the program")
    arguments = parser.parse_args()
    arguments.variants = arguments.variants.split(",")
    unknown = set(arguments.variants) - {"autocast", "bf16"}
    if unknown:
        parser.error(f"--variants: there is no {', '.join(sorted(unknown))}; valid: autocast, bf16")
    if arguments.tiny:
        arguments.batch, arguments.sequence, arguments.steps, arguments.warm_up = 2, 16, 2, 1
    return arguments


def report_of(results, left_out, arguments, device):
    fastest = max(results, key=lambda result: result["tokens_per_second"])
    return {
        "peer": f"PyTorch {torch.__version__.split('+')[0]}",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "cuda": torch.version.cuda,
        "model": "tiny" if arguments.tiny else arguments.model,
        "batch": arguments.batch,
        "sequence": arguments.sequence,
        "compiled": arguments.compile,
        **fastest,
        "variants": results,
        "left_out": left_out,
    }


def main():
    arguments = parsed()
    begin = time.perf_counter()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("bench_pytorch_gpu.py: PyTorch sees no CUDA device; --device cpu --tiny tries the program", file=sys.stderr)
        return 69
    torch.set_float32_matmul_precision("high")
    shape = (2, 2, 32, 64, 60) if arguments.tiny else (*MODELS[arguments.model], PADDED_VOCABULARY, VOCABULARY)
    results, left_out = [], {variant: "not reached" for variant in arguments.variants}
    for variant in arguments.variants:
        spent = time.perf_counter() - begin
        if results and arguments.seconds and spent + results[-1]["ready_seconds"] * 1.2 > arguments.seconds:
            left_out[variant] = f"{spent:.0f} of {arguments.seconds:.0f} s were gone"
        else:
            try:
                results.append(timed(arguments, shape, variant, device))
                del left_out[variant]
            except torch.cuda.OutOfMemoryError:
                left_out[variant] = "out of memory"
        if results:
            print(json.dumps(report_of(results, left_out, arguments, device)), flush=True)
    if not results:
        print(f"bench_pytorch_gpu.py: {left_out}", file=sys.stderr)
        return OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(main())
