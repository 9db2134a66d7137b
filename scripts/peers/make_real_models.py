#!/usr/bin/env python3
"""Makes Hugging Face folders of two GGUF files by transformers.

usage: make_real_models.py FOLDER
FOLDER holds smollm2.gguf and gemma3.gguf; FOLDER/smollm2 and FOLDER/gemma3 appear whole or not at all. Needs torch,
transformers and gguf.
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
    # The weights are F32 by now; what says that they are quantised keeps them from being saved.
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
