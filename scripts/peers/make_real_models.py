#!/usr/bin/env python3
"""Converts two GGUF files to Hugging Face folders with transformers.

usage: make_real_models.py FOLDER
FOLDER contains smollm2.gguf and gemma3.gguf. FOLDER/smollm2 and FOLDER/gemma3 are written completely or not at all.
Needs torch, transformers and gguf.
"""

import pathlib
import shutil
import sys

from transformers import AutoModelForCausalLM, AutoTokenizer


def make(file, folder):
    if folder.exists():
        return
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    # The weights are F32 by now, but while marked as quantized they cannot be saved.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(unfinished)
    unfinished.rename(folder)


def main(folder):
    for name in ("smollm2", "gemma3"):
        make(folder / f"{name}.gguf", folder / name)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
