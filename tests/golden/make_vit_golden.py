#!/usr/bin/env python3
"""Writes small ViT folders next to this script: config.json, preprocessor_config.json, model.safetensors, and
expected.safetensors with transformers' pixel values, labels, logits, loss and gradients. F32, eager attention, on
the CPU. Weights, gains and biases are random."""

import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

FOLDERS = {  # differences, batch
    "vit_a": (dict(), 3),
    "vit_b": (
        dict(num_hidden_layers=1, num_attention_heads=2, intermediate_size=20, image_size=9, patch_size=3,
             layer_norm_eps=1e-3),
        2,
    ),
}


def make(name, changes, batch):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(sum(map(ord, name)))
    labels = ["cat", "dog", "crane", "crane", "tench, Tinca tinca"]
    config = transformers.ViTConfig(
        **{
            **dict(
                hidden_size=16,
                num_hidden_layers=3,
                num_attention_heads=4,
                intermediate_size=32,
                image_size=16,
                patch_size=4,
                id2label=dict(enumerate(labels)),
                label2id={label: i for i, label in enumerate(labels)},
                attn_implementation="eager",
            ),
            **changes,
        }
    )
    model = transformers.ViTForImageClassification(config).float().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            vector = parameter.dim() == 1
            gain = vector and "norm" in key and key.endswith("weight")
            parameter.normal_(1.0 if gain else 0.0, 0.2 if vector else 0.3)
    pixels = torch.randn(batch, 3, config.image_size, config.image_size)
    label = torch.randint(len(labels), (batch,))
    result = model(pixel_values=pixels, labels=label)
    result.loss.backward()
    model.save_pretrained(folder)
    size = {"height": config.image_size, "width": config.image_size}
    ViTImageProcessorPil(size=size).save_pretrained(folder)
    names = {}  # as they are in the file
    saved = {key: value for key, value in model.state_dict().items()}
    from safetensors.torch import load_file

    for key, value in load_file(folder / "model.safetensors").items():
        same = [ours for ours, other in saved.items() if other.shape == value.shape and torch.equal(other, value)]
        assert len(same) == 1, (key, same)
        names[same[0]] = key
    expected = {
        "pixels": pixels.permute(0, 2, 3, 1).contiguous(),
        "label": label.int().contiguous(),
        "logits": result.logits.detach().contiguous(),
        "loss": result.loss.detach().reshape(1),
    }
    for key, parameter in model.named_parameters():
        expected["grad." + names[key]] = parameter.grad.contiguous()
    save_file(expected, folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


for name, (changes, batch) in FOLDERS.items():
    make(name, changes, batch)
