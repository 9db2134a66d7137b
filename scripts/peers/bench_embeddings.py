#!/usr/bin/env python3
"""Times an embedding model here and in PyTorch, in turn: fine-tuning on pairs, or embedding texts. 2 threads each.

usage: bench_embeddings.py train|embed MODEL [--hybrid PROGRAM] [--count N] [--rounds 3]

MODEL is a BERT folder of sentence-transformers with vocab.txt, such as all-MiniLM-L6-v2. Texts are random whole words, 8
to 128 tokens long, evenly in the logarithm. train: N pairs (1,920), in batches of 64 with the in-batch negatives of
MultipleNegativesRankingLoss; here in packed sequences of 512 tokens, of which 12 hold some 64 pairs; in transformers
padded to the longest of the batch, with fused AdamW. embed: N texts (10,000), by `hybrid predict` as a whole program, and
by SentenceTransformer.encode, which sorts by length, without its start. Needs torch, transformers, sentence-transformers.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

BATCH, LONGEST, SEQUENCES = 64, 128, 12


def write_texts(model, path, count, is_pairs):
    words = [word for word in open(f"{model}/vocab.txt", encoding="utf-8").read().split() if word.isascii() and word.isalpha()]
    draw = random.Random(5)

    def text():
        tokens = round(math.exp(draw.uniform(math.log(8), math.log(LONGEST))))
        return " ".join(draw.choice(words) for _ in range(tokens - 2))

    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            row = {"anchor": text(), "positive": text()} if is_pairs else {"text": text()}
            file.write(json.dumps(row) + "\n")


def measured(command):
    """Runs a command; returns its standard output, seconds and peak of memory in GB."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        _, status, use = os.wait4(process.pid, 0)
        output.seek(0)
        errors.seek(0)
        if status != 0:
            sys.exit(f"error: {' '.join(command)}\n{errors.read().decode()[-2000:]}")
        return output.read().decode(), time.monotonic() - begin, use.ru_maxrss * 1024 / 1e9


def train_here(asked, data, precision, folder):
    run = f"{folder}/run-{time.monotonic_ns()}"
    settings = ["training.threads=2", "phases.max_predict_steps=0", f"mixed_precision.full={precision}",
                f"mixed_precision.warmup={precision}", "data.sequence_length=512", f"data.batch_size={SEQUENCES}",
                "data.validation_fraction=0"]
    command = [asked.hybrid, "finetune", "--model", asked.model, "--task", "embed", "--data", data, "--run", run,
               "--epochs", "1", "--device", "cpu"]
    for setting in settings:
        command += ["--set", setting]
    _, _, peak = measured(command)
    seconds = [json.loads(line)["seconds"] for line in open(f"{run}/metrics.jsonl", encoding="utf-8")]
    return asked.count / (statistics.mean(seconds[1:]) * len(seconds)), peak


def embed_here(asked, data, precision, folder):
    command = [asked.hybrid, "predict", asked.model, "--data", data, "--output", f"{folder}/{precision}.npy", "--device", "cpu",
               "--precision", precision]
    _, seconds, peak = measured(command)
    return asked.count / seconds, peak


def there(asked, data, precision, _):
    command = [sys.executable, __file__, asked.what, asked.model, "--peer", precision, "--data", data]
    output, _, peak = measured(command)
    return float(output.split()[-1]), peak


def train_peer(model_folder, data, precision):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModel.from_pretrained(model_folder, attn_implementation="sdpa", add_pooling_layer=False).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.0, fused=True)
    pairs = [json.loads(line) for line in open(data, encoding="utf-8")]
    seconds = []
    for first in range(0, len(pairs) - BATCH + 1, BATCH):
        batch = pairs[first : first + BATCH]
        begin = time.monotonic()
        texts = [pair["anchor"] for pair in batch] + [pair["positive"] for pair in batch]
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None].float()
        rows = torch.nn.functional.normalize((hidden.float() * mask).sum(1) / mask.sum(1))
        similarities = 20 * rows[:BATCH] @ rows[BATCH:].T
        loss = torch.nn.functional.cross_entropy(similarities, torch.arange(BATCH))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.monotonic() - begin)
    return BATCH * (len(seconds) - 1) / sum(seconds[1:])


def embed_peer(model_folder, data, precision):
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(model_folder, device="cpu")
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    texts = [json.loads(line)["text"] for line in open(data, encoding="utf-8")]
    begin = time.monotonic()
    model.encode(texts, show_progress_bar=False, convert_to_numpy=precision == "fp32", convert_to_tensor=precision == "bf16")
    return len(texts) / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("what", choices=["train", "embed"])
    parser.add_argument("model")
    parser.add_argument("--hybrid", default="build/bin/hybrid")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", choices=["fp32", "bf16"], help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    is_training = asked.what == "train"
    if asked.peer:
        import torch

        torch.manual_seed(0)
        torch.set_num_threads(2)
        print((train_peer if is_training else embed_peer)(asked.model, asked.data, asked.peer))
        return
    asked.count = asked.count or (1920 if is_training else 10000)
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/texts.jsonl"
        write_texts(asked.model, data, asked.count, is_training)
        found = {}
        for _ in range(asked.rounds):
            for precision in ["fp32", "bf16"]:
                for name, run in [("hybrid", train_here if is_training else embed_here), ("PyTorch", there)]:
                    found.setdefault((precision, name), []).append(run(asked, data, precision, folder))
                    rate, peak = found[precision, name][-1]
                    print(f"{precision} {name}: {rate:.1f}/s, {peak:.2f} GB, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        for (precision, name), runs in found.items():
            rates = sorted(rate for rate, _ in runs)
            print(f"{precision} {name}: {statistics.median(rates):.1f} {'pairs' if is_training else 'texts'}/s "
                  f"({rates[0]:.1f} to {rates[-1]:.1f}), {max(peak for _, peak in runs):.2f} GB")


if __name__ == "__main__":
    main()
