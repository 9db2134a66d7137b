#!/usr/bin/env python3
"""Writes a folder for each small model of SIZES next to this script: config.json and model.safetensors of transformers'
save_pretrained, in shards if specified, and expected.safetensors with transformers' results; README.md says more.
F32, eager attention, on the CPU. Weights, gains and biases are random. With names as arguments, writes only those
folders."""

import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

COMMON = dict(
    hidden_size=32,
    intermediate_size=44,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=61,
    max_position_embeddings=48,
    attn_implementation="eager",
)
DYNAMIC = dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=1e4,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32)
LONG = dict(max_position_embeddings=128, num_hidden_layers=1, head_dim=12, intermediate_size=20, vocab_size=41)
SMALL = dict(intermediate_size=20, vocab_size=41)
WINDOWS = dict(use_sliding_window=True, sliding_window=8)
GEMMA3_ROPES = dict(
    full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
    sliding_attention=dict(rope_type="default", rope_theta=1e4),
)
SIZES = {  # class, differences from COMMON, batch, time, bytes per shard
    "llama_a": ("Llama", dict(head_dim=12, rms_norm_eps=1e-5), 2, 33, None),
    "llama_b": ("Llama", dict(tie_word_embeddings=True, num_key_value_heads=1, rope_theta=500.0), 3, 9, 12_000),
    "llama_biases": ("Llama", dict(SMALL, attention_bias=True, mlp_bias=True, num_hidden_layers=1), 1, 17, None),
    "llama_linear": ("Llama", dict(LONG, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=3.0)), 1, 65, None),
    "llama_dynamic": ("Llama", dict(LONG, max_position_embeddings=33, rope_parameters=DYNAMIC), 1, 65, None),
    "llama_llama3": ("Llama", dict(LONG, rope_parameters=LLAMA3), 1, 65, None),
    "llama_yarn": ("Llama", dict(LONG, rope_parameters=YARN), 1, 65, None),
    "llama_yarn_plain": (
        "Llama",
        dict(LONG, rope_parameters=dict(YARN, truncate=False, beta_fast=8, mscale=0.7, mscale_all_dim=1.3)),
        1,
        65,
        None,
    ),
    "mistral_a": ("Mistral", dict(SMALL, head_dim=10, sliding_window=8), 2, 33, None),
    "mistral_full": ("Mistral", dict(SMALL, num_hidden_layers=1, sliding_window=None), 1, 9, None),
    "qwen2_a": ("Qwen2", dict(SMALL), 2, 17, None),
    "qwen2_windows": ("Qwen2", dict(SMALL, **WINDOWS, num_hidden_layers=3, max_window_layers=1), 1, 33, None),
    "qwen3_a": ("Qwen3", dict(SMALL, head_dim=14, tie_word_embeddings=True), 2, 17, None),
    "qwen3_biases": (
        "Qwen3",
        dict(SMALL, **WINDOWS, head_dim=6, attention_bias=True, layer_types=["sliding_attention", "full_attention"]),
        1,
        33,
        None,
    ),
    "gemma2_a": (
        "Gemma2",
        dict(
            SMALL,
            head_dim=12,
            sliding_window=8,
            query_pre_attn_scalar=24,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
        2,
        33,
        None,
    ),
    "gemma2_plain": (
        "Gemma2",
        dict(
            SMALL,
            head_dim=6,
            num_hidden_layers=1,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            tie_word_embeddings=False,
        ),
        1,
        9,
        None,
    ),
    "gemma3_a": ("Gemma3Text", dict(SMALL, head_dim=12, sliding_window=8, num_hidden_layers=6), 1, 33, None),
    "gemma3_linear": (
        "Gemma3Text",
        dict(
            SMALL,
            head_dim=8,
            sliding_window=5,
            query_pre_attn_scalar=24,
            final_logit_softcapping=3.0,
            layer_types=["full_attention", "sliding_attention"],
            rope_parameters=GEMMA3_ROPES,
        ),
        1,
        17,
        None,
    ),
}


def make(name, family, changes, batch, time, shard):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(sum(map(ord, name)))
    config = getattr(transformers, family + "Config")(**{**COMMON, **changes})
    config.pad_token_id = None  # otherwise the table's row of that token gets no gradient
    model = getattr(transformers, family.removesuffix("Text") + "ForCausalLM")(config).float()
    one_plus = 0.0 if family.startswith("Gemma") else 1.0
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            vector = parameter.dim() == 1
            gain = vector and key.endswith(".weight")
            parameter.normal_(one_plus if gain else 0.0, 0.2 if vector else 0.3)
    tokens = torch.randint(config.vocab_size, (batch, time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    logits = model(inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size), targets.reshape(-1))
    loss.backward()
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    expected = {
        "tokens": inputs.int().contiguous(),
        "targets": targets.int().contiguous(),
        "logits": logits.detach().contiguous(),
        "loss": loss.detach().reshape(1),
        **{"grad." + key: value.grad.contiguous() for key, value in model.named_parameters()},
    }
    save_file(expected, folder / "expected.safetensors")
    print(name, float(loss))


if __name__ == "__main__":
    for name, arguments in SIZES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, *arguments)
