#!/usr/bin/env python3
"""Opens an exported folder with Hugging Face transformers and compares it with this project.

usage: check_hugging_face_export.py HYBRID_BINARY RUN DATA
RUN is a run on DATA, a folder of `hybrid prepare` with a BPE tokenizer. Needs torch and transformers. Compares the
loss over the validation split with `hybrid eval`, to 1e-4; the token ids of a text with the shards of `hybrid
prepare`; and a greedy continuation with `hybrid sample`.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = "To be, or not to be: that is the question — naïve café, 12 345 déjà-vu's!\n\n\tint main() { return 0; }\n" * 20
PROMPT = "ROMEO: I"


def call(*arguments):
    return subprocess.run([str(a) for a in arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def tokens_of_shard(path):
    header = numpy.fromfile(path, dtype="<i4", count=256)
    return numpy.fromfile(path, dtype="<u2" if header[1] == 1 else "<u4", offset=1024)[: header[2]].astype("int64")


def loss_over(model, tokens, length):
    windows = (len(tokens) - 1) // length
    inputs = torch.from_numpy(tokens[: windows * length].reshape(windows, length))
    targets = torch.from_numpy(tokens[1 : windows * length + 1].reshape(windows, length))
    total = 0.0
    with torch.no_grad():
        for x, y in zip(inputs.split(64), targets.split(64)):
            logits = model(x).logits.double()
            total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
    return total / (windows * length)


def main(hybrid, run, data):
    config = json.loads(pathlib.Path(run, "config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        exported, text, again = (pathlib.Path(folder) / name for name in ("hf", "text.txt", "data"))
        call(hybrid, "export", run, "--output", exported)
        model = AutoModelForCausalLM.from_pretrained(exported).eval()
        tokenizer = AutoTokenizer.from_pretrained(exported)

        theirs = loss_over(model, tokens_of_shard(pathlib.Path(data, "val_000000.bin")), config["data"]["sequence_length"])
        ours = json.loads(call(hybrid, "eval", run, "--data", data, "--json"))["loss"]
        print("loss", ours, "transformers", theirs)
        assert abs(ours - theirs) < 1e-4

        text.write_text(TEXT)
        call(hybrid, "prepare", text, "--output", again, "--tokenizer", exported)
        shards = [tokens_of_shard(again / f"{split}_000000.bin") for split in ("train", "val")]
        parts = [tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in shards]
        assert "".join(parts) == TEXT
        assert [tokenizer.encode(part) for part in parts] == [ids.tolist() for ids in shards]

        prompt = tokenizer(PROMPT, return_tensors="pt")
        with torch.no_grad():
            generated = model.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)[0]
        greedy = call(hybrid, "sample", run, "--prompt", PROMPT, "--tokens", 20, "--temperature", 0)
        assert tokenizer.decode(generated) + "\n" == greedy, (tokenizer.decode(generated), greedy)
    print("tokens and greedy text are equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
