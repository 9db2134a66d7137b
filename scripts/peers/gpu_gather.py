#!/usr/bin/env python3
"""Makes one JSON line of what a part of gpu_check.sh left.

  gpu_gather.py last               the last whole JSON object that stands alone on a line of standard input
  gpu_gather.py shape B T          what `hybrid bench --json` prints on standard input, with batch and sequence
  gpu_gather.py smoke TEXT DOCTOR  nvidia-smi's line, the file of what `hybrid doctor` said, a bench result on standard input
  gpu_gather.py kernels            the lines of `cuda_benchmark --json` on standard input
  gpu_gather.py suite NAME CODE SECONDS REPORT LOG   one run of a suite: exit code, GoogleTest's report, what it said
  gpu_gather.py suites FOLDER NAME...                those of the named suites that lie in FOLDER
"""

import json
import sys
from pathlib import Path

TIMED_OUT = (124, 137)


def objects_of(text):
    """Objects that stand alone on a line, whole."""
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


def smoke(text, doctor_path, bench_text):
    doctor = Path(doctor_path).read_text(errors="replace") if Path(doctor_path).is_file() else ""
    step = objects_of(bench_text)
    return {"device": text, "name": text.split(",")[0].strip(), "doctor": doctor, "step": step[-1] if step else None}


def kernels(text):
    head, *timings = objects_of(text) or [None]
    if head is None or "rates" not in head:
        sys.exit("no rates")
    return {**head, "kernels": timings}


def suite(name, code, seconds, report_path, log_path):
    """What became of one suite. One that crashed has no report."""
    code = int(code)
    said = Path(log_path).read_text(errors="replace") if Path(log_path).is_file() else ""
    lines = [line for line in said.splitlines() if line.strip()] or [""]
    last_line = next((line for line in lines if "SKIPPED" in line), lines[-1])
    result = {"suite": name, "seconds": int(seconds), "tests": 0, "failed": [], "skipped": 0}
    cases = []
    if Path(report_path).is_file() and Path(report_path).stat().st_size:
        report = json.loads(Path(report_path).read_text())
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
    # GoogleTest calls tests passed that the missing device kept from running; they have no time of begin.
    if any(str(case.get("timestamp", "")).startswith("1970") for case in cases):
        result["result"] = "did not run: " + last_line
    elif code in TIMED_OUT:
        result["result"] = f"ran past its {seconds} s"
    elif not cases:
        result["result"] = f"crashed, exit code {code}: {last_line}"
    else:
        result["result"] = "passed" if code == 0 and not result["failed"] else "failed"
    return result


def suites(folder, names):
    paths = [Path(folder) / f"{name}.json" for name in names]
    found = [json.loads(path.read_text()) for path in paths if path.is_file()]
    return {
        "tests": sum(one["tests"] for one in found),
        "failed": [name for one in found for name in one["failed"]],
        "skipped": sum(one["skipped"] for one in found),
        "bad_suites": {one["suite"]: one["result"] for one in found if one["result"] != "passed"},
        "not_run": [name for name, path in zip(names, paths) if not path.is_file()],
        "seconds": sum(one["seconds"] for one in found),
        "suites": found,
    }


def main():
    what, *rest = sys.argv[1:] or [""]
    if what == "last" and not rest:
        result = last(sys.stdin.read())
    elif what == "shape" and len(rest) == 2:
        result = {**last(sys.stdin.read()), "batch": int(rest[0]), "sequence": int(rest[1])}
    elif what == "smoke" and len(rest) == 2:
        result = smoke(*rest, sys.stdin.read())
    elif what == "kernels" and not rest:
        result = kernels(sys.stdin.read())
    elif what == "suite" and len(rest) == 5:
        result = suite(*rest)
    elif what == "suites" and rest:
        result = suites(rest[0], rest[1:])
    else:
        sys.exit(__doc__)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
