#!/usr/bin/env python3
"""Converts the output of a part of gpu_check.sh into one JSON line; results name the GPU, $GPU_CARD.

  gpu_gather.py last               the last JSON object that fills a line of standard input, with the GPU
  gpu_gather.py cards FOLDER       not JSON: the GPUs of all results in FOLDER, one per line
  gpu_gather.py batch              not JSON: the batch of the last object on standard input
  gpu_gather.py shape B T          what `hybrid bench --json` prints on standard input, with batch and sequence
  gpu_gather.py beside OURS        the last object on standard input, with the object OURS in it
  gpu_gather.py smoke TEXT DOCTOR  nvidia-smi's line, the file of what `hybrid doctor` said, a bench result on standard input
  gpu_gather.py kernels            the output of `cuda_benchmark --json` on standard input
  gpu_gather.py first_problem      not JSON: the first kernel in those lines that could not be timed
  gpu_gather.py profile CODE FILE  ncu's exit code, its CSV report, its output on standard input
  gpu_gather.py suite NAME CODE SECONDS FILE   one run of a suite: exit code, GoogleTest's FILE.report, FILE.log; where a test
                                   crashed, its name in FILE.crashed, the report of the others, FILE.again
  gpu_gather.py suites FOLDER NAME...          the results of the named suites in FOLDER
  gpu_gather.py crashed_test CODE LOG          not JSON: the test in which a suite crashed or lost the device's context
  gpu_gather.py group NAME CODE                a group of suites under a sanitizer: its exit code
  gpu_gather.py groups FOLDER NAME...          the results of the named groups in FOLDER
  gpu_gather.py unavailable REASON             a part that this machine cannot run
"""

import csv
import json
import os
import re
import sys
from pathlib import Path

TIMED_OUT = (124, 137)
# Messages of cudaGetErrorString for errors after which no call in the process succeeds.
CONTEXT_LOST = re.compile(
    r"illegal memory access|launch failure|launch timed out|misaligned address|illegal instruction|invalid program counter"
    r"|operation not supported on global/shared|device-side assert|hardware stack error"
)
PROFILE_METRICS = (
    "Duration", "Registers Per Thread", "Achieved Occupancy", "Compute (SM) Throughput", "Memory Throughput",
    "L1/TEX Cache Throughput", "L2 Cache Throughput", "DRAM Throughput", "Executed Ipc Active",
)  # fmt: skip


def with_card(result):
    return {"card": os.environ.get("GPU_CARD", "unknown"), **result}


def objects_of(text):
    """Complete JSON objects that are alone on a line."""
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def last(text):
    objects = objects_of(text)
    if not objects:
        sys.exit("no result")
    return objects[-1]


def cards(folder):
    places = ("*.json", "tests/*.json", "memcheck/*.json", "racecheck/*.json")
    texts = [path.read_text() for place in places for path in Path(folder).glob(place) if path.stem != "summary"]
    return sorted({str(json.loads(text).get("card", "an unnamed card")) for text in texts if text})


def smoke(text, doctor_path, bench_text):
    doctor = Path(doctor_path).read_text(errors="replace") if Path(doctor_path).is_file() else ""
    step = objects_of(bench_text)
    return {"device": text, "name": text.split(",")[0].strip(), "doctor": doctor, "step": step[-1] if step else None}


def kernels(text):
    head, *timings = objects_of(text) or [None]
    if head is None or "rates" not in head:
        sys.exit("no rates")
    return {**head, "kernels": timings}


def first_problem(text):
    return next((one["name"] for one in objects_of(text) if "problem" in one), "")


