#!/usr/bin/env python3
"""Compares greedy texts of GGUF files here and in llama.cpp, also with llama.cpp settings that should not matter.

usage: compare_gguf_reading.py [--precision P] [--show] HYBRID FILE.gguf...    needs xllamacpp from PyPI

Prints one row and one column for each setting: how many of the ten texts are equal.
"""
import argparse
import json
import subprocess

import xllamacpp

PROMPTS = ["The capital of France is", "Once upon a time there was a", "def fibonacci(n):", "Water boils at",
           "My favourite colour is", "The three primary colours are", "Shakespeare wrote", "In 1969 the first",
           "A recipe for bread:", "The meaning of the word 'honest' is"]
TOKENS = 24


def plain_attention(params):
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32


def small_batches(params):
    plain_attention(params)
    params.n_batch = params.n_ubatch = 4


def without_repacking(params):
    plain_attention(params)
    params.no_extra_bufts = True


SETTINGS = {"llama.cpp": lambda params: None, "f32 keys and values": plain_attention, "batches of 4": small_batches,
            "no repacking": without_repacking}


def theirs(path, setting):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 512
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    setting(params)
    server = xllamacpp.Server(params)
    texts = []
    for prompt in PROMPTS:
        answer = server.handle_completions({"prompt": prompt, "n_predict": TOKENS, "temperature": 0,
                                            "cache_prompt": False})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        answer = answer[0] if isinstance(answer, list) else answer
        texts.append((answer["content"] if "content" in answer else answer["choices"][0]["text"]).rstrip("\n"))
    return texts


def ours(hybrid, path, precision):
    texts = []
    for prompt in PROMPTS:
        text = subprocess.run([hybrid, "sample", path, "--prompt", prompt, "--tokens", str(TOKENS), "--temperature",
                               "0", "--precision", precision], capture_output=True, text=True, check=True).stdout
        texts.append(text.removeprefix(prompt).rstrip("\n"))
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="file")
    parser.add_argument("--show", action="store_true", help="the texts that differ from llama.cpp's")
    parser.add_argument("hybrid")
    parser.add_argument("paths", nargs="+")
    asked = parser.parse_args()
    for path in asked.paths:
        texts = {name: theirs(path, setting) for name, setting in SETTINGS.items()}
        texts["here"] = ours(asked.hybrid, path, asked.precision)
        print(path)
        for name, row in texts.items():
            counts = [sum(a == b for a, b in zip(row, column)) for column in texts.values()]
            print(f"  {name:20}", *(f"{count:3}" for count in counts), flush=True)
        if asked.show:
            for prompt, here, there in zip(PROMPTS, texts["here"], texts["f32 keys and values"]):
                if here != there:
                    print(f"{prompt!r}\n  here  {here!r}\n  there {there!r}")


if __name__ == "__main__":
    main()
