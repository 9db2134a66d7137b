#!/usr/bin/env python3
"""Times attention at Whisper's sizes in PyTorch and here, in turn, and prints the medians of both.

usage: bench_attention.py build/tests/benchmarks/attention_benchmark [--rounds 5] [--heads 6]
"""

import argparse
import os
import statistics
import subprocess
import time

import torch

BATCH, TEXT, SOURCE, HEAD_SIZE = 4, 448, 1500, 64


def least_milliseconds(work, runs=5):
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times[1:])


def heads_of(rows, first, heads):
    """Returns a view of rows (B, T, C) as torch's heads (B, H, T, head size)."""
    width = heads * HEAD_SIZE
    part = rows[..., first * width : (first + 1) * width]
    return part.view(*rows.shape[:2], heads, HEAD_SIZE).transpose(1, 2)


def attention_of_torch(name, dtype, heads):
    """Returns milliseconds of forward and of backward."""
    attend = torch.nn.functional.scaled_dot_product_attention
    width = heads * HEAD_SIZE

    def rows(length, parts):
        return (torch.rand(BATCH, length, parts * width) - 0.5).to(dtype).requires_grad_()

    def forward():
        if name == "encoder":
            return attend(*(heads_of(own, i, heads) for i in range(3)))
        return attend(heads_of(q, 0, heads), heads_of(kv, 0, heads), heads_of(kv, 1, heads))

    own = rows(SOURCE, 3) if name == "encoder" else None
    q, kv = (rows(TEXT, 1), rows(SOURCE, 2)) if name == "cross" else (None, None)
    inputs = [x for x in (own, q, kv) if x is not None]
    y = forward()
    dy = torch.rand_like(y)
    return (
        least_milliseconds(forward),
        least_milliseconds(lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)),
    )


def attention_here(program, dtype, heads):
    lines = subprocess.run([program, dtype, str(heads)], capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: tuple(map(float, line.split()[2:])) for line in lines.splitlines()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--heads", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
    for dtype, torch_dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        ours, theirs = {"encoder": [], "cross": []}, {"encoder": [], "cross": []}
        for _ in range(options.rounds):
            for name, times in attention_here(options.program, dtype, options.heads).items():
                ours[name].append(times)
            for name in theirs:
                theirs[name].append(attention_of_torch(name, torch_dtype, options.heads))
        for name in ours:
            here, there = ([statistics.median(x) for x in zip(*times)] for times in (ours[name], theirs[name]))
            print(
                f"{name} {dtype}: here {here[0]:.1f} + {here[1]:.1f} ms, PyTorch {there[0]:.1f} + {there[1]:.1f} ms, "
                f"{sum(there) / sum(here):.2f} times as fast",
                flush=True,
            )


if __name__ == "__main__":
    main()
