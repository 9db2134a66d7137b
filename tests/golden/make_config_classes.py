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
CLASSES += ("Granite", "Olmo2", "Olmo3", "Glm4", "SmolLM3", "Phi3", "Exaone4")
CLASSES += ("Qwen3_5Text", "Qwen3_5", "Qwen3_5MoeText", "Qwen3_5Moe")  # only in version 5
CLASSES += ("Lfm2", "Lfm2Moe")
CLASSES += ("Ministral3", "Mistral3", "Gemma4Text", "Gemma4")  # only in version 5
CHANGED = {
    "GraniteMoeHybrid": dict(num_local_experts=0),
    "Olmo3": dict(rope_theta=5e5),
    "Lfm2Moe": dict(layer_types=["conv", "conv", "full_attention", "conv"] * 8),  # the class has no default
}


def main():
    classes = {name: getattr(transformers, name + "Config", None) for name in CLASSES}
    configs = [kind(**CHANGED.get(name, {})).to_dict() for name, kind in classes.items() if kind]
    written = {config["model_type"]: config for config in configs}
    written["generation_config"] = transformers.GenerationConfig().to_dict()
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    known[transformers.__version__] = written
    versions = [f'"{version}": {json.dumps(known[version])}' for version in sorted(known)]
    FILE.write_text("{" + ",\n".join(versions) + "}\n")


if __name__ == "__main__":
    main()
