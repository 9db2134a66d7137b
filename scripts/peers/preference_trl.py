#!/usr/bin/env python3
"""Steps of DPO and ORPO here and in TRL, on one tiny Llama in f32 with SGD.

    preference_trl.py WORK [HYBRID]    writes to WORK; prints {"objective", "steps", "largest_change",
                                       "largest_difference"} of the weights for each objective

Each step contains all pairs, so both programs see the same ones. TRL's ORPO includes the prompt's tokens in the
likelihood of the chosen answer, and averages over tokens instead of pairs. Therefore the pairs have a prompt of one
token, which has no likelihood, and chosen answers of equal length.
"""

import json
import pathlib
import random
import subprocess
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

STEPS, PAIRS, RATE, BETA = 3, 8, 0.5, 0.3
LETTERS = "abcdefgh"


def make_model(folder):
    words = sorted(set(LETTERS) | {"\u0120", "<|endoftext|>", "<|pad|>"})
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|pad|>")
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         initializer_range=0.2, tie_word_embeddings=False,
                         eos_token_id=vocabulary["<|endoftext|>"], bos_token_id=None)
    LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)


def pairs(objective):
    draw = random.Random(3)
    text = lambda count: "".join(draw.choice(LETTERS) for _ in range(count))
    for i in range(PAIRS):
        short = 4 if objective == "orpo" else 2 + i % 4
        yield {"prompt": text(1 if objective == "orpo" else 3 + i % 3), "chosen": text(short), "rejected": text(5 + i % 5)}


def train_with_trl(objective, model, data, output):
    from datasets import Dataset

    if objective == "dpo":
        from trl import DPOConfig as Config, DPOTrainer as Trainer
    else:
        from trl.experimental.orpo import ORPOConfig as Config, ORPOTrainer as Trainer
    settings = dict(output_dir=str(output), per_device_train_batch_size=PAIRS, max_steps=STEPS, learning_rate=RATE,
                    optim="sgd", lr_scheduler_type="constant", max_grad_norm=0.0, weight_decay=0.0, beta=BETA, use_cpu=True,
                    bf16=False, fp16=False, gradient_checkpointing=False, report_to=[], logging_steps=1, save_strategy="no")
    fast = PreTrainedTokenizerFast.from_pretrained(model)
    policy = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32)
    dataset = Dataset.from_list([json.loads(line) for line in open(data)])
    trainer = Trainer(model=policy, args=Config(**settings), train_dataset=dataset, processing_class=fast)
    trainer.train()
    trainer.model.save_pretrained(output)
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def train_with_hybrid(hybrid, objective, model, data, work):
    sets = [f"training.steps={STEPS}", "training.evaluate_every_steps=0", "data.layout=apart", f"data.batch_size={PAIRS}",
            "data.sequence_length=48", "data.validation_fraction=0", "optimizer.name=sgd", "optimizer.momentum=0",
            f"optimizer.learning_rate={RATE}", "optimizer.clip_norm=0", "schedule.name=constant", "schedule.warmup_steps=0",
            "mixed_precision.warmup=fp32", "mixed_precision.full=fp32", "export.dtype=fp32"]
    run = work / f"{objective}-run"
    command = [hybrid, "finetune", "--objective", objective, "--beta", str(BETA), "--model", model, "--data", data,
               "--run", run, "--export", work / f"{objective}-hybrid"]
    for one in sets:
        command += ["--set", one]
    subprocess.run([str(part) for part in command], check=True, stderr=open(work / f"{objective}.log", "w"))
    return [json.loads(line)["loss"] for line in open(run / "metrics.jsonl")]


def main():
    work, hybrid = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "build/bin/hybrid"
    work.mkdir(parents=True, exist_ok=True)
    model = work / "model"
    make_model(model)
    first = load_file(model / "model.safetensors")
    for objective in ("dpo", "orpo"):
        data = work / f"{objective}.jsonl"
        data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs(objective)))
        losses = train_with_trl(objective, model, data, work / f"{objective}-trl")
        own = train_with_hybrid(hybrid, objective, model, data, work)
        peer, here = (load_file(work / f"{objective}-{who}" / "model.safetensors") for who in ("trl", "hybrid"))
        change = max((peer[name] - first[name]).abs().max().item() for name in first)
        difference = max((peer[name] - here[name].float()).abs().max().item() for name in first)
        print(json.dumps({"objective": objective, "steps": STEPS, "losses_trl": losses, "losses_hybrid": own,
                          "largest_change": change, "largest_difference": difference}))


if __name__ == "__main__":
    main()
