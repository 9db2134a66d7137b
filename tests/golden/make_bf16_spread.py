#!/usr/bin/env python3
"""Writes bf16_spread.json: for each folder of make_family_golden.py, make_hybrid_golden.py and make_dense_golden.py, and
each text model of make_shared_golden.py, the relative error of transformers' logits in BF16 against F32 (eager
attention)."""

import json
import pathlib

import torch
import transformers
from make_dense_golden import MODELS as DENSE
from make_family_golden import SIZES
from make_hybrid_golden import MODELS
from make_shared_golden import MODELS as SHARED
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent


def error_of(folder):
    expected = load_file(folder / "expected.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    with torch.no_grad():
        logits = model(expected["tokens"].long(), use_cache=False).logits.double()
    wanted = expected["logits"].double()
    return ((logits - wanted).norm() / wanted.norm()).item()


def main():
    texts = [name for name in SHARED if not name.endswith("images")]
    spread = {name: round(error_of(HERE / name), 6) for name in (*SIZES, *MODELS, *DENSE, *texts)}
    (HERE / "bf16_spread.json").write_text(json.dumps(spread, indent=1) + "\n")


if __name__ == "__main__":
    main()
