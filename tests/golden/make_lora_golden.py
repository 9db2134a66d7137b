#!/usr/bin/env python3
"""Writes a folder lora_NAME for each adapter of CASES, and peft_NAME for each of LOGITS_ALONE, next to this script: the
output of PEFT's save_pretrained, and expected.safetensors with PEFT's results on the base folder; README.md says
more. F32, on the CPU. A and B are random. Also makes gpt2_c, the only base that make_family_golden.py and
make_hybrid_golden.py do not make."""

import json
import os
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent.resolve()
os.chdir(HERE)  # the files name the base by its folder
STEPS = 20
CASES = {  # base, batch, time, LoraConfig
    "llama": ("llama_a", 2, 33, dict(r=4, lora_alpha=6, target_modules="all-linear")),
    "rslora": ("llama_b", 3, 9, dict(r=3, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "v_proj", "up_proj", "o_proj"])),
    "qwen2": ("qwen2_a", 2, 12, dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "down_proj"])),
    "gemma2": ("gemma2_a", 2, 14, dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "dora": ("llama_b", 2, 9, dict(r=3, lora_alpha=4, use_dora=True, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"])),
    "dora_gpt2": ("gpt2_c", 2, 7, dict(r=2, lora_alpha=3, use_dora=True, fan_in_fan_out=True, target_modules=["c_attn", "c_fc"])),
    "rsdora": ("llama_b", 2, 9, dict(r=3, lora_alpha=4, use_dora=True, use_rslora=True, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"])),
    "ministral3": ("ministral3_a", 2, 17, dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "gemma4": ("gemma4_alike", 2, 17, dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "gpt2": ("gpt2_c", 2, 17, dict(r=2, lora_alpha=3, fan_in_fan_out=True, target_modules=["c_attn", "c_fc", "mlp.c_proj"])),
}

NAMES = ["q_proj", "k_proj", "v_proj", "up_proj"]
LOGITS_ALONE = {  # base, LoraConfig, save_embedding_layers: several ranks, patterns, or more than adapters of products
    "patterns": ("llama_a", dict(r=4, lora_alpha=6, target_modules=r"model\.layers\.\d+\.(?P<part>self_attn|mlp)\.(q|k|v|gate)_proj",
                                 exclude_modules=r".*\.0\.self_attn\.k_proj", rank_pattern={"q_proj": 2, r"layers\.1\.self_attn\.v_proj": 7},
                                 alpha_pattern={"gate_proj": 3, ".*v_proj": 5}), "auto"),
    "rank_rslora": ("llama_b", dict(r=4, lora_alpha=6, use_rslora=True, target_modules=NAMES, rank_pattern={"q_proj": 2, "v_proj": 6},
                                    alpha_pattern={"v_proj": 3}), "auto"),
    "rank_dora": ("llama_a", dict(r=2, lora_alpha=6, use_dora=True, target_modules=NAMES, exclude_modules=["0.mlp.up_proj"],
                                  rank_pattern={"k_proj": 5}), "auto"),
    "layers": ("llama_a", dict(r=3, lora_alpha=6, target_modules=NAMES, layers_to_transform=1, layers_pattern="layers"), "auto"),
    "whole": ("llama_a", dict(r=2, lora_alpha=6, target_modules=NAMES, modules_to_save=["lm_head", "embed_tokens", "norm", "o_proj"]), "auto"),
    "head": ("llama_b", dict(r=2, lora_alpha=6, target_modules=[*NAMES, "lm_head"]), "auto"),
    "table": ("llama_b", dict(r=2, lora_alpha=6, target_modules=[*NAMES, "embed_tokens"]), "auto"),
    "whole_head": ("llama_b", dict(r=2, lora_alpha=6, target_modules=NAMES, modules_to_save=["lm_head"]), "auto"),
    "whole_table": ("llama_b", dict(r=2, lora_alpha=6, target_modules=NAMES, modules_to_save=["embed_tokens"]), "auto"),
    "whole_tied": ("llama_b", dict(r=2, lora_alpha=6, target_modules=NAMES, modules_to_save=["embed_tokens"], ensure_weight_tying=True), "auto"),
    "tied": ("llama_b", dict(r=2, lora_alpha=6, target_modules=[*NAMES, "embed_tokens"], ensure_weight_tying=True), "auto"),
    "tied_head": ("llama_b", dict(r=2, lora_alpha=6, target_modules=[*NAMES, "lm_head"], ensure_weight_tying=True), False),
    "tied_dora": ("llama_b", dict(r=2, lora_alpha=6, use_dora=True, target_modules=[*NAMES, "embed_tokens"], ensure_weight_tying=True), "auto"),
    "dora_head": ("llama_a", dict(r=2, lora_alpha=6, use_dora=True, use_rslora=True, target_modules=[*NAMES, "lm_head"]), "auto"),
    "dora_table": ("llama_b", dict(r=2, lora_alpha=6, use_dora=True, target_modules=[*NAMES, "embed_tokens"]), "auto"),
    "positions": ("gpt2_c", dict(r=2, lora_alpha=6, fan_in_fan_out=True, target_modules=["c_attn", "wpe"]), "auto"),
    "hybrid": ("granite_hybrid_a", dict(r=3, lora_alpha=6, target_modules="all-linear"), "auto"),
    "gated": ("qwen3_next_a", dict(r=3, lora_alpha=6, use_dora=True, target_modules=["q_proj", "v_proj", "in_proj_qkvz", "in_proj_ba", "out_proj"]), "auto"),
    "images": ("qwen3_5_images", dict(r=3, lora_alpha=6, target_modules=r".*\.language_model\..*\.(q_proj|in_proj_qkv|down_proj)",
                                      rank_pattern={r"language_model\.layers\.1\.mlp\.down_proj": 2}), "auto"),
    "images_mistral": ("ministral3_images", dict(r=2, lora_alpha=6, target_modules=["q_proj", "o_proj", "down_proj"],
                                                 exclude_modules=r".*vision_tower.*"), "auto"),
    "images_gemma": ("gemma4_images", dict(r=2, lora_alpha=6, target_modules=r".*\.language_model\..*(q_proj|up_proj|per_layer_input_gate|_projection)"), "auto"),
    "inputs": ("gemma4_a", dict(r=2, lora_alpha=6, target_modules="all-linear"), "auto"),
    "embedding_layers": ("llama_b", dict(r=2, lora_alpha=6, target_modules=NAMES), True),
    "grown": ("llama_a", dict(r=2, lora_alpha=6, target_modules=NAMES, modules_to_save=["lm_head", "embed_tokens"]), "auto"),
    "grown_tied": ("llama_b", dict(r=2, lora_alpha=6, target_modules=NAMES), True),
    "shrunk": ("llama_a", dict(r=2, lora_alpha=6, target_modules=NAMES, modules_to_save=["lm_head", "embed_tokens"]), "auto"),
}
MORE_TOKENS = {"grown": 3, "grown_tied": 2, "shrunk": -4}  # relative to the base


def make_gpt2():
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=24,
        n_positions=24,
        vocab_size=61,
        embd_pdrop=0,
        resid_pdrop=0,
        attn_pdrop=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    shutil.rmtree(HERE / "gpt2_c", ignore_errors=True)
    model.save_pretrained(HERE / "gpt2_c")
    (HERE / "gpt2_c" / "generation_config.json").unlink(missing_ok=True)


def key_of(name):
    return name.replace(".default", "")


def make(name, base, batch, time, settings):
    torch.manual_seed(sum(map(ord, name)))
    folder = HERE / ("lora_" + name)
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager", dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).train()
    trained = {key_of(key): value for key, value in model.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for key, value in trained.items():
            if "magnitude" in key:
                value.mul_(1 + 0.2 * torch.randn_like(value))
            else:
                value.normal_(0, 0.2)
    write_adapter(model, folder)
    vocabulary = model.config.vocab_size
    tokens = torch.randint(vocabulary, (batch, time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    def loss_of():
        logits = model(inputs).logits
        return logits, torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1))

    logits, loss = loss_of()
    loss.backward()
    expected = {
        "tokens": inputs.int().contiguous(),
        "targets": targets.int().contiguous(),
        "logits": logits.detach().contiguous(),
        **{"grad." + key: value.grad.clone() for key, value in trained.items()},
    }
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of()
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
    expected["adamw.losses"] = torch.stack(losses)
    save_file(expected, folder / "expected.safetensors")
    print(name, [round(float(loss), 4) for loss in losses], sorted(trained)[:2])


def write_adapter(model, folder, **settings):
    model.save_pretrained(folder, **settings)
    (folder / "README.md").unlink(missing_ok=True)
    told = json.loads((folder / "adapter_config.json").read_text())
    for key in ("target_modules", "exclude_modules"):
        if isinstance(told[key], list):
            told[key] = sorted(told[key])  # a set in PEFT
    (folder / "adapter_config.json").write_text(json.dumps(told, indent=2, sort_keys=True))


def make_logits(name, base, settings, embedding_layers):
    torch.manual_seed(sum(map(ord, name)))
    folder = HERE / ("peft_" + name)
    shutil.rmtree(folder, ignore_errors=True)
    kind = transformers.AutoModelForImageTextToText if name.startswith("images") else transformers.AutoModelForCausalLM

    def load():
        model = kind.from_pretrained(base, attn_implementation="eager", dtype=torch.float32)
        if name in MORE_TOKENS:
            model.resize_token_embeddings(model.config.vocab_size + MORE_TOKENS[name], mean_resizing=False)
        return model

    model = peft.get_peft_model(load(), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if value.requires_grad and "magnitude" not in key:
                value.add_(torch.randn_like(value) * 0.2)
            elif value.requires_grad and name != "rank_dora":
                value.mul_(1 + 0.2 * torch.randn_like(value))
        if embedding_layers is True:
            model.get_input_embeddings().weight.add_(torch.randn(model.get_input_embeddings().weight.shape) * 0.2)
    write_adapter(model, folder, save_embedding_layers=embedding_layers)
    again = peft.PeftModel.from_pretrained(load(), folder).eval()
    tokens = torch.randint(model.config.get_text_config().vocab_size, (2, 9))
    save_file({"tokens": tokens.int(), "logits": again(input_ids=tokens).logits.detach().contiguous()}, folder / "expected.safetensors")


only = sys.argv[1:]  # names of cases; default: all
if not only:
    make_gpt2()
for name, arguments in CASES.items():
    if not only or name in only:
        make(name, *arguments)
for name, arguments in LOGITS_ALONE.items():
    if not only or name in only:
        make_logits(name, *arguments)
