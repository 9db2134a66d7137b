#!/usr/bin/env python3
"""Compares greedy texts of GGUF files here and in llama.cpp.

usage: compare_gguf_reading.py [--precision P] HYBRID FILE.gguf...    needs xllamacpp from PyPI
"""
import argparse
import json
import subprocess

import xllamacpp

PROMPTS = ["The capital of France is", "Once upon a time there was a", "def fibonacci(n):", "Water boils at",
           "My favorite color is", "The three primary colors are", "Shakespeare wrote", "In 1969 the first",
           "A recipe for bread:", "The meaning of the word 'honest' is"]
TOKENS = 24


def server_of(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 512
    params.warmup = False
    params.cpuparams.n_threads = 2
    return xllamacpp.Server(params)


def theirs(server, prompt):
    answer = server.handle_completions({"prompt": prompt, "n_predict": TOKENS, "temperature": 0, "cache_prompt": False})
    answer = json.loads(answer) if isinstance(answer, str) else answer
    answer = answer[0] if isinstance(answer, list) else answer
    return answer["content"] if "content" in answer else answer["choices"][0]["text"]


def ours(hybrid, path, prompt, precision):
    text = subprocess.run([hybrid, "sample", path, "--prompt", prompt, "--tokens", str(TOKENS), "--temperature", "0",
                           "--precision", precision],
                          capture_output=True, text=True, check=True).stdout
    return text.removeprefix(prompt)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("hybrid")
    parser.add_argument("paths", nargs="+")
    asked = parser.parse_args()
    for path in asked.paths:
        server = server_of(path)
        equal = 0
        for prompt in PROMPTS:
            here = ours(asked.hybrid, path, prompt, asked.precision).rstrip("\n")
            there = theirs(server, prompt).rstrip("\n")
            equal += here == there
            if here != there:
                print(f"{prompt!r}\n  here  {here!r}\n  there {there!r}")
        print(f"{path}: {equal} of {len(PROMPTS)} texts equal")


if __name__ == "__main__":
    main()
