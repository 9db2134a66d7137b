#!/usr/bin/env python3
"""Writes a folder lora_NAME next to this script for each adapter of experts. Those of EACH have one A and B per expert,
as PEFT with transformers 4 writes them; those of FUSED have one for all experts of a layer, as PEFT with
transformers 5 writes them. expected.safetensors contains their results on the base folder; README.md says more. A
and B are random in F32. Results are computed in F64 and rounded once. With names as arguments, writes only those
folders."""

import itertools
import json
import os
import pathlib
import re
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

from make_expert_golden import GAP, Routing, in_double, logits_of, single

HERE = pathlib.Path(__file__).parent.resolve()
os.chdir(HERE)  # the files name the base by its folder
PREFIX = "base_model.model."
STEPS = 20
EACH = {  # base, batch, time, LoraConfig; PEFT with transformers 5 finds its own part of them
    "mixtral": ("mixtral_a", 2, 17, dict(r=3, lora_alpha=5, target_modules=["q_proj", "w1", "w2", "w3"])),
    "qwen3_moe": ("qwen3_moe_a", 2, 17, dict(r=2, lora_alpha=6, target_modules=["down_proj", "gate_proj", "up_proj"])),
}
EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
FUSED = {
    "mixtral_fused": ("mixtral_a", 2, 17, dict(r=2, lora_alpha=3, target_modules=["q_proj", "w1", "w2", "w3"])),
    "qwen3_moe_fused": (
        "qwen3_moe_a",
        2,
        17,
        dict(r=3, lora_alpha=5, target_modules=[], target_parameters=["mlp." + name for name in EXPERTS]),
    ),
    "granitemoe_fused": (
        "granitemoe_a",
        2,
        17,
        dict(
            r=2,
            lora_alpha=6,
            target_modules=["o_proj", "q_proj"],
            target_parameters=["block_sparse_moe." + name for name in EXPERTS],
        ),
    ),
    "gpt_oss_fused": (
        "gpt_oss_a",
        2,
        17,
        dict(
            r=2,
            lora_alpha=3,
            target_modules=["k_proj"],
            target_parameters=["1.mlp." + name for name in EXPERTS],
        ),
    ),
}
PARTS = {"w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}  # gate, then up
PARTS.update({"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj", "down_proj": "down_proj"})


def base_of(base):
    eager = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.get_default_dtype())
    return transformers.AutoModelForCausalLM.from_pretrained(base, **eager).double()


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def train(logits_of, trained, inputs, targets):
    """Logits, gradients and twenty AdamW steps of A and B."""
    logits = logits_of()
    loss_of(logits, targets).backward()
    expected = {"tokens": inputs.int(), "targets": targets.int(), "logits": single(logits)}
    expected.update({"grad." + key: single(value.grad) for key, value in trained.items()})
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(logits_of(), targets)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
    expected["adamw.losses"] = single(torch.stack(losses))
    return {key: value.contiguous() for key, value in expected.items()}


def random(shape):
    return torch.randn(shape) * 0.2


def draw_each(base, settings):
    """A and B of each product in the base's file that the target modules name."""
    adapters = {}
    for key, weight in load_file(pathlib.Path(base) / "model.safetensors").items():
        name = key.removesuffix(".weight")
        if name.rsplit(".", 1)[-1] in settings["target_modules"]:
            adapters[PREFIX + name + ".lora_A.weight"] = random((settings["r"], weight.shape[1]))
            adapters[PREFIX + name + ".lora_B.weight"] = random((weight.shape[0], settings["r"]))
    return adapters


def merged(model, base, adapters, scale, taken=lambda name: True):
    """The model's weights plus the taken products of A and B, under the model's own names."""
    weights = dict(model.named_parameters())
    deltas = {}
    for key, a in adapters.items():
        if ".lora_A." in key and taken(key):
            name = key.removeprefix(PREFIX).removesuffix(".lora_A.weight")
            deltas[name] = scale * adapters[key.replace("lora_A", "lora_B")] @ a
    stacks = {}
    for name, delta in deltas.items():
        expert = re.fullmatch(r"(.*)\.experts\.(\d+)\.(\w+)", name)
        if not expert:
            weights[name + ".weight"] = weights[name + ".weight"] + delta
            continue
        layer = expert[1].replace("block_sparse_moe", "mlp")
        stacks.setdefault(f"{layer}.experts.{PARTS[expert[3]]}", {})[int(expert[2]), expert[3]] = delta
    for name, parts in stacks.items():
        experts = range(weights[name].shape[0])
        kinds = [kind for kind in PARTS if (0, kind) in parts]
        stack = torch.stack([torch.cat([parts[expert, kind] for kind in kinds]) for expert in experts])
        weights[name] = weights[name] + stack
    return weights


def write_config(folder, base, settings):
    config = peft.LoraConfig(task_type="CAUSAL_LM", base_model_name_or_path=base, inference_mode=True, **settings)
    config.save_pretrained(folder)


