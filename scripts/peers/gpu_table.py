#!/usr/bin/env python3
"""Summarizes a results folder of gpu_check.sh or bench_gpu_peers.sh in summary.md and summary.json, and prints the table.

  gpu_table.py FOLDER [PART...]   lists every PART without a result as missing
  gpu_table.py --self-test

Rejects results of different GPUs. For every program, MFU counts 6 N + 6 L C T floating-point operations per token,
relative to the device's peak for dense bf16 products. N counts the head's table once, padded to 50304 rows; attention
is causal.
"""

import json
import sys
from pathlib import Path

MODELS = {"124m": (12, 768), "350m": (24, 1024), "774m": (36, 1280), "1558m": (48, 1600)}
PADDED_VOCABULARY, CONTEXT = 50304, 1024
PEAKS = (("H200", 989.4e12), ("GH200", 989.4e12), ("H100 PCIe", 756e12), ("H100 NVL", 835e12), ("H100", 989.4e12),
         ("A100", 312e12))  # fmt: skip  # dense bf16; the first that the device's name holds
BANDWIDTHS = (("H200", 4.8e12), ("GH200", 4.9e12), ("H100 PCIe", 2.0e12), ("H100 NVL", 3.9e12), ("H100", 3.35e12),
              ("A100", 2.0e12))  # fmt: skip  # bytes a second of device memory, by the vendor
PEERS = {"ours": "HybridTrainer", "untimed": "HybridTrainer, algorithms untimed", "pytorch": "PyTorch", "llm_c": "llm.c"}


def parameters(size):
    layers, width = MODELS[size]
    return (PADDED_VOCABULARY + CONTEXT) * width + layers * (12 * width**2 + 13 * width) + 2 * width


def flops_of_token(size, sequence):
    layers, width = MODELS[size]
    return 6 * parameters(size) + 6 * layers * width * sequence


def peak_of(device, of=PEAKS):
    return next((peak for name, peak in of if name in device), None)


def card_of(results):
    """The single GPU of these results."""
    cards = {}
    for part, result in results.items():
        if "card" in result or "device" in result:  # llm.c does not report it
            cards.setdefault(result.get("card", result.get("device")), []).append(part)
    if len(cards) > 1:
        sys.exit("results of different cards are not merged: "
                 + "; ".join(f"{card}: {', '.join(names)}" for card, names in cards.items()))  # fmt: skip
    return next(iter(cards), "unknown card")


def row_of(peer, size, result, device):
    sequence = result.get("sequence", CONTEXT)
    row = {
        "peer": peer, "model": size, "batch": result.get("batch"), "sequence": sequence,
        "tokens_per_second": result["tokens_per_second"], "step_seconds": result["step_seconds"],
        "peak_total_bytes": result.get("peak_total_bytes"),
    }  # fmt: skip
    peak = peak_of(result.get("device") or device)
    if peak:
        row["mfu"] = row["tokens_per_second"] * flops_of_token(size, sequence) / peak
    for key in ("variant", "share_of_product_rate", "peak_bytes", "left_out"):
        if result.get(key):
            row[key] = result[key]
    return row


def rows_of(results, card):
    rows = []
    for size in MODELS:
        for peer in PEERS:
            result = results.get(f"{peer}-{size}")
            if result:
                rows.append(row_of(peer, size, result, card))
            if result and "ours" in result:
                rows.append(row_of("ours", size, result["ours"], card))
    return rows


def summary_of(results, failures, parts):
    """All results as one object."""
    card = card_of(results)
    summary = {"device": card, "peak_flops_per_second": peak_of(card), "rows": rows_of(results, card)}
    for name in ("smoke", "tests", "generate", "train", "ranks", "memcheck", "racecheck", "kernels", "profile", "cycle"):
        if name in results:
            summary[name] = results[name]
    if "kernels" in summary:
        summary["kernels"] = with_step(summary["kernels"], summary["rows"])
    summary["failed"] = failures
    summary["missing"] = [part for part in parts if part not in results and part not in failures]
    return summary


def with_step(kernels, rows):
    """The kernels with the sum of their calls in one bf16 step, and the step measured at the same batch."""
    timed = [kernel for kernel in kernels["kernels"] if kernel.get("in_bf16_step") and "seconds" in kernel]
    steps = [row["step_seconds"] for row in rows if row["peer"] == "ours" and row["model"] == "124m"
             and shape_of(row) == shape_of(kernels)]  # fmt: skip
    return {
        **kernels,
        "sum_of_step_seconds": sum(kernel["calls_per_step"] * kernel["seconds"] for kernel in timed),
        "measured_step_seconds": steps[0] if steps else None,
    }


def gigabytes(count):
    return "-" if count is None else f"{count / 1e9:.2f}"


