#!/usr/bin/env python3
"""Adds this transformers version's default configuration of each family to config_classes.json next to this script.

Run it once with transformers 4.57 and once with 5.24; README.md describes the file.
"""

import json
import pathlib

import transformers

FILE = pathlib.Path(__file__).parent / "config_classes.json"
CLASSES = ("GPT2", "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "Gemma3Text", "Mamba2", "GraniteMoeHybrid", "Bamba", "Qwen3Next")
CLASSES += ("Bart", "Whisper", "ViT", "Bert", "DistilBert", "Roberta", "XLMRoberta", "ModernBert")
CLASSES += ("Qwen3_5Text", "Qwen3_5")  # only in version 5
DENSE = {"GraniteMoeHybrid": dict(num_local_experts=0), "Qwen3Next": dict(num_experts=0)}


def main():
    classes = {name: getattr(transformers, name + "Config", None) for name in CLASSES}
    configs = [kind(**DENSE.get(name, {})).to_dict() for name, kind in classes.items() if kind]
    written = {config["model_type"]: config for config in configs}
    written["generation_config"] = transformers.GenerationConfig().to_dict()
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    known[transformers.__version__] = written
    versions = [f'"{version}": {json.dumps(known[version])}' for version in sorted(known)]
    FILE.write_text("{" + ",\n".join(versions) + "}\n")


if __name__ == "__main__":
    main()
