#!/usr/bin/env python3
"""Times training steps of an llm.c build (train_gpt2cu) on random tokens and prints one JSON object.

  bench_llm_c_gpu.py PROGRAM [--model 124m] [--batch 64] [--sequence 1024] [--steps 12] [--extra "-r 0 -ge 2"]

PROGRAM is built by `make train_gpt2cu USE_CUDNN=1 NO_MULTI_GPU=1` in a clone of llm.c; this script builds nothing.
It writes the two token files that the program needs: 256 int32, of which the first three are 20240520, 1 and the
number of tokens, then the tokens as uint16. The program starts from random weights (-e d12 for 124M). Reports the
median over its steps after the first two. Needs an NVIDIA GPU.
"""

import argparse
import json
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

DEPTHS = {"124m": 12, "350m": 24, "774m": 36, "1558m": 48}
MAGIC, VERSION, HEADER_WORDS, VOCABULARY = 20240520, 1, 256, 50257
STEP = re.compile(r"^step\s+(\d+)/\d+.*?\|\s*([\d.]+) ms\b", re.MULTILINE)
UNTIMED = 2


def write_tokens(path, count):
    draw = random.Random(1)
    header = [MAGIC, VERSION, count] + [0] * (HEADER_WORDS - 3)
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{HEADER_WORDS}i", *header))
        file.write(struct.pack(f"<{count}H", *(draw.randrange(VOCABULARY) for _ in range(count))))


def step_seconds(text):
    """Returns the seconds of each step in the program's output, in order."""
    return [float(milliseconds) / 1000 for _, milliseconds in STEP.findall(text)]


def command_of(arguments, folder):
    plain = {
        "-e": f"d{DEPTHS[arguments.model]}", "-i": folder / "train.bin", "-j": folder / "val.bin",
        "-b": arguments.batch, "-t": arguments.sequence, "-x": arguments.steps + UNTIMED,
        "-v": 1_000_000, "-m": 1, "-s": 0, "-h": 0, "-z": 0, "-r": 0, "-l": 1e-4, "-c": 0.1,
    }  # fmt: skip
    given = arguments.extra.split()
    plain.update(zip(given[::2], given[1::2]))
    return [arguments.program] + [str(word) for pair in plain.items() for word in pair]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", choices=DEPTHS, default="124m")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=12, help="timed steps; the median counts")
    parser.add_argument("--extra", default="-ge 2", help='options of the program, as "-r 1 -ge 0"')
    arguments = parser.parse_args()
    if not Path(arguments.program).is_file():
        print(f"bench_llm_c_gpu.py: {arguments.program} is not there; build train_gpt2cu first", file=sys.stderr)
        return 66
    with tempfile.TemporaryDirectory() as name:
        folder, tokens = Path(name), arguments.batch * arguments.sequence
        write_tokens(folder / "train.bin", 4 * tokens + 1)
        write_tokens(folder / "val.bin", tokens + 1)
        run = subprocess.run(command_of(arguments, folder), cwd=name, capture_output=True, text=True)
    seconds = step_seconds(run.stdout)[UNTIMED:]
    if run.returncode != 0 or not seconds:
        print(f"bench_llm_c_gpu.py: exit code {run.returncode}, {len(seconds)} steps\n{run.stdout[-800:]}{run.stderr[-800:]}",
              file=sys.stderr)  # fmt: skip
        return 1
    median = statistics.median(seconds)
    print(json.dumps({
        "peer": "llm.c", "model": arguments.model, "batch": arguments.batch, "sequence": arguments.sequence,
        "tokens_per_second": tokens / median, "step_seconds": median,
        "spread": (max(seconds) - min(seconds)) / median, "options": arguments.extra,
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