def shape_of(measured):
    return measured["batch"], measured["sequence"]


def model_table(rows, card):
    lines = [f"Training steps of GPT-2 on {card}; the ratio is to PyTorch at the same batch:", "",
             "| model | program | batch × T | tokens/s | step ms | MFU | peak GB | to PyTorch |", "|" + " --- |" * 8]  # fmt: skip
    for row in rows:
        name = PEERS[row["peer"]] + (f" ({row['variant']})" if "variant" in row else "")
        torch = [other for other in rows
                 if other["model"] == row["model"] and other["peer"] == "pytorch" and shape_of(other) == shape_of(row)]  # fmt: skip
        ratio = f"{row['tokens_per_second'] / torch[0]['tokens_per_second']:.2f} ×" if torch else "-"
        mfu = f"{100 * row['mfu']:.1f} %" if "mfu" in row else "-"
        lines.append(
            f"| {row['model']} | {name} | {row['batch'] or '-'} × {row['sequence']} | {row['tokens_per_second']:,.0f} | "
            f"{1e3 * row['step_seconds']:.1f} | {mfu} | {gigabytes(row['peak_total_bytes'])} | {ratio} |"
        )
    return lines


def memory_table(rows, card):
    ours = [row for row in rows if "peak_bytes" in row and row["peer"] == "ours"]
    kinds = [kind for kind in (ours[0]["peak_bytes"] if ours else ()) if any(row["peak_bytes"][kind] for row in ours)]
    if not ours:
        return []
    lines = ["", f"Peak of each kind of memory on {card}, GB:", "", "| model | batch | " + " | ".join(kinds) + " |"]
    lines.append("|" + " --- |" * (len(kinds) + 2))
    for row in ours:
        lines.append(f"| {row['model']} | {row['batch'] or '-'} | " + " | ".join(gigabytes(row["peak_bytes"][kind]) for kind in kinds) + " |")
    return lines


def kernel_table(kernels, card):
    rates = kernels["rates"]
    copies = f"{rates['copy_bytes_per_second'] / 1e9:.0f} GB/s (cudaMemcpyAsync {rates['memcpy_bytes_per_second'] / 1e9:.0f}"
    specified = peak_of(card, BANDWIDTHS)
    if specified:
        copies += f"; {100 * rates['memcpy_bytes_per_second'] / specified:.0f} % of the card's {specified / 1e9:.0f}"
    lines = ["", f"Kernels on {card} at B = {kernels['batch']}, T = {kernels['sequence']}; in this run bf16 products reach "
             f"{rates['bf16_product_flops_per_second'] / 1e12:.0f} TFLOP/s, copies {copies}), "
             f"reads {rates['read_bytes_per_second'] / 1e9:.0f} GB/s:",
             "", "| kernel | dtype | µs | calls | rate | share of |", "|" + " --- |" * 6]  # fmt: skip
    for kernel in kernels["kernels"]:
        if "problem" in kernel:
            lines.append(f"| {kernel['name']} | {kernel['dtype']} | - | - | {kernel['problem']} | - |")
            continue
        rate = f"{kernel['rate'] / 1e12:.1f} TFLOP/s" if kernel["limit"] == "product" else f"{kernel['rate'] / 1e9:.0f} GB/s"
        lines.append(f"| {kernel['name']} | {kernel['dtype']} | {1e6 * kernel['seconds']:.1f} | "
                     f"{kernel['calls_per_step']:g} | {rate} | {100 * kernel['share']:.0f} % {kernel['limit']} |")  # fmt: skip
    step = kernels.get("measured_step_seconds")
    beside = f"the measured step {1e3 * step:.1f} ms" if step else "no step of this batch was measured"
    return lines + ["", f"Σ (calls × kernel time) of a bf16 step: {1e3 * kernels['sum_of_step_seconds']:.1f} ms; {beside}."]


def test_lines(tests, card):
    lines = ["", f"Tests on {card}: {tests['tests']}, failed {len(tests['failed'])}, skipped {tests['skipped']}"
             + "".join(f"\n- {name}" for name in tests["failed"])]  # fmt: skip
    lines += [f"- {suite}: {result}" for suite, result in tests["bad_suites"].items() if result != "failed"]
    lines += [f"- {line}" for line in tests["again"]]
    return lines + ([f"- not run yet: {', '.join(tests['not_run'])}"] if tests["not_run"] else [])


def generation_table(models, card):
    lines = ["", f"Generation on {card}, bf16:", "",
             "| model | ms a token | tokens/s | of the read rate | texts at a time | tokens/s |", "|" + " --- |" * 6]  # fmt: skip
    for size, rates in models.items():
        lines.append(f"| {size} | {1e3 * rates['token_seconds']:.2f} | {rates['tokens_per_second']:.0f} | "
                     f"{100 * rates['share_of_read_rate']:.0f} % | {rates['batch']} | {rates['batch_tokens_per_second']:.0f} |")  # fmt: skip
    return lines


