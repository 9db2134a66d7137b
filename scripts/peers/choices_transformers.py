#!/usr/bin/env python3
"""Accuracy on multiple-choice questions with transformers, to compare with `hybrid eval --choices`.

    choices_transformers.py MODEL QUESTIONS    prints {"questions", "accuracy", "accuracy_by_bytes", "log_likelihoods"}

Runs one pass over the entire text of each prompt with each choice, in f32. Scores all choices of a question after
the tokens that all texts of prompt and choice have in common with the prompt's.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def log_likelihood(model, ids, common):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logits[i - 1, ids[i]].item() for i in range(common, len(ids)))


def main():
    folder, file = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    right = [0, 0]
    found = []
    for line in open(file, encoding="utf-8"):
        question = json.loads(line)
        is_chat = not isinstance(question["prompt"], str)
        prompt = question["prompt"]
        if is_chat:
            prompt = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        encode = lambda text: tokenizer.encode(text, add_special_tokens=not is_chat)
        alone = encode(prompt)
        wholes = [encode(prompt + choice) for choice in question["choices"]]
        common = len(alone)
        for whole in wholes:
            alike = next((i for i, (a, b) in enumerate(zip(alone, whole)) if a != b), min(len(alone), len(whole)))
            common = min(common, alike, len(whole) - 1)
        sums = [log_likelihood(model, whole, common) for whole in wholes]
        by_bytes = [s / len(choice.encode()) for s, choice in zip(sums, question["choices"])]
        for kind, values in enumerate((sums, by_bytes)):
            right[kind] += values.index(max(values)) == question["answer"]
        found.append(sums)
    print(json.dumps({"questions": len(found), "accuracy": right[0] / len(found), "accuracy_by_bytes": right[1] / len(found),
                      "log_likelihoods": found}))


if __name__ == "__main__":
    main()
