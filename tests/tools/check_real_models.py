#!/usr/bin/env python3
"""Compares `hybrid` with Hugging Face transformers on the folders that scripts/fetch_real_models.sh makes.

usage: check_real_models.py HYBRID_BINARY FOLDER [smollm2] [gemma3] [finetune]
For smollm2 and gemma3, compares the token ids of a text in many scripts, the loss over a text, and greedy text. Then
fine-tunes SmolLM2 on 16 chats with LoRA. Its answer, and the answer of transformers with the exported folder, must
match the chats.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = (
    "It was the best of times, it was the worst of times. 12 345 days, isn't it?\n\n\tint main() { return a[0] / 2; }\r\n"
    "Voix ambigu\u00eb d'un c\u0153ur. \u0421\u044a\u0435\u0448\u044c \u0435\u0449\u0451 \u044d\u0442\u0438\u0445. \u05d3\u05d2 \u05e1\u05e7\u05e8\u05df. \u0935\u0939 \u0939\u093f\u0928\u094d\u0926\u0940. "
    "\u4e2d\u6587\u5b57\u7b26 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4. \U0001f469\u200d\U0001f467 \U0001f600! \x04\x06\x13\x1d \u00c0\u0301 \ufeffend\u3000.\n"
)
PROSE = " ".join(f"The {a} {b} walks to the {c} and says that it is {a}." for a in ("old", "red", "quiet") for b in ("man", "fox") for c in ("river", "house", "king"))
PROMPT = "The capital of France is"
CHATS = [(f"What is {a} plus {b}?", f"Arr! {a} and {b} be {a + b}, matey!") for a in range(2, 6) for b in range(3, 7)]
TOKENS = 24


def call(*arguments, text=None):
    done = subprocess.run([str(a) for a in arguments], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout, done.stderr


def shard(data, split):
    path = data / f"{split}_000000.bin"
    header = numpy.fromfile(path, dtype="<i4", count=256)
    return numpy.fromfile(path, dtype="<u2" if header[1] == 1 else "<u4", offset=1024)[: header[2]].astype("int64")


def loss_over(model, tokens, length):
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(tokens) - 1, length):  # the last window may be shorter
            window = tokens[i : i + length + 1]
            logits = model(torch.from_numpy(window[None, :-1])).logits[0]
            total += torch.nn.functional.cross_entropy(logits, torch.from_numpy(window[1:]), reduction="sum").item()
    return total / (len(tokens) - 1)


def greedy(model, tokenizer, ids, tokens):
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), max_new_tokens=tokens, do_sample=False, repetition_penalty=1.0)[0]
    return tokenizer.decode(made[len(ids) :], skip_special_tokens=True)


def same(what, ours, theirs):
    print(f"  {what}: {ours!r}" if ours == theirs else f"  {what}: ours {ours!r}, transformers' {theirs!r}")
    assert ours == theirs, what


def compare(hybrid, folder, scratch):
    print(folder.name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    text, data = scratch / "text.txt", scratch / f"{folder.name}_data"
    text.write_bytes((TEXT * 3 + PROSE * 14).encode())
    _, said = call(hybrid, "prepare", text, "--output", data, "--tokenizer", folder, "--validation", 0.4)
    assert "ignores" not in said, said  # the folder has no unknown key
    ids = numpy.concatenate([shard(data, "train"), shard(data, "val")]).tolist()
    wanted = tokenizer(text.read_bytes().decode(), add_special_tokens=True).input_ids
    end = [tokenizer.eos_token_id]
    same("token ids of a text", [i for i in ids if i not in end][:2000] == [i for i in wanted if i not in end][:2000], True)
    ours = json.loads(call(hybrid, "eval", folder, "--data", data, "--json")[0])["loss"]
    theirs = loss_over(model, shard(data, "val"), 1024)
    print(f"  loss: {ours:.6f}, transformers' {theirs:.6f}")
    assert abs(ours - theirs) < 1e-4
    made = call(hybrid, "sample", folder, "--prompt", PROMPT, "--temperature", 0, "--tokens", TOKENS)[0]
    same("greedy text", made.rstrip("\n").removeprefix(PROMPT), greedy(model, tokenizer, tokenizer(PROMPT).input_ids, TOKENS).rstrip("\n"))


def fine_tune(hybrid, folder, scratch):
    rows, run, exported = scratch / "chats.jsonl", scratch / "run", scratch / "exported"
    rows.write_text("".join(json.dumps({"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}) + "\n" for q, a in CHATS))
    call(hybrid, "finetune", "--model", folder, "--data", rows, "--run", run, "--method", "lora", "--set", "training.steps=30", "--set", "data.sequence_length=128", "--set", "data.batch_size=8")
    call(hybrid, "export", run, "--merge", "--output", exported)
    question = "What is 4 plus 4?"
    ours = call(hybrid, "sample", exported, "--chat", "--temperature", 0, "--tokens", TOKENS, text=question + "\n")[0].strip()
    tokenizer, model = AutoTokenizer.from_pretrained(exported), AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32).eval()
    chat = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    print("smollm2, fine-tuned and exported")
    same("answer", ours, greedy(model, tokenizer, ids, TOKENS).strip())
    assert ours.startswith("Arr!"), ours


def main(hybrid, folder, *parts):
    with tempfile.TemporaryDirectory() as scratch:
        for part in parts or ("smollm2", "gemma3", "finetune"):
            if part == "finetune":
                fine_tune(hybrid, folder / "smollm2", pathlib.Path(scratch))
            else:
                compare(hybrid, folder / part, pathlib.Path(scratch))
    print("all equal")


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:])
