#!/usr/bin/env python3
"""Adds smoothed.safetensors to bart_a and whisper_a of make_bart_golden.py and make_whisper_golden.py: the targets of
expected.safetensors, some of them ignored (-1), with the loss and all gradients of transformers and PyTorch's
cross_entropy(label_smoothing=0.15). From F64, eager attention, on the CPU."""

import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent


def make(name, model, reads_of):
    folder = HERE / name
    model = model.from_pretrained(folder, attn_implementation="eager").double().eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # otherwise the table's row of that token gets no gradient
    expected = load_file(folder / "expected.safetensors")
    targets = expected["targets"].long()
    targets[0, :3] = targets[-1, -2:] = -1
    logits = model(**reads_of(expected), decoder_input_ids=expected["tokens"].long()).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=-1, label_smoothing=0.15)  # fmt: skip
    loss.backward()
    gradients = {"grad." + key: value.grad for key, value in model.named_parameters() if value.grad is not None}
    written = {"targets": targets.int(), "loss": loss.detach().reshape(1).float()}
    written |= {key: value.float().contiguous() for key, value in gradients.items()}
    save_file(written, folder / "smoothed.safetensors")
    print(name, float(loss))


def sources(expected):
    tokens = expected["source_tokens"].long()
    mask = torch.arange(tokens.shape[1])[None] < expected["source_lengths"][:, None]
    return dict(input_ids=tokens, attention_mask=mask.long())


make("bart_a", transformers.BartForConditionalGeneration, sources)
make(
    "whisper_a",
    transformers.WhisperForConditionalGeneration,
    lambda expected: dict(input_features=expected["features"].transpose(1, 2).double()),
)
