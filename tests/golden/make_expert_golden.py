#!/usr/bin/env python3
"""Writes a folder for each small model of MODELS beside itself: models with mixtures of experts as save_pretrained of transformers
writes them (config.json, model.safetensors), and expected.safetensors, what transformers computes from them; README.md says more.
Weights are random in F32, gains, biases and sinks too; what is computed from them is computed in F64 and rounded once. A seed under
which a token's choice of experts is nearly a tie is passed over. Names: only those folders."""

import contextlib
import itertools
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import make_hybrid_golden as hybrid
from make_hybrid_golden import ATTENTION, COMMON, logits_of

GAP = 1e-3  # between the score of a token's last chosen expert and that of the next
NO_TOKENS = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)  # the table's row of padding would get no gradient
QWEN = dict(ATTENTION, moe_intermediate_size=9)
MULTIPLIERS = {key: value for key, value in hybrid.GRANITE.items() if "multiplier" in key or key == "logits_scaling"}
MODELS = {  # class, what differs from COMMON, batch, time, tokens of a row's first document or 0
    "mixtral_a": (
        "Mixtral",
        dict(ATTENTION, head_dim=10, num_local_experts=5, num_experts_per_tok=2, intermediate_size=11, sliding_window=None),
        2,
        33,
        13,
    ),
    "qwen3_moe_a": (
        "Qwen3Moe",
        dict(
            QWEN,
            head_dim=14,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            mlp_only_layers=[0],
            router_aux_loss_coef=0.05,
        ),
        2,
        33,
        0,
    ),
    "olmoe_a": (
        "Olmoe",
        dict(ATTENTION, num_experts=6, num_experts_per_tok=3, intermediate_size=9, num_key_value_heads=4, clip_qkv=None),
        2,
        17,
        0,
    ),
    "granitemoe_a": (
        "GraniteMoe",
        dict(
            ATTENTION,
            **MULTIPLIERS,
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=11,
            tie_word_embeddings=True,
        ),
        2,
        33,
        0,
    ),
    "qwen2_moe_a": (
        "Qwen2Moe",
        dict(
            QWEN,
            num_experts=5,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            shared_expert_intermediate_size=13,
            decoder_sparse_step=2,
            mlp_only_layers=[1],
            num_hidden_layers=4,
        ),
        2,
        17,
        0,
    ),
}
AUX = ("mixtral_window", "qwen3_moe_a")  # with the loss of balance of their one layer with experts, too


class Routing:
    """Each layer's choices in the latest pass, and the smallest gap in all of them."""

    def __init__(self, model):
        self.layers, self.gap = {}, float("inf")
        for name, module in model.named_modules():
            if type(module).__name__.endswith("TopKRouter"):
                layer = int(name.split("layers.")[1].split(".")[0])
                module.register_forward_hook(lambda module, inputs, outputs, layer=layer: self.look(layer, *outputs))

    def look(self, layer, scores, weights, experts):
        best = scores.detach().topk(experts.shape[1] + 1).values
        self.gap = min(self.gap, float((best[:, -2] - best[:, -1]).min()))
        self.layers[layer] = (experts, weights.detach())


def model_of(family, config):
    kind = getattr(transformers, family + "ForCausalLM")
    return kind._from_config(config, attn_implementation="eager", experts_implementation="eager").float()


def draw(model):
    """Gains about 1, but about 0.4 before experts, since routers have weights of sd 1: the best expert is to leave some weight to
    the others."""
    hybrid.draw(model, model.config)
    with torch.no_grad():
        for name, module in model.named_modules():
            if type(module).__name__.endswith("TopKRouter"):
                for parameter in module.parameters():
                    parameter.normal_(0.0, 1.0)
                layer = name[: name.index(".", name.index("layers.") + len("layers."))]
                model.get_submodule(layer + ".post_attention_layernorm").weight.normal_(0.4, 0.1)
            if hasattr(module, "sinks"):
                module.sinks.normal_(0.0, 1.0)


