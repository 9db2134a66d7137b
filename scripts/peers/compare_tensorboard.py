#!/usr/bin/env python3
"""Compares the events that TensorBoard's own reader finds in a folder with a run's metrics.jsonl.

usage: scripts/peers/compare_tensorboard.py RUN/metrics.jsonl FOLDER      needs: pip install tensorboard
Exit code 0: every tag has the numbers of metrics.jsonl as f32, at the same steps, once each.
"""
import json
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PHASES = ["warmup", "full", "predict", "correct"]
NUMBERS = {
    "loss/train": "loss", "loss/validation": "validation_loss", "loss/predicted": "predicted_loss",
    "loss/validation_of_average": "average_validation_loss", "learning_rate": "learning_rate",
    "gradient_norm": "gradient_norm", "tokens_per_second": "tokens_per_second",
    "memory/device_peak_bytes": "peak_total_bytes", "memory/host_bytes": "host_bytes",
    "predictions/kept_fraction": "kept_fraction", "predictions/confidence": "confidence", "cost": "cost",
}


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def main():
    metrics, folder = sys.argv[1:]
    with open(metrics) as file:
        records = [json.loads(line) for line in file]
    reader = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    wanted = {tag: [(r["step"], f32(r[key])) for r in records if r.get(key) is not None]
              for tag, key in NUMBERS.items()}
    wanted["phase"] = [(r["step"], float(PHASES.index(r["phase"]))) for r in records]
    wanted = {tag: values for tag, values in wanted.items() if values}
    found = {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    problems = [f"{tag}: only in {'metrics' if tag in wanted else 'events'}" for tag in set(wanted) ^ set(found)]
    problems += [f"{tag}: differs" for tag in set(wanted) & set(found) if wanted[tag] != found[tag]]
    texts = {tag: [(e.step, e.tensor_proto.string_val[0].decode()) for e in reader.Tensors(tag)]
             for tag in reader.Tags()["tensors"]}
    if texts.get("decisions", []) != [(r["step"], r["event"]) for r in records if r["event"]]:
        problems.append("decisions: differ")
    if [step for step, _ in texts.get("configuration", [])] != [0]:
        problems.append("configuration: not once at step 0")
    times, seconds = [e.wall_time for e in reader.Scalars("phase")], 0.0
    for record, time in zip(records, times):
        seconds += record["seconds"]
        if abs(time - reader.FirstEventTimestamp() - seconds) > 1e-3:
            problems.append(f"step {record['step']}: its time is not the begin and the seconds so far")
            break
    values = sum(len(list_) for list_ in found.values())
    print("\n".join(problems) or f"{len(records)} steps, {len(found)} tags, {values} values: equal to metrics.jsonl")
    return 1 if problems else 0


sys.exit(main())