def sort_config(folder):
    path = folder / "adapter_config.json"
    told = json.loads(path.read_text())
    for key in ("target_modules", "target_parameters"):
        if isinstance(told[key], list):
            told[key] = sorted(told[key])  # a set in PEFT
    path.write_text(json.dumps(told, indent=2, sort_keys=True))


def make_each(folder, seed, base, batch, time, settings):
    torch.manual_seed(seed)
    adapters = draw_each(base, settings)
    folder.mkdir()
    save_file(adapters, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    write_config(folder, base, settings)
    sort_config(folder)
    model = base_of(base).requires_grad_(False)
    routing = Routing(model)
    tokens = torch.randint(model.config.vocab_size, (batch, time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    trained = {key: value.double().requires_grad_() for key, value in adapters.items()}
    scale = settings["lora_alpha"] / settings["r"]
    arguments = dict(input_ids=inputs, use_cache=False)

    def logits():
        weights = merged(model, base, trained, scale)
        return torch.func.functional_call(model, weights, kwargs=arguments).logits

    with in_double():
        expected = train(logits, trained, inputs, targets)
    check_each(folder, base, adapters, scale, inputs, expected["logits"])
    return expected, routing


def check_each(folder, base, adapters, scale, inputs, expected):
    """Checks that PEFT with transformers 5 adapts experts and attention to the merged weights. It loses products of
    dense layers that have the same name as those of experts."""
    again = peft.PeftModel.from_pretrained(base_of(base), folder).double()
    taken = lambda name: ".experts." in name or ".self_attn." in name
    model = base_of(base)
    weights = merged(model, base, {key: value.double() for key, value in adapters.items()}, scale, taken)
    arguments = dict(input_ids=inputs, use_cache=False)
    with torch.no_grad(), in_double():
        found = logits_of(again, inputs)
        wanted = torch.func.functional_call(model, weights, kwargs=arguments).logits
    print("   peft, from merged:", float((found - wanted).abs().max()))
    print("   peft, from all merged:", float((found - expected).abs().max()))
    assert (found - wanted).abs().max() < 1e-12


def make_fused(folder, seed, base, batch, time, settings):
    torch.manual_seed(seed)
    model = base_of(base).float()
    routing = Routing(model)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).train()
    trained = {key.replace(".default", ""): value for key, value in model.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for value in trained.values():
            value.copy_(random(value.shape))
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    sort_config(folder)
    assert set(load_file(folder / "adapter_model.safetensors")) == set(trained)
    tokens = torch.randint(model.config.vocab_size, (batch, time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    model.double()
    trained = {key.replace(".default", ""): value for key, value in model.named_parameters() if value.requires_grad}
    check_fused(folder, base, settings, inputs, model)
    with in_double():
        expected = train(lambda: logits_of(model, inputs), trained, inputs, targets)
    return expected, routing


def check_fused(folder, base, settings, inputs, adapted):
    """A's rows are the experts' one after another, and B's columns the ranks' one after another."""
    adapters = {key: value.double() for key, value in load_file(folder / "adapter_model.safetensors").items()}
    model = base_of(base)
    weights = dict(model.named_parameters())
    for key, a in adapters.items():
        if ".lora_A." not in key:
            continue
        name = key.removeprefix(PREFIX).removesuffix(".lora_A.weight")
        b, scale = adapters[key.replace("lora_A", "lora_B")], settings["lora_alpha"] / settings["r"]
        if not name.endswith((".experts", ".base_layer")):
            weights[name + ".weight"] = weights[name + ".weight"] + scale * b @ a
            continue
        inner = name.endswith(".base_layer")
        name = name.removesuffix(".base_layer") + (".gate_up_proj" if inner else ".down_proj")
        count = weights[name].shape[0]
        rank = a.shape[0] // count  # twice the config's rank if gate and up were named, with twice its alpha
        delta = [a[expert * rank :][:rank] for expert in range(count)]
        delta = scale * torch.stack([b[:, expert::count] @ rows for expert, rows in enumerate(delta)])
        weights[name] = weights[name] + (delta.transpose(1, 2) if "gpt_oss" in base else delta)
    with torch.no_grad(), in_double():
        found = logits_of(adapted, inputs)
        wanted = torch.func.functional_call(model, weights, kwargs=dict(input_ids=inputs, use_cache=False)).logits
    print("   peft, from merged:", float((found - wanted).abs().max()))
    assert (found - wanted).abs().max() < 1e-12


def make(name, how, *arguments):
    folder = HERE / ("lora_" + name)
    for seed in itertools.count(sum(map(ord, name)), 1000):
        shutil.rmtree(folder, ignore_errors=True)
        expected, routing = how(folder, seed, *arguments)
        if routing.gap > GAP:
            break
        print(name, "seed", seed, "nearly a tie between experts")
    save_file(expected, folder / "expected.safetensors")
    losses = expected["adamw.losses"]
    print(name, "seed", seed, "losses", float(losses[0]), float(losses[-1]), "gap", routing.gap)


if __name__ == "__main__":
    for how, cases in ((make_each, EACH), (make_fused, FUSED)):
        for name, arguments in cases.items():
            if not sys.argv[1:] or name in sys.argv[1:]:
                make(name, how, *arguments)
