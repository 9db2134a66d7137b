#!/usr/bin/env python3
"""Writes a folder for each small model of MODELS with state-space layers next to this script: config.json and
model.safetensors of transformers' save_pretrained, and expected.safetensors with transformers' results; README.md
says more. Weights, gains, biases, decays and steps are random in F32. Results are computed in F64 and rounded once.
With names as arguments, writes only those folders."""

import contextlib
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

GREEDY = 20
COMMON = dict(hidden_size=24, vocab_size=41, num_hidden_layers=2)
ATTENTION = dict(num_attention_heads=4, num_key_value_heads=2, intermediate_size=20, max_position_embeddings=64)
MAMBA = dict(
    mamba_n_heads=6, mamba_d_head=8, mamba_d_state=5, mamba_n_groups=2, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=8
)
GRANITE = dict(
    ATTENTION,
    **MAMBA,
    num_local_experts=0,
    shared_intermediate_size=20,
    embedding_multiplier=1.5,
    residual_multiplier=0.9,
    attention_multiplier=0.25,
    logits_scaling=3.0,
)
DELTA = dict(
    ATTENTION,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=6,
    linear_value_head_dim=5,
)
NARROW = dict(hidden_size=16, vocab_size=19)
QUARTER = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25)
VISION = dict(
    depth=1, hidden_size=16, intermediate_size=20, num_heads=2, out_hidden_size=24, num_position_embeddings=16, patch_size=2
)
LINEAR, FULL = "linear_attention", "full_attention"
MODELS = {  # class, differences from COMMON, batch, time, tokens of a row's first document or 0
    "mamba2_a": ("Mamba2", dict(num_heads=6, head_dim=8, state_size=5, n_groups=2, chunk_size=8), 2, 70, 29),
    "mamba2_tied": (
        "Mamba2",
        dict(
            num_heads=3,
            head_dim=16,
            state_size=7,
            n_groups=1,
            conv_kernel=3,
            use_bias=True,
            tie_word_embeddings=True,
            time_step_limit=(0.05, 0.9),
            chunk_size=8,
        ),
        1,
        33,
        0,
    ),
    "granite_hybrid_a": (
        "GraniteMoeHybrid",
        dict(GRANITE, mamba_n_groups=1, layer_types=[LINEAR, FULL, LINEAR], num_hidden_layers=3, tie_word_embeddings=True),
        2,
        33,
        13,
    ),
    "granite_hybrid_rope": (
        "GraniteMoeHybrid",
        dict(
            GRANITE,
            layer_types=[FULL, LINEAR],
            position_embedding_type="rope",
            mamba_proj_bias=True,
            mamba_conv_bias=False,
            attention_bias=True,
            mamba_d_head="auto",
        ),
        1,
        33,
        0,
    ),
    "granite_attention": (
        "GraniteMoeHybrid",
        dict(GRANITE, layer_types=[FULL, FULL], position_embedding_type="rope", tie_word_embeddings=True),
        1,
        17,
        0,
    ),
    "bamba_a": (
        "Bamba",
        dict(ATTENTION, **MAMBA, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3, attn_layer_indices=[1]),
        1,
        33,
        13,
    ),
    "qwen3_5_text": (
        "Qwen3_5Text",
        dict(DELTA, num_hidden_layers=4, tie_word_embeddings=True, max_position_embeddings=96, rope_parameters=QUARTER),
        1,
        70,
        29,
    ),
    "qwen3_5_images": ("Qwen3_5", dict(DELTA, layer_types=[FULL, LINEAR], rope_parameters=QUARTER), 1, 33, 0),
    "qwen3_next_a": (
        "Qwen3Next",
        dict(DELTA, layer_types=[LINEAR, FULL], num_experts=0, rope_parameters=QUARTER, tie_word_embeddings=True),
        1,
        33,
        0,
    ),
    "lfm2_a": (
        "Lfm2",
        dict(
            ATTENTION,
            **NARROW,
            intermediate_size=20,
            block_multiple_of=8,
            layer_types=["conv", "conv", FULL],
            num_hidden_layers=3,
        ),
        2,
        33,
        13,
    ),
    "lfm2_b": (
        "Lfm2",
        dict(
            ATTENTION,
            **NARROW,
            intermediate_size=10,
            block_auto_adjust_ff_dim=False,
            conv_bias=True,
            conv_L_cache=4,
            layer_types=[FULL, "conv"],
            rope_parameters=dict(rope_type="default", rope_theta=5000.0),
            tie_word_embeddings=False,
        ),
        1,
        33,
        0,
    ),
}
# Folders of version 4 and the Hub have other names, and a Python literal.
OLD_WORDS = {"granite_hybrid_rope": {LINEAR: "mamba", FULL: "attention"}}