def profile(code, report_path, said):
    """Some metrics of each kernel in ncu's report. ncu may deny its counters to users other than root."""
    path = Path(report_path)
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    table = csv.DictReader(line for line in lines if line.startswith('"'))
    found = {}
    for row in table:
        if row.get("Metric Name") in PROFILE_METRICS:
            name = re.split("[<(]", row["Kernel Name"].replace("(anonymous namespace)::", ""))[0].split("::")[-1]
            kernel = found.setdefault(row["ID"], {"name": name.removeprefix("void ")})
            kernel[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    if found:
        return {"kernels": list(found.values())}
    problem = next((line for line in [*lines, *said.splitlines()] if "==ERROR==" in line), "it profiled no kernel")
    return {"unavailable": f"ncu, exit code {code}: {problem.replace('==ERROR==', '').strip()}"}


def crashed_test(code, log_path):
    """The crashed test in GoogleTest's log. A process that ran out of time has not crashed."""
    running, lost = "", False
    for line in Path(log_path).read_text(errors="replace").splitlines():
        if line.startswith("[ RUN      ] "):
            running, lost = line[13:].strip(), False
        lost = lost or bool(CONTEXT_LOST.search(line))
        if line.startswith("[  FAILED  ] ") and lost:
            return running
        if line.startswith(("[       OK ] ", "[  FAILED  ] ", "[  SKIPPED ] ")):
            running = ""
    return "" if int(code) in TIMED_OUT else running


def suite(name, code, seconds, stem):
    """The result of one suite. If a test crashed, the report covers the others."""
    code = int(code)
    log, report_path, again, crashed = (Path(f"{stem}.{end}") for end in ("log", "report", "again", "crashed"))
    said = log.read_text(errors="replace") if log.is_file() else ""
    lines = [line for line in said.splitlines() if line.strip()] or [""]
    last_line = next((line for line in lines if "SKIPPED" in line), lines[-1])
    result = {"suite": name, "seconds": int(seconds), "tests": 0, "failed": [], "skipped": 0}
    cases = []
    if report_path.is_file() and report_path.stat().st_size:
        report = json.loads(report_path.read_text())
        cases = [case for group in report["testsuites"] for case in group["testsuite"]]
        result["tests"] = len(cases)
        result["failed"] = [f"{name}.{case['name']}" for case in cases if case.get("failures")]
        result["skipped"] = sum(case.get("result") == "SKIPPED" for case in cases)
        result["properties"] = {
            f"{case['name']}.{key}": value
            for case in cases
            for key, value in case.items()
            if key not in ("name", "file", "line", "status", "result", "timestamp", "time", "classname", "failures")
        }
    if again.is_file():
        result["again"] = [line for line in again.read_text(errors="replace").splitlines() if line.startswith("after the crash")]
    crashed_test = crashed.read_text().strip() if crashed.is_file() else ""
    if crashed_test:
        result["tests"] += 1
        result["failed"].append(crashed_test)
    # GoogleTest counts tests that the missing device prevented as passed; they have no start time.
    if any(str(case.get("timestamp", "")).startswith("1970") for case in cases):
        result["result"] = "did not run: " + last_line
    elif code in TIMED_OUT:
        result["result"] = f"ran past its {seconds} s"
    elif crashed_test:
        result["result"] = f"crashed in {crashed_test}, exit code {code}: {last_line}"
        result["result"] += "" if cases else "; without it, the suite's other tests have no result"
    elif not cases:
        result["result"] = f"crashed, exit code {code}: {last_line}"
    else:
        result["result"] = "passed" if code == 0 and not result["failed"] else "failed"
    return result


def path_of(folder, name):
    return Path(folder) / f"{name.replace('/', '-')}.json"


def those_of(folder, names):
    return [json.loads(path_of(folder, name).read_text()) for name in names if path_of(folder, name).is_file()]


def suites(folder, names):
    found = those_of(folder, names)
    return {
        "tests": sum(one["tests"] for one in found),
        "failed": [name for one in found for name in one["failed"]],
        "skipped": sum(one["skipped"] for one in found),
        "bad_suites": {one["suite"]: one["result"] for one in found if one["result"] != "passed"},
        "again": [line for one in found for line in one.get("again", [])],
        "not_run": [name for name in names if not path_of(folder, name).is_file()],
        "seconds": sum(one["seconds"] for one in found),
        "suites": found,
    }


def group(name, code):
    result = {0: "clean", 99: "errors"}.get(int(code), f"exit code {code}")
    return {"group": name, "result": result}


def groups(folder, names):
    found = {one["group"]: one["result"] for one in those_of(folder, names)}
    return {"groups": {name: found.get(name, "not finished") for name in names}}


# For each word: its number of further arguments (None: one or more), whether it reads standard input, and its function.
WORDS = {
    "last": (0, True, lambda text: with_card(last(text))),
    "cards": (1, False, cards),
    "batch": (0, True, lambda text: last(text).get("batch", "")),
    "shape": (2, True, lambda b, t, text: {**last(text), "batch": int(b), "sequence": int(t)}),
    "beside": (1, True, lambda ours, text: {**last(text), "ours": json.loads(ours)}),
    "smoke": (2, True, smoke),
    "kernels": (0, True, kernels),
    "first_problem": (0, True, first_problem),
    "profile": (2, True, profile),
    "suite": (4, False, lambda *rest: with_card(suite(*rest))),
    "suites": (None, False, lambda folder, *names: suites(folder, names)),
    "crashed_test": (2, False, crashed_test),
    "group": (2, False, lambda name, code: with_card(group(name, code))),
    "groups": (None, False, lambda folder, *names: groups(folder, names)),
    "unavailable": (1, False, lambda reason: {"unavailable": reason}),
}


def main():
    word, *rest = sys.argv[1:] or [""]
    count, reads, make = WORDS.get(word, (-1, False, None))
    if len(rest) != count and (count is not None or not rest):
        sys.exit(__doc__)
    result = make(*rest, sys.stdin.read()) if reads else make(*rest)
    if isinstance(result, dict):
        print(json.dumps(result))
    else:
        print(*(result if isinstance(result, list) else [result]), sep="\n")


if __name__ == "__main__":
    main()
