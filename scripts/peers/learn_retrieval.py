#!/usr/bin/env python3
"""Fine-tunes an embedding model on invented names and measures retrieval with held-out queries, before and after.

usage: learn_retrieval.py MODEL [--hybrid PROGRAM] [--seeds 0 1 2] [--epochs 12]

24 colours and 24 things have invented names, drawn anew for each seed. The corpus describes all 576 coloured things in
English, a query asks for one by its two invented names, and 376 training pairs join such names to descriptions. The
other 200 combinations are the held-out queries. What a single name means can be learned only from the pairs. Exit code
1: the fine-tuning did not raise nDCG@10 for each seed.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile

COLOURS = ["red", "blue", "green", "yellow", "black", "white", "brown", "purple", "orange", "pink", "grey", "golden", "silver",
           "striped", "spotted", "wooden", "plastic", "glass", "paper", "leather", "stone", "woollen", "steel", "rubber"]
THINGS = ["chair", "boat", "lamp", "clock", "bottle", "drum", "hat", "knife", "wheel", "ladder", "bucket", "mirror", "basket",
          "whistle", "hammer", "blanket", "pencil", "candle", "spoon", "bell", "rope", "mask", "ring", "brush"]
ASKED = ["where can I buy a {} {}?", "looking for the {} {}", "do you have a {} {} in stock?", "price of one {} {}"]
TOLD = ["This {} {} is delivered within a week.", "A {} {} for home and garden.", "Our {} {} lasts for many years.",
        "The shop sells a {} {} at a fair price."]
HELD_OUT = 200


def names(draw, count):
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    found = set()
    while len(found) < count:
        found.add("".join(draw.choice(syllables) for _ in range(3)))
    return sorted(found, key=lambda _: draw.random())


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_task(folder, seed):
    draw = random.Random(seed)
    invented = names(draw, len(COLOURS) + len(THINGS))
    all_pairs = [(colour, thing) for colour in range(len(COLOURS)) for thing in range(len(THINGS))]
    draw.shuffle(all_pairs)

    def asked(colour, thing):
        return draw.choice(ASKED).format(invented[colour], invented[len(COLOURS) + thing])

    def told(colour, thing):
        return draw.choice(TOLD).format(COLOURS[colour], THINGS[thing])

    write_lines(f"{folder}/corpus.jsonl", [{"_id": f"d{i}", "text": told(*pair)} for i, pair in enumerate(all_pairs)])
    write_lines(f"{folder}/queries.jsonl", [{"_id": f"q{i}", "text": asked(*all_pairs[i])} for i in range(HELD_OUT)])
    with open(f"{folder}/relevant.tsv", "w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\td{i}\t1\n" for i in range(HELD_OUT)))
    pairs = [{"anchor": asked(*pair), "positive": told(*pair)} for pair in all_pairs[HELD_OUT:]]
    write_lines(f"{folder}/pairs.jsonl", pairs)


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("--hybrid", default="build/bin/hybrid")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=12)
    asked = parser.parse_args()
    always_rose = True
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as folder:
            write_task(folder, seed)
            files = [f"{folder}/{name}" for name in ("corpus.jsonl", "queries.jsonl", "relevant.tsv")]

            def score(model):
                return json.loads(output_of([asked.hybrid, "eval", model, "--json", "--retrieval", *files]))["ndcg@10"]

            before, run = score(asked.model), f"{folder}/run"
            output_of([asked.hybrid, "finetune", "--model", asked.model, "--task", "embed", "--data", f"{folder}/pairs.jsonl",
                       "--run", run, "--epochs", str(asked.epochs), "--set", f"training.seed={seed}",
                       "--set", "data.sequence_length=512", "--set", "data.batch_size=2",
                       "--set", "optimizer.learning_rate=2e-4"])
            after = score(run)
        print(f"seed {seed}: nDCG@10 {before:.3f} before, {after:.3f} after fine-tuning", flush=True)
        always_rose = always_rose and after > before
    sys.exit(0 if always_rose else 1)


if __name__ == "__main__":
    main()
