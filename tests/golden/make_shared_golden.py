#!/usr/bin/env python3
"""Writes a folder for each small model of MODELS next to this script, as make_hybrid_golden.py does: Ministral 3, Gemma 4,
and the models of Mistral 3 and Gemma 4 that contain them beside one of images. With names as arguments, writes only those.
"""

import pathlib
import shutil
import sys

import torch
import transformers
from make_hybrid_golden import greedy, in_double, logits_of
from safetensors.torch import load_file, save_file

COMMON = dict(
    hidden_size=12,
    intermediate_size=10,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=31,
    max_position_embeddings=48,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
YARN = dict(
    rope_type="yarn",
    rope_theta=1e4,
    factor=4.0,
    original_max_position_embeddings=8,
    mscale=1.0,
    mscale_all_dim=1.0,
    llama_4_scaling_beta=0.3,
)
MINISTRAL = dict(COMMON, head_dim=6, rope_parameters=YARN)
PIXTRAL = dict(hidden_size=8, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2, head_dim=4, image_size=8, patch_size=4)
FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA4 = dict(COMMON, head_dim=4, global_head_dim=8, sliding_window=7, hidden_size_per_layer_input=0, vocab_size_per_layer_input=31)
GEMMA4_VISION = dict(
    hidden_size=8, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=4, patch_size=2,
    position_embedding_size=16,
)  # fmt: skip
MODELS = {  # class, text configuration, configuration of images, batch, time, tokens of a row's first document or 0
    "ministral3_a": ("Ministral3", dict(MINISTRAL), None, 2, 33, 13),
    "ministral3_window": (
        "Ministral3",
        dict(MINISTRAL, tie_word_embeddings=True, sliding_window=5, num_key_value_heads=1, rope_parameters=dict(YARN, factor=2.0, original_max_position_embeddings=16)),
        None,
        1,
        33,
        0,
    ),
    "ministral3_images": ("Mistral3", dict(MINISTRAL, model_type="ministral3"), PIXTRAL, 1, 33, 0),
    "mistral3_images": ("Mistral3", dict(COMMON, head_dim=6, model_type="mistral", sliding_window=None), PIXTRAL, 1, 17, 0),
    "gemma4_a": (
        "Gemma4Text",
        dict(
            GEMMA4,
            num_hidden_layers=6,
            layer_types=[SLIDING, FULL, SLIDING, FULL, SLIDING, FULL],
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=3,
            vocab_size_per_layer_input=33,
            use_double_wide_mlp=True,
            final_logit_softcapping=3.0,
        ),
        None,
        2,
        33,
        13,
    ),
    "gemma4_alike": (
        "Gemma4Text",
        dict(
            GEMMA4,
            num_hidden_layers=3,
            layer_types=[SLIDING, FULL, FULL],
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            attention_bias=True,
            tie_word_embeddings=False,
        ),
        None,
        1,
        33,
        0,
    ),
    "gemma4_images": (
        "Gemma4",
        dict(GEMMA4, pad_token_id=30, layer_types=[FULL, FULL], num_kv_shared_layers=1, hidden_size_per_layer_input=4),
        GEMMA4_VISION,
        1,
        17,
        0,
    ),
}  # fmt: skip


def config_of(family, text, images):
    kind = getattr(transformers, family + "Config")
    if images is None:
        return kind(**text)
    vision = dict(images, model_type="pixtral") if family == "Mistral3" else images
    tied = family != "Mistral3"
    return kind(text_config=text, vision_config=vision, tie_word_embeddings=tied)


def draw(model):
    """Gains of about 1, layer scalars of about 0.7, everything else about 0. Gates of layer inputs are small: where GELU is
    almost 0, the norm after it would multiply rounding errors."""
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            gain = parameter.dim() == 1 and "norm" in key
            spread = 0.2 if parameter.dim() == 1 else 0.05 if "input_gate" in key else 0.3
            parameter.normal_(1.0 if gain else 0.0, spread)
        for key, buffer in model.named_buffers():
            if key.endswith("layer_scalar"):
                buffer.uniform_(0.5, 0.9)


def make(name, family, text, images, batch, time, first):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(sum(map(ord, name)))
    config = config_of(family, text, images)
    kind = "ForCausalLM" if images is None else "ForConditionalGeneration"
    kind = getattr(transformers, family.removesuffix("Text") + kind)
    model = kind._from_config(config, attn_implementation="eager").float()
    draw(model)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    vocabulary = text["vocab_size"]
    tokens = torch.randint(text["pad_token_id"] or vocabulary, (batch, time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    model.double()
    with in_double():
        logits = logits_of(model, inputs)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1))
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
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            expected["grad." + key] = parameter.grad.to(torch.get_default_dtype())
    for key, buffer in model.named_buffers():
        if key.endswith("layer_scalar"):
            expected["grad." + key] = torch.zeros_like(buffer, dtype=torch.get_default_dtype())
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    print(name, len(load_file(folder / "model.safetensors")), float(loss), expected["greedy"].tolist())


if __name__ == "__main__":
    for name, arguments in MODELS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, *arguments)
