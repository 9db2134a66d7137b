#!/usr/bin/env python3
"""Times convolutions with their gradients here and in PyTorch, in turn, and prints a table of both.

PyTorch runs each shape contiguous and channels last, and the faster one counts. Needs torch.
usage: bench_convolution.py build/tests/benchmarks/convolution_benchmark [--precision f32|bf16] [--rounds 3] [--only NAME]
"""

import argparse
import json
import statistics
import subprocess
import time

import torch

SHAPES = {  # x, outputs, kernel, stride, padding, groups; whether the gradient of x is computed
    "video 3 to 32": ((2, 16, 56, 56, 3), 32, (3, 3, 3), (1, 2, 2), (1, 1, 1), 1, False),
    "video 32 to 64": ((2, 16, 28, 28, 32), 64, (3, 3, 3), (2, 2, 2), (1, 1, 1), 1, True),
    "video 64 to 128": ((2, 8, 14, 14, 64), 128, (3, 3, 3), (2, 2, 2), (1, 1, 1), 1, True),
    "video 64 to 64": ((2, 8, 28, 28, 64), 64, (3, 3, 3), (1, 1, 1), (1, 1, 1), 1, True),
    "whisper 80 to 384": ((1, 3000, 80), 384, (3,), (1,), (1,), 1, False),
    "whisper 384 to 384": ((1, 3000, 384), 384, (3,), (2,), (1,), 1, True),
    "image 64 to 64": ((4, 56, 56, 64), 64, (3, 3), (1, 1), (1, 1), 1, True),
    "image depthwise": ((4, 56, 56, 128), 128, (3, 3), (1, 1), (1, 1), 128, True),
    "image 32 groups": ((4, 28, 28, 256), 256, (3, 3), (1, 1), (1, 1), 32, True),
    "patches of 16": ((4, 224, 224, 3), 384, (16, 16), (16, 16), (0, 0), 1, False),
}
MODULES = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def least(run, most=0.3):
    run()
    best, spent, runs = float("inf"), 0.0, 0
    while runs < 3 or spent < most:
        begin = time.perf_counter()
        run()
        seconds = time.perf_counter() - begin
        best, spent, runs = min(best, seconds), spent + seconds, runs + 1
    return best


def of_pytorch(shape, dtype, channels_last):
    """Returns seconds of forward and of backward."""
    x_shape, outputs, kernel, stride, padding, groups, wants_dx = shape
    rank = len(kernel)
    module = MODULES[rank](x_shape[-1], outputs, kernel, stride, padding, groups=groups).to(dtype)
    x = torch.randn(x_shape[0], x_shape[-1], *x_shape[1:-1]).to(dtype)
    if channels_last:
        module, x = module.to(memory_format=CHANNELS_LAST[rank]), x.to(memory_format=CHANNELS_LAST[rank])
    x.requires_grad_(wants_dx)
    y = module(x)
    dy = torch.randn_like(y)
    inputs = [*module.parameters()] + ([x] if wants_dx else [])

    def both():
        torch.autograd.grad(module(x), inputs, dy)

    with torch.no_grad():
        forward = least(lambda: module(x))
    return forward, least(both) - forward


def of_ours(program, shape, precision):
    x_shape, outputs, kernel, stride, padding, groups, wants_dx = shape
    text = [",".join(map(str, numbers)) for numbers in (x_shape, kernel, stride, padding)]
    command = [program, precision, text[0], str(outputs), *text[1:], str(groups), "0.3"]
    seconds = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return seconds["forward"], seconds["backward_parameters"] + (seconds["backward_input"] if wants_dx else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    dtype = torch.float32 if arguments.precision == "f32" else torch.bfloat16
    print("| convolution | ours ms, forward + backward | PyTorch ms | format | times as fast |\n| --- | --- | --- | --- | --- |")
    for name, shape in SHAPES.items():
        if arguments.only not in name:
            continue
        formats = [False] if len(shape[2]) == 1 else [False, True]
        ours, theirs = [], {channels_last: [] for channels_last in formats}
        for _ in range(arguments.rounds):
            ours.append(of_ours(arguments.program, shape, arguments.precision))
            for channels_last in formats:
                theirs[channels_last].append(of_pytorch(shape, dtype, channels_last))

        def medians(runs):
            return [1e3 * statistics.median(each) for each in zip(*runs)]

        mine = medians(ours)
        best = min(formats, key=lambda channels_last: sum(medians(theirs[channels_last])))
        peer = medians(theirs[best])
        print(
            f"| {name} | {mine[0]:.2f} + {mine[1]:.2f} | {peer[0]:.2f} + {peer[1]:.2f} |"
            f" {'channels last' if best else 'contiguous'} | {sum(peer) / sum(mine):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
