#!/usr/bin/env python3
"""Makes PEFT adapters of text classifiers, tests/golden/class_adapter_*, over the bases bert_a, roberta_a and llama_a.

Each folder has the logits that transformers and PEFT compute for one text, expected.safetensors. Written with
transformers 5, torch 2 and PEFT 0.21: python3 tests/golden/make_class_adapter_golden.py
"""

import json
import pathlib

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification

HERE = pathlib.Path(__file__).parent

# base, targets and modules_to_save; PEFT adds "classifier" and "score" to the latter
FOLDERS = {
    "bert": ("bert_a", ["query", "value"], ["pooler"]),
    "roberta": ("roberta_a", ["query", "dense"], None),
    "llama": ("llama_a", "all-linear", None),
}


def main():
    for name, (base, targets, saved) in FOLDERS.items():
        torch.manual_seed(1)
        model = AutoModelForSequenceClassification.from_pretrained(HERE / base, num_labels=3, torch_dtype=torch.float32)
        exclude = "classifier.dense" if name == "roberta" else None
        config = LoraConfig(
            task_type="SEQ_CLS",
            r=2,
            lora_alpha=8,
            target_modules=targets,
            exclude_modules=exclude,
            modules_to_save=saved,
        )
        model = get_peft_model(model, config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.normal_(0, 0.2)
        folder = HERE / f"class_adapter_{name}"
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        path = folder / "adapter_config.json"
        settings = json.loads(path.read_text())
        settings["base_model_name_or_path"] = base
        path.write_text(json.dumps(settings, indent=2) + "\n")
        tokens = torch.tensor([[5, 9, 2, 17, 11, 3, 8]])
        with torch.no_grad():
            logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
        save_file({"tokens": tokens.to(torch.int32), "logits": logits}, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
