#!/usr/bin/env python3
"""Compares GGUF files of an embedding model here, in llama.cpp and in sentence-transformers.

usage: compare_gguf_encoders.py HYBRID MODEL SCRATCH [--file GGUF] [--type f32 ...]

MODEL is a folder of sentence-transformers. Exports it to SCRATCH in each type; --file adds a file of llama.cpp's
converter. For each file, prints the largest difference of normalized embeddings and the smallest cosine: `hybrid
predict` with the file against sentence-transformers in f32, and llama.cpp against both. Needs numpy,
sentence-transformers and xllamacpp from PyPI.
"""
import argparse
import json
import subprocess
from pathlib import Path

import numpy
import xllamacpp
from sentence_transformers import SentenceTransformer

TEXTS = ["The lathe is called Bertha.", "Which machine cuts wood?", "a", "naïve café, Ångström!", "10.5 % of 世界 people",
         "unaffable embeddings: tokenization of rare words", "don't (ever) stop", "UPPER and lower CASE",
         "Embeddings of longer texts average over more tokens, so that rounding errors of single products matter less. " * 3]


def ours(hybrid, model, scratch):
    data, output = scratch / "texts.jsonl", scratch / "embeddings.npy"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    output.unlink(missing_ok=True)
    subprocess.run([hybrid, "predict", str(model), "--data", str(data), "--output", str(output), "--device", "cpu"], check=True,
                   capture_output=True)
    return numpy.load(output)


def theirs(path):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.embedding = True
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    answer = xllamacpp.Server(params).handle_embeddings({"input": TEXTS})
    answer = json.loads(answer) if isinstance(answer, str) else answer
    return numpy.array([row["embedding"] for row in answer["data"]], dtype=numpy.float32)


def difference(a, b):
    return f"{numpy.abs(a - b).max():8.1e} {(a * b).sum(axis=1).min():.7f}"


def main():
    parser = argparse.ArgumentParser()
    for name in ("hybrid", "model", "scratch"):
        parser.add_argument(name)
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--type", nargs="*", default=["f32", "f16", "q8_0"])
    asked = parser.parse_args()
    scratch = Path(asked.scratch)
    scratch.mkdir(exist_ok=True)
    wanted = SentenceTransformer(asked.model, device="cpu").encode(TEXTS, normalize_embeddings=True)
    print("largest difference and smallest cosine of", len(TEXTS), "texts")
    print(f"{'':12} here, sentence-t.   llama.cpp, sentence-t.   llama.cpp, here")
    print(f"{'folder':12} {difference(ours(asked.hybrid, asked.model, scratch), wanted)}")
    files = {Path(path).name: Path(path) for path in asked.file}
    for kind in asked.type:
        files[kind] = scratch / f"{kind}.gguf"
        files[kind].unlink(missing_ok=True)
        subprocess.run([asked.hybrid, "export", asked.model, "--output", str(files[kind]), "--type", kind], check=True)
    for name, path in files.items():
        here, there = ours(asked.hybrid, path, scratch), theirs(path)
        print(f"{name:12} {difference(here, wanted)}   {difference(there, wanted)}   {difference(there, here)}", flush=True)


if __name__ == "__main__":
    main()
