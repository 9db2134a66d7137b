#!/usr/bin/env python3
"""Times a training step of GPT-2 124M, or of a model of transformers, in PyTorch, in each mode a user would try.

Prints one JSON object per line: peer, mode, precision, batch, sequence, tokens_per_second, step_seconds, peak_bytes
(of the process so far on the CPU, of the mode's tensors on CUDA).
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
from gpt2_pytorch import GPT2

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 12, 12, 768, 1024, 50257
PADDED_VOCABULARY = 50304  # as nanoGPT and llm.c do; faster than 50257


def multiplies_bfloat16(device):
    if device == "cuda":
        return True
    with open("/proc/cpuinfo") as info:
        flags = info.read().split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


class FromTransformers(torch.nn.Module):
    """A model of transformers with the next token's cross-entropy."""

    def __init__(self, config):
        super().__init__()
        from transformers import AutoModelForCausalLM

        config.use_cache = False
        self.model = AutoModelForCausalLM.from_config(config)

    def forward(self, tokens, targets):
        logits = self.model(tokens).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def llama():
    """The preset llama-125m."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=PADDED_VOCABULARY, hidden_size=WIDTH, intermediate_size=2048, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=4, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
    )  # fmt: skip


def mamba2():
    """The preset mamba2-130m."""
    from transformers import Mamba2Config

    return Mamba2Config(
        vocab_size=50288, hidden_size=768, num_hidden_layers=24, num_heads=24, head_dim=64, state_size=128, n_groups=1,
        expand=2, tie_word_embeddings=True,
    )  # fmt: skip


def granite():
    """The preset granite-4.0-h-350m."""
    from transformers import GraniteMoeHybridConfig

    attention = (10, 13, 17, 27)
    return GraniteMoeHybridConfig(
        vocab_size=100352, hidden_size=768, intermediate_size=2048, shared_intermediate_size=2048, num_hidden_layers=32,
        num_attention_heads=12, num_key_value_heads=4, num_local_experts=0, num_experts_per_tok=0, mamba_n_heads=48,
        mamba_d_head=32, mamba_d_state=128, mamba_n_groups=1, mamba_expand=2, embedding_multiplier=12,
        residual_multiplier=0.246, attention_multiplier=1 / 64, logits_scaling=3, tie_word_embeddings=True,
        layer_types=["attention" if i in attention else "mamba" for i in range(32)],
    )  # fmt: skip


def qwen3_5():
    """Eight layers of Qwen3.5 0.8B, with the vocabulary of GPT-2."""
    from transformers import Qwen3_5TextConfig

    return Qwen3_5TextConfig(
        vocab_size=PADDED_VOCABULARY, hidden_size=1024, intermediate_size=3584, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16,
        linear_key_head_dim=128, linear_value_head_dim=128, tie_word_embeddings=True,
    )  # fmt: skip


def granite_moe():
    """Four layers of the preset granite-moe-1b."""
    from transformers import GraniteMoeConfig

    return GraniteMoeConfig(
        vocab_size=49152, hidden_size=1024, intermediate_size=512, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=8, num_local_experts=32, num_experts_per_tok=8, embedding_multiplier=12,
        residual_multiplier=0.22, attention_multiplier=1 / 64, logits_scaling=6, tie_word_embeddings=True,
    )  # fmt: skip


CONFIGS = {
    "llama": llama, "mamba2-130m": mamba2, "granite-4.0-h-350m": granite, "qwen3_5": qwen3_5,
    "granite-moe-1b": granite_moe,
}  # fmt: skip


def peak_bytes(device):
    """Peak memory: of this process since it began, or on CUDA of tensors since reset_peak_memory_stats."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def modes(device):
    """Returns name, precision, fused AdamW and torch.compile of each mode."""
    yield "eager", "fp32", False, False
    yield "eager, fused AdamW", "fp32", True, False
    yield "compiled, fused AdamW", "fp32", True, True
    if multiplies_bfloat16(device):
        yield "autocast, fused AdamW", "bf16", True, False
        yield "autocast, compiled, fused AdamW", "bf16", True, True


def step_seconds(arguments, sequence, precision, fused, compiled):
    torch.manual_seed(1)
    torch._dynamo.reset()
    if arguments.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if arguments.model == "gpt2":
        model, vocabulary = GPT2(LAYERS, HEADS, WIDTH, CONTEXT, PADDED_VOCABULARY), VOCABULARY
    else:
        config = CONFIGS[arguments.model]()
        model, vocabulary = FromTransformers(config), min(VOCABULARY, config.vocab_size)
    model = model.to(arguments.device)
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0},
        ],
        lr=1e-4, betas=(0.9, 0.95), fused=fused,
    )  # fmt: skip
    run = torch.compile(model) if compiled else model
    tokens = torch.randint(vocabulary, (arguments.batch, sequence + 1), device=arguments.device)
    seconds = []
    for _ in range(arguments.warm_up + arguments.steps):
        start = time.perf_counter()
        with torch.autocast(arguments.device, torch.bfloat16, enabled=precision == "bf16"):
            loss = run(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
    return seconds[arguments.warm_up :]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["gpt2", *CONFIGS], default="gpt2", help="all but gpt2 need transformers")
    parser.add_argument("--mode", help="the only one to time, such as \"eager\"")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", default="64,256", help="lengths, separated by commas")
    parser.add_argument("--steps", type=int, default=7, help="timed steps; the median counts")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for sequence in map(int, arguments.sequence.split(",")):
        for mode, precision, fused, compiled in modes(arguments.device):
            if arguments.mode not in (None, mode):
                continue
            print(f"PyTorch {torch.__version__}: {mode}, T = {sequence}", file=sys.stderr, flush=True)
            try:
                seconds = step_seconds(arguments, sequence, precision, fused, compiled)
            except Exception as error:  # modes that this machine cannot run are skipped and reported
                print(f"  left out: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            result = {
                "peer": f"PyTorch {torch.__version__.split('+')[0]}", "mode": mode, "precision": precision,
                "batch": arguments.batch, "sequence": sequence,
                "tokens_per_second": arguments.batch * sequence / statistics.median(seconds),
                "step_seconds": seconds, "peak_bytes": peak_bytes(arguments.device),
            }  # fmt: skip
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
