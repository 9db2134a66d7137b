#!/usr/bin/env python3
"""Writes gpt2_a.safetensors and gpt2_b.safetensors next to this script; README.md describes their content.

The model is implemented here from the equations of the GPT-2 paper and compared with transformers' GPT2LMHeadModel,
so the goldens have two independent sources. All arithmetic is in double; stored values are rounded to F32 once.
"""

import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

SIZES = {
    "a": dict(layers=2, heads=2, width=32, context=16, vocabulary=61, batch=2, time=9, seed=11),
    "b": dict(layers=3, heads=2, width=24, context=24, vocabulary=101, batch=3, time=24, seed=12),
}
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1  # on two-dimensional tensors, including embeddings
STEPS = 3


def random_weights(size):
    """Weights by Hugging Face name; matrices in its Conv1D layout [in, out]. No value is zero or one by construction."""
    generator = torch.Generator().manual_seed(size["seed"])
    width = size["width"]

    def normal(shape, deviation, mean=0.0):
        return mean + deviation * torch.randn(shape, generator=generator)

    weights = {
        "wte.weight": normal((size["vocabulary"], width), 0.3),
        "wpe.weight": normal((size["context"], width), 0.1),
    }
    for layer in range(size["layers"]):
        prefix = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            weights[prefix + norm + ".weight"] = normal((width,), 0.2, mean=1.0)
            weights[prefix + norm + ".bias"] = normal((width,), 0.1)
        for name, rows, columns in (
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ):
            weights[prefix + name + ".weight"] = normal((rows, columns), 0.7 * rows**-0.5)
            weights[prefix + name + ".bias"] = normal((columns,), 0.1)
    weights["ln_f.weight"] = normal((width,), 0.2, mean=1.0)
    weights["ln_f.bias"] = normal((width,), 0.1)
    tokens = torch.randint(size["vocabulary"], (size["batch"], size["time"] + 1), generator=generator)
    return weights, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def logits_of(w, tokens, size):
    batch, time = tokens.shape
    heads, width = size["heads"], size["width"]

    def norm(x, name):
        return F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"], eps=1e-5)

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    hidden = torch.ones(time, time).triu(1).bool()
    x = w["wte.weight"][tokens] + w["wpe.weight"][:time]
    for layer in range(size["layers"]):
        prefix = f"h.{layer}."
        parts = linear(norm(x, prefix + "ln_1"), prefix + "attn.c_attn").split(width, dim=-1)
        q, k, v = (part.view(batch, time, heads, width // heads).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(-1, -2) * (width // heads) ** -0.5
        mixed = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1) @ v
        x = x + linear(mixed.transpose(1, 2).reshape(batch, time, width), prefix + "attn.c_proj")
        inner = F.gelu(linear(norm(x, prefix + "ln_2"), prefix + "mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, prefix + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def train(weights, tokens, targets, size, dtype):
    """Loss, logits and gradients at the given weights, then AdamW steps without clipping."""
    w = {name: value.to(dtype, copy=True).requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in w.values() if p.dim() == 2], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in w.values() if p.dim() != 2], "weight_decay": 0.0},
        ],
        **ADAMW,
    )
    losses, first = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = logits_of(w, tokens, size)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        if step == 0:
            first = {"loss": loss.detach().view(1), "logits": logits.detach()}
            first.update({"grad." + name: p.grad.clone() for name, p in w.items()})
        losses.append(loss.item())
        optimizer.step()
    first.update({"adamw3." + name: p.detach() for name, p in w.items()})
    first["adamw3.losses"] = torch.tensor(losses, dtype=dtype)
    return first


def check_against_transformers(weights, tokens, targets, size, logits, loss):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=size["layers"], n_head=size["heads"], n_embd=size["width"], n_positions=size["context"],
        vocab_size=size["vocabulary"], bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        attn_implementation="eager",
    )  # fmt: skip
    model = GPT2LMHeadModel(config).double().eval()
    state = {"transformer." + name: value.double() for name, value in weights.items()}
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state, strict=True)
    theirs = model(tokens).logits
    assert (theirs - logits).abs().max() < 1e-10, "logits differ from transformers"
    assert abs(F.cross_entropy(theirs.flatten(0, 1), targets.flatten()) - loss) < 1e-10


def main():
    torch.set_num_threads(1)
    for name, size in SIZES.items():
        weights, tokens, targets = random_weights(size)
        golden = train(weights, tokens, targets, size, torch.float64)
        check_against_transformers(weights, tokens, targets, size, golden["logits"], golden["loss"])
        single = train(weights, tokens, targets, size, torch.float32)
        worst = {}
        for key, value in golden.items():
            group = key.split(".")[0] if key.startswith(("grad", "adamw3")) else key
            if group == "adamw3" and key.endswith("c_attn.bias"):
                group = "adamw3 c_attn.bias"
            error = ((single[key].double() - value).norm() / value.norm()).item()
            worst[group] = max(worst.get(group, (0.0, "")), (error, key))
        tensors = {key: value.float().contiguous() for key, value in {**weights, **golden}.items()}
        tensors["tokens"] = tokens.int().contiguous()
        tensors["targets"] = targets.int().contiguous()
        metadata = {key: str(size[key]) for key in ("layers", "heads", "width", "context", "vocabulary")}
        path = pathlib.Path(__file__).parent / f"gpt2_{name}.safetensors"
        save_file(tensors, path, metadata=metadata)
        print(path.name, path.stat().st_size, "bytes, loss", golden["loss"].item())
        for group, (error, key) in worst.items():
            print(f"  F32 PyTorch against these: {group:18} relative error <= {error:.1e} ({key})")


if __name__ == "__main__":
    main()