def config_of(family, changes):
    if family != "Qwen3_5":
        return getattr(transformers, family + "Config")(**{**COMMON, **changes})
    return transformers.Qwen3_5Config(text_config={**COMMON, **changes}, vision_config=VISION)


def model_of(family, config):
    kind = "ForConditionalGeneration" if family == "Qwen3_5" else "ForCausalLM"
    return getattr(transformers, family.removesuffix("Text") + kind)._from_config(config, attn_implementation="eager").float()


def draw(model, config):
    """Gains of about 1 (or 0 if transformers adds 1), steps and decays in their ranges, everything else about 0."""
    one_plus = "qwen3" in config.model_type
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            name = key.rsplit(".", 1)[-1]
            if name == "A_log":
                parameter.uniform_(0.01, 2.0).log_()
            elif name == "dt_bias":
                parameter.uniform_(-3.0, 0.5)
            elif name == "D":
                parameter.normal_(1.0, 0.5)
            elif parameter.dim() == 1:
                gain = key.endswith("norm.weight") or "norm" in key and name == "weight"
                plain = not one_plus or "linear_attn.norm" in key or ".visual." in key
                parameter.normal_(1.0 if gain and plain else 0.0, 0.2)
            elif "conv1d" in key:
                parameter.normal_(0.0, 0.5)
            else:
                parameter.normal_(0.0, 0.2 if one_plus else 0.3)


@contextlib.contextmanager
def in_double():
    """Makes the models compute in F64 instead of F32."""
    single, to_single = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = single, to_single


def logits_of(model, tokens):
    return model(input_ids=tokens, use_cache=False).logits


def greedy(model, prompt):
    tokens = prompt.clone()
    with torch.no_grad():
        for _ in range(GREEDY):
            best = logits_of(model, tokens)[:, -1].topk(2)
            assert (best.values[:, 0] - best.values[:, 1]).min() > 1e-4, "nearly equal logits: draw other weights"
            tokens = torch.cat((tokens, best.indices[:, :1]), dim=1)
    return tokens[:, prompt.shape[1] :]


def old_words(folder, words):
    path = folder / "config.json"
    text = json.loads(path.read_text())
    text["layer_types"] = [words[word] for word in text["layer_types"]]
    text["time_step_limit"] = [0.0, float("inf")]
    path.write_text(json.dumps(text, indent=2) + "\n")


def make(name, family, changes, batch, time, first):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(sum(map(ord, name)))
    config = config_of(family, changes)
    text = config.get_text_config()
    text.pad_token_id = None  # otherwise the table's row of that token gets no gradient
    model = model_of(family, config)
    draw(model, config)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in OLD_WORDS:
        old_words(folder, OLD_WORDS[name])
    tokens = torch.randint(text.vocab_size, (batch, time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    model.double()
    with in_double():
        logits = logits_of(model, inputs)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, text.vocab_size), targets.reshape(-1))
        loss.backward()
        prompt = inputs[:1, :9]
        expected = {
            "tokens": inputs.int(),
            "targets": targets.int(),
            "logits": logits.detach().to(torch.get_default_dtype()),
            "loss": loss.detach().reshape(1).to(torch.get_default_dtype()),
            "prompt": prompt.int(),
            "greedy": greedy(model, prompt).int(),
        }
        if first > 0:  # the first row as two documents, each computed separately
            parts = [logits_of(model, part) for part in (inputs[:1, :first], inputs[:1, first:])]
            expected["document_logits"] = torch.cat(parts, dim=1).detach().to(torch.get_default_dtype())
            expected["document_tokens"] = torch.tensor([first, time - first], dtype=torch.int32)
    in_files = {key: key for key in load_file(folder / "model.safetensors")}
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert key in in_files or "lm_head" in key, key
            expected["grad." + key] = parameter.grad.to(torch.get_default_dtype())
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    size = sum(parameter.numel() for parameter in model.parameters())
    print(name, size, float(loss), expected["greedy"].tolist())


if __name__ == "__main__":
    for name, arguments in MODELS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, *arguments)