def profile_table(kernels, card):
    metrics = [metric for metric in kernels[0] if metric != "name"]
    lines = ["", f"Attention's backward pass on {card}, by Nsight Compute:", "", "| kernel | " + " | ".join(metrics) + " |"]
    lines.append("|" + " --- |" * (len(metrics) + 1))
    for kernel in kernels:
        lines.append(f"| {kernel['name']} | " + " | ".join(kernel.get(metric, "-") for metric in metrics) + " |")
    return lines


def sanitizer_line(result):
    return "; ".join(f"{group} {found}" for group, found in result["groups"].items())


def digest_line(what, result):
    bits = "have one digest" if result["same_bits"] else "have different digests"
    return f"{what} {bits}: " + ", ".join(f"{run}: {digest}" for run, digest in result["digests"].items())


def cycle_lines(cycle, card):
    return ["", f"Phase cycle on {card}: {gigabytes(cycle['full_live_bytes'])} GB live in Full, "
            f"{gigabytes(cycle['predict_live_bytes'])} GB in Predict; out in {1e3 * cycle['copy_out_seconds']:.1f} ms, restore "
            f"alone {1e3 * cycle['restore_alone_seconds']:.1f} ms, {cycle['passes']} passes "
            f"{1e3 * cycle['passes_without_seconds']:.1f} ms, beside a restore {1e3 * cycle['passes_with_seconds']:.1f} ms: "
            f"{100 * cycle['hidden_share']:.0f} % hidden."]  # fmt: skip


# How to show each part other than training steps, in this order, if the machine supports it.
SECTIONS = {
    "tests": test_lines,
    "train": lambda result, card: ["", digest_line(f"Runs on {card}: once, twice, resumed, with graphs", result)],
    "ranks": lambda result, card: ["", digest_line(f"Runs of one and two ranks on {card} (ranks-ZeRO)", result)],
    "memcheck": lambda result, card: ["", f"memcheck on {card}: {sanitizer_line(result)}"],
    "racecheck": lambda result, card: ["", f"racecheck on {card}: {sanitizer_line(result)}"],
    "kernels": kernel_table,
    "profile": lambda result, card: profile_table(result["kernels"], card),
    "generate": lambda result, card: generation_table(result["models"], card),
    "cycle": cycle_lines,
}


def markdown_of(summary):
    card = summary["device"]
    lines = [f"# {card}", ""]
    if summary["rows"]:
        lines += model_table(summary["rows"], card) + memory_table(summary["rows"], card)
    for part, lines_of in SECTIONS.items():
        if part in summary:
            reason = summary[part].get("unavailable")
            lines += ["", f"{part}: unavailable: {reason}"] if reason else lines_of(summary[part], card)
    for part, reason in summary["failed"].items():
        lines += ["", f"failed: {part}: {reason}"]
    if summary["missing"]:
        lines += ["", "missing: " + ", ".join(summary["missing"])]
    return "\n".join(lines) + "\n"


def measured(batch, rate):
    return {"batch": batch, "tokens_per_second": rate, "step_seconds": 1}


def self_test():
    assert parameters("124m") == 124_475_904
    assert abs(flops_of_token("124m", 1024) / 0.803e9 - 1) < 1e-3
    assert abs(flops_of_token("1558m", 1024) / 9.818e9 - 1) < 1e-3
    assert peak_of("NVIDIA H100 80GB HBM3") == peak_of("NVIDIA H200") == 989.4e12
    rows = rows_of({"ours-350m": measured(64, 3), "pytorch-350m": {**measured(32, 2), "ours": measured(32, 4)}}, "H100")
    assert [(row["peer"], row["batch"]) for row in rows] == [("ours", 64), ("pytorch", 32), ("ours", 32)]
    assert [line.split(" | ")[-1] for line in model_table(rows, "H100")[4:]] == ["- |", "1.00 × |", "2.00 × |"]
    assert peak_of("NVIDIA H100 PCIe") == 756e12 and peak_of("emulated") is None


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    folder, parts = Path(sys.argv[1]), sys.argv[2:]
    files = sorted(path for path in folder.glob("*.json") if path.stem != "summary")
    results = {path.stem: json.loads(path.read_text()) for path in files}
    failures = {path.stem: path.read_text().strip() for path in sorted(folder.glob("*.failed"))}
    summary = summary_of(results, failures, parts or list(results))
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (folder / "summary.md").write_text(markdown_of(summary))
    print(markdown_of(summary), end="")


if __name__ == "__main__":
    main()