@contextlib.contextmanager
def in_double():
    single = torch.float
    torch.float = torch.float64
    try:
        with hybrid.in_double():
            yield
    finally:
        torch.float = single


def as_saved(model, values):
    """Values of the model's parameters, under the names and in the shapes of its file."""
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.zeros_like(parameter) if values[key] is None else values[key])
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {key: parameter.grad for key, parameter in model.named_parameters()}


def single(tensor):
    return tensor.detach().to(torch.get_default_dtype()).contiguous()


def expected_of(name, model, routing, tokens, first):
    vocabulary = model.config.vocab_size
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    with in_double():
        logits = logits_of(model, inputs)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1))
        chosen = dict(routing.layers)
        expected = {"tokens": inputs.int(), "targets": targets.int(), "logits": single(logits), "loss": single(loss.reshape(1))}
        for layer, (experts, weights) in chosen.items():
            expected[f"experts.{layer}"] = experts.int()
            expected[f"weights.{layer}"] = single(weights)
        of_loss = gradients(model, loss)
        prompt = inputs[:1, :9]
        expected["prompt"] = prompt.int()
        expected["greedy"] = hybrid.greedy(model, prompt).int()
        if first > 0:  # the first row as two documents, each computed alone
            parts = [logits_of(model, part) for part in (inputs[:1, :first], inputs[:1, first:])]
            expected["document_logits"] = single(torch.cat(parts, dim=1))
            expected["document_tokens"] = torch.tensor([first, inputs.shape[1] - first], dtype=torch.int32)
        if name in AUX:
            told = model(input_ids=inputs, use_cache=False, output_router_logits=True)
            loss = torch.nn.functional.cross_entropy(told.logits.reshape(-1, vocabulary), targets.reshape(-1))
            loss = loss + model.config.router_aux_loss_coef * told.aux_loss
            expected["aux_loss"], expected["aux.loss"] = single(told.aux_loss.reshape(1)), single(loss.reshape(1))
            of_aux = gradients(model, loss)
    if name in AUX:
        kept = ("block_sparse_moe.gate.weight", "mlp.gate.weight", "self_attn.v_proj.weight")
        saved = as_saved(model, of_aux).items()
        expected.update({"aux.grad." + key: single(value) for key, value in saved if key.endswith(kept)})
    expected.update({"grad." + key: single(value) for key, value in as_saved(model, of_loss).items()})
    return {key: value.contiguous() for key, value in expected.items()}


def attempt(name, seed, family, changes, batch, time, first):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    config = getattr(transformers, family + "Config")(**{**COMMON, **NO_TOKENS, **changes})
    model = model_of(family, config)
    draw(model)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(config.vocab_size, (batch, time + 1))
    routing = Routing(model)
    expected = expected_of(name, model.double(), routing, tokens, first)
    assert routing.gap > GAP, "nearly a tie between experts"
    in_files = set(load_file(folder / "model.safetensors"))
    graded = {key.removeprefix("grad.") for key in expected if key.startswith("grad.")}
    assert in_files == graded, in_files ^ graded
    save_file(expected, folder / "expected.safetensors")
    size = sum(parameter.numel() for parameter in model.parameters())
    print(name, "seed", seed, "parameters", size, "loss", float(expected["loss"]), "gap", routing.gap)
    for layer in sorted(routing.layers):
        experts, weights = expected[f"experts.{layer}"], expected[f"weights.{layer}"]
        print("   layer", layer, "loads", experts.flatten().bincount().tolist(), "weights", weights.mean(0).tolist())


def make(name, *arguments):
    for seed in itertools.count(sum(map(ord, name)), 1000):
        try:
            return attempt(name, seed, *arguments)
        except AssertionError as error:
            if "nearly" not in str(error):
                raise
            print(name, "seed", seed, error)


if __name__ == "__main__":
    for name, arguments in MODELS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, *arguments)
