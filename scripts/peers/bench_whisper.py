#!/usr/bin/env python3
"""Times a fine-tuning step of Whisper in transformers: random clips of 30 s, AdamW, gradients clipped.

usage: bench_whisper.py FOLDER [--batch 4] [--tokens 32] [--precision fp32|bf16]    needs torch and transformers
"""
import argparse
import resource
import statistics
import time

import torch
from transformers import WhisperForConditionalGeneration


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    asked = parser.parse_args()
    torch.set_num_threads(2)
    model = WhisperForConditionalGeneration.from_pretrained(asked.folder, attn_implementation="sdpa")
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)
    features = torch.randn(asked.batch, model.config.num_mel_bins, 2 * model.config.max_source_positions)
    labels = torch.randint(0, model.config.vocab_size - 1, (asked.batch, asked.tokens))
    seconds = []
    for _ in range(6):
        begin = time.time()
        with torch.autocast("cpu", torch.bfloat16, enabled=asked.precision == "bf16"):
            loss = model(input_features=features, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{asked.precision}: {statistics.median(seconds[1:]):.2f} s a step, peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
