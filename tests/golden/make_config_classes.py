#!/usr/bin/env python3
"""Adds to config_classes.json beside itself what this version of transformers writes of each family's default configuration.

Run it once with transformers 4.57 and once with 5.24; README.md says what the file holds.
"""

import json
import pathlib

import transformers

FILE = pathlib.Path(__file__).parent / "config_classes.json"
CLASSES = ("GPT2", "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "Gemma3Text")


def main():
    configs = [getattr(transformers, name + "Config")().to_dict() for name in CLASSES]
    written = {config["model_type"]: config for config in configs}
    written["generation_config"] = transformers.GenerationConfig().to_dict()
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    known[transformers.__version__] = written
    versions = [f'"{version}": {json.dumps(known[version])}' for version in sorted(known)]
    FILE.write_text("{" + ",\n".join(versions) + "}\n")


if __name__ == "__main__":
    main()
