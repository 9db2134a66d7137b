#!/usr/bin/env python3
"""Writes small Whisper folders next to this script, like make_family_golden.py does for decoders: config.json,
model.safetensors, and expected.safetensors with transformers' features, tokens, targets, logits, loss, gradients and
greedy tokens. F32, eager attention, on the CPU. Weights, gains and biases are random."""

import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

SIZES = {  # differences, batch, time
    "whisper_a": (dict(), 2, 11),
    "whisper_b": (
        dict(encoder_layers=1, decoder_layers=3, encoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=40),
        1,
        16,
    ),
}


def make(name, changes, batch, time):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(sum(map(ord, name)))
    config = transformers.WhisperConfig(
        **{
            **dict(
                vocab_size=61,
                num_mel_bins=6,
                d_model=16,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
                max_source_positions=13,
                max_target_positions=20,
                pad_token_id=60,
                bos_token_id=59,
                eos_token_id=60,
                decoder_start_token_id=58,
                suppress_tokens=None,
                begin_suppress_tokens=None,
                attn_implementation="eager",
            ),
            **changes,
        }
    )
    model = transformers.WhisperForConditionalGeneration(config).float().eval()
    model.model.decoder.embed_tokens.padding_idx = None  # otherwise the table's row of that token gets no gradient
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "encoder.embed_positions" in key:
                continue
            vector = parameter.dim() == 1
            gain = vector and "norm.weight" in key
            parameter.normal_(1.0 if gain else 0.0, 0.2 if vector else 0.3)
    features = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
    tokens = torch.randint(config.vocab_size, (batch, time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    logits = model(input_features=features, decoder_input_ids=inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size), targets.reshape(-1))
    loss.backward()
    model.save_pretrained(folder)
    greedy = inputs[:, :2]
    with torch.no_grad():
        for _ in range(6):
            following = model(input_features=features, decoder_input_ids=greedy).logits[:, -1].argmax(-1)
            greedy = torch.cat([greedy, following[:, None]], 1)
    (folder / "generation_config.json").unlink(missing_ok=True)
    expected = {
        "features": features.transpose(1, 2).contiguous(),
        "tokens": inputs.int().contiguous(),
        "targets": targets.int().contiguous(),
        "logits": logits.detach().contiguous(),
        "greedy": greedy.int().contiguous(),
        "loss": loss.detach().reshape(1),
        **{
            "grad." + key: value.grad.contiguous()
            for key, value in model.named_parameters()
            if value.grad is not None
        },
    }
    save_file(expected, folder / "expected.safetensors")
    print(name, float(loss))


for name, arguments in SIZES.items():
    make(name, *arguments)
