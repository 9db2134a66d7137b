#!/usr/bin/env python3
"""LoRA over chats with transformers and PEFT, as measured by scripts/compare_peft.sh.

    finetune_peft.py chats FILE N              writes N chats of one question and one answer, always the same ones
    finetune_peft.py train MODEL FILE DTYPE    one epoch over the file; prints {"seconds", "steps", "loss"}
    finetune_peft.py run OUTPUT COMMAND...     runs a command, its output in a file; prints {"seconds", "peak_bytes"}

The same settings as `hybrid finetune --method lora`: rank 16, alpha 32 on all linear layers, AdamW without weight
decay, learning rate 2e-4 with 3 % warm-up and a cosine, gradients clipped to norm 1, and a loss only on the answers.
"""

import json
import math
import random
import resource
import subprocess
import sys
import time

BATCH = 4
LONGEST = 512
SUBJECTS = ["the tide", "a gradient", "bread dough", "a suspension bridge", "the seasons", "a compiler", "sleep", "paper"]
VERBS = ["rises", "turns", "holds", "changes", "settles", "repeats", "grows", "weakens"]
REASONS = ["because heat moves slowly", "when the load is shared", "as long as nothing disturbs it", "after some hours",
           "since each part depends on the next", "where the air is dry", "if it is left alone", "more than one expects"]


def write_chats(path, count):
    draw = random.Random(7)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            subject = draw.choice(SUBJECTS)
            answer = " ".join(
                f"{subject.capitalize()} {draw.choice(VERBS)} {draw.choice(REASONS)}." for _ in range(draw.randint(6, 40))
            )
            turns = [("user", f"Question {i}: what should I know about {subject}?"), ("assistant", answer)]
            file.write(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}) + "\n")


def rows_of(tokenizer, path):
    """Returns (ids, number of them before the answer) for each chat."""
    rows = []
    for line in open(path, encoding="utf-8"):
        turns = json.loads(line)["messages"]
        ids = tokenizer.apply_chat_template(turns, return_dict=False)
        before = tokenizer.apply_chat_template(turns[:-1], add_generation_prompt=True, return_dict=False)
        rows.append((ids[: LONGEST + 1], len(before)))
    return rows


def padded(rows):
    import torch

    longest = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, (row, before) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
        labels[i, before : len(row)] = ids[i, before : len(row)]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def train(model_folder, path, dtype):
    import peft
    import torch
    import transformers

    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=getattr(torch, dtype))
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    rows = rows_of(tokenizer, path)
    random.Random(0).shuffle(rows)
    batches = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
    warmup = max(1, round(0.03 * len(batches)))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=2e-4, weight_decay=0.0)
    loss, begin = None, time.monotonic()
    for step, batch in enumerate(batches):
        done = (step - warmup) / max(1, len(batches) - warmup)
        scale = (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * done))
        optimizer.param_groups[0]["lr"] = 2e-4 * scale
        loss = model(**padded(batch)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(json.dumps({"seconds": time.monotonic() - begin, "steps": len(batches), "loss": loss.item()}))


def run(output, command):
    begin = time.monotonic()
    with open(output, "w", encoding="utf-8") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    seconds = time.monotonic() - begin
    if code != 0:
        sys.exit(f"error: {command[0]} ended with {code}; see {output}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    task, arguments = sys.argv[1], sys.argv[2:]
    if task == "chats":
        write_chats(arguments[0], int(arguments[1]))
    elif task == "train":
        train(*arguments)
    else:
        run(arguments[0], arguments[1:])
