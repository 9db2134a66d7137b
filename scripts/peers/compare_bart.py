#!/usr/bin/env python3
"""Compares the output of `hybrid sample` for sources with transformers' generate, for BART.

usage: compare_bart.py [--beams 1,2,4] [--make TOKENIZER.json] HYBRID BART_DIR    needs torch and transformers from PyPI

With --make, makes BART_DIR first: the shape of facebook/bart-base, with random weights and the vocabulary of a
byte-level BPE. Prints a line for each source and number of beams, and how many outputs have equal tokens.
"""
import argparse
import json
import subprocess
import tempfile

import torch
import transformers

SOURCES = [
    "The tower is 324 metres tall, about the same height as an 81-storey building.",
    "Some words, to be summed up: how are you? I am well.",
    "x",
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def tokenizer_of(path):
    from tokenizers import Tokenizer, processors

    text = json.load(open(path))
    words = sorted((i, word) for word, i in text["model"]["vocab"].items() if i < 50_256)
    names = [*SPECIAL[:4], *(word for _, word in words), SPECIAL[4]]
    vocabulary = {name: i for i, name in enumerate(names)}
    text["model"]["vocab"] = vocabulary
    text["normalizer"] = text["post_processor"] = None
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    text["added_tokens"] = [dict(id=vocabulary[name], content=name, **flags) for name in SPECIAL]
    made = Tokenizer.from_str(json.dumps(text))
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask>"
    )


def make(folder, tokenizer):
    torch.manual_seed(0)
    sizes = dict(d_model=768)
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 6, f"{part}_attention_heads": 12, f"{part}_ffn_dim": 3072}
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**sizes)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.03 if "shared" in name else 0.06)
        model.final_logits_bias.normal_(0, 0.3)
    ids = dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2)
    model.generation_config = transformers.GenerationConfig(
        num_beams=4,
        length_penalty=2.0,
        early_stopping=True,
        no_repeat_ngram_size=3,
        min_length=5,
        max_length=24,
        forced_bos_token_id=0,
        forced_eos_token_id=2,
        **ids,
    )
    model.save_pretrained(folder)
    tokenizer_of(tokenizer).save_pretrained(folder)


def ours(hybrid, folder, beams):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(SOURCES) + "\n")
        file.flush()
        command = [hybrid, "sample", folder, "--prompts", file.name, "--beam", str(beams)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line)["token_ids"] for line in lines]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--beams", default="1,2,4")
    arguments.add_argument("--make")
    arguments.add_argument("hybrid")
    arguments.add_argument("folder")
    asked = arguments.parse_args()
    transformers.logging.set_verbosity_error()
    if asked.make:
        make(asked.folder, asked.make)
    model = transformers.BartForConditionalGeneration.from_pretrained(asked.folder).float().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.folder)
    equal = all_of_them = 0
    for beams in map(int, asked.beams.split(",")):
        for source, got in zip(SOURCES, ours(asked.hybrid, asked.folder, beams), strict=True):
            read = tokenizer(source, return_tensors="pt")
            with torch.no_grad():
                want = model.generate(read.input_ids, attention_mask=read.attention_mask, num_beams=beams)[0, 1:].tolist()
            equal, all_of_them = equal + (want == got), all_of_them + 1
            print(f"beams {beams}, {source[:30]!r}: {'equal' if want == got else f'theirs {want}, ours {got}'}")
    print(f"{equal} of {all_of_them} are equal")


main()
