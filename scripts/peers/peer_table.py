#!/usr/bin/env python3
"""Combines the results of bench_peers.sh into one table, or with --json into one JSON object.

  peer_table.py [--json] RESULTS               RESULTS has one JSON object per line
  peer_table.py --ours PRECISION BATCH LENGTH  makes such a line from the output of `hybrid bench --json` on standard input
"""

import json
import os
import platform
import statistics
import sys

OURS = "HybridTrainer"
QUIET = 0.10  # a larger spread means that another program was running


def processor():
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def our_line(precision, batch, sequence):
    measured = json.load(sys.stdin)
    kept = ("tokens_per_second", "share_of_product_rate", "product_flops_per_second", "step_seconds")
    line = {"peer": OURS, "mode": precision, "precision": precision, "batch": int(batch), "sequence": int(sequence)}
    line.update({key: measured[key] for key in kept if key in measured})
    print(json.dumps(line))


def key_of(row):
    return row["peer"], row["precision"], row["mode"], row["batch"], row["sequence"]


def over_rounds(lines):
    """One row per measurement: the median of its rounds, all of them, and (highest - lowest) / median."""
    rows = {}
    for line in lines:
        rows.setdefault(key_of(line), []).append(line)
    result = []
    for measured in rows.values():
        speeds = [line["tokens_per_second"] for line in measured]
        middle = statistics.median(speeds)
        spread = (max(speeds) - min(speeds)) / middle
        result.append({**measured[0], "tokens_per_second": middle, "rounds": speeds, "spread": spread})
    return result


def ratios(rows):
    """Ratios of ours to the fastest PyTorch mode of the same precision, and to llm.c, by length and precision."""
    found = []
    for ours in (row for row in rows if row["peer"] == OURS):
        same = [row for row in rows if row["sequence"] == ours["sequence"] and row["peer"] != OURS]
        torch = [row for row in same if row["peer"].startswith("PyTorch")]
        # If PyTorch has no BF16 mode here, a user would run FP32.
        modes = [row for row in torch if row["precision"] == ours["precision"]] or torch
        entry = {"sequence": ours["sequence"], "precision": ours["precision"]}
        if modes:
            fastest = max(modes, key=lambda row: row["tokens_per_second"])
            entry["fastest_pytorch"] = fastest["mode"]
            entry["to_pytorch"] = ours["tokens_per_second"] / fastest["tokens_per_second"]
        llm_c = [row for row in same if row["peer"] == "llm.c"]
        if llm_c:
            entry["to_llm_c"] = ours["tokens_per_second"] / llm_c[0]["tokens_per_second"]
        found.append(entry)
    return found


def cell(row):
    return f"{row['tokens_per_second']:9.1f} ±{50 * row['spread']:3.0f} %"


def print_table(rows, found):
    lengths = sorted({row["sequence"] for row in rows})
    kinds = list(dict.fromkeys((row["peer"], row["precision"], row["mode"]) for row in rows))
    print(f"GPT-2 124M, forward + backward + AdamW, batch {rows[0]['batch']}, tokens/s; {processor()}\n")
    print(f"{'':56}" + "".join(f"{'T = ' + str(length):>16}" for length in lengths))
    for kind in kinds:
        name = kind[0] + " " + kind[1] + (f" ({kind[2]})" if kind[2] != kind[1] else "")
        cells = []
        for length in lengths:
            found_rows = [row for row in rows if key_of(row)[:3] == kind and row["sequence"] == length]
            cells.append("".join(map(cell, found_rows)) or f"{'-':>16}")
        print(f"{name:56}" + "".join(cells))
    print()
    for entry in found:
        text = f"{OURS} {entry['precision']} at T = {entry['sequence']}:"
        if "to_pytorch" in entry:
            text += f" {entry['to_pytorch']:.2f} x PyTorch ({entry['fastest_pytorch']})"
        if "to_llm_c" in entry:
            text += f"  {entry['to_llm_c']:.2f} x llm.c"
        print(text)
    noisy = [row for row in rows if row["spread"] > QUIET]
    if noisy:
        print(f"\n{len(noisy)} of {len(rows)} rows differ by more than {QUIET:.0%} between rounds:")
        print("the machine was not quiet, and the ratios do not hold.")
    if any(len(row["rounds"]) < 2 for row in rows):
        print("\nOne round only: its spread is not known.")


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 4 and arguments[0] == "--ours":
        return our_line(*arguments[1:])
    as_json = "--json" in arguments
    paths = [argument for argument in arguments if argument != "--json"]
    if len(paths) != 1:
        sys.exit(__doc__)
    with open(paths[0]) as file:
        rows = over_rounds([json.loads(line) for line in file if line.strip()])
    if not rows:
        sys.exit(f"{paths[0]} holds no result")
    quiet = all(len(row["rounds"]) > 1 and row["spread"] <= QUIET for row in rows)
    if as_json:
        print(json.dumps({"processor": processor(), "results": rows, "ratios": ratios(rows), "quiet": quiet}))
    else:
        print_table(rows, ratios(rows))


if __name__ == "__main__":
    main()
