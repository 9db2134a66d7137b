#!/usr/bin/env python3
"""Compares GGUF files of an embedding model here, in llama.cpp and in sentence-transformers.

usage: compare_gguf_encoders.py HYBRID MODEL SCRATCH [--file GGUF] [--type f32 ...]

MODEL is a folder of sentence-transformers, or qwen3, gemma3 or gemma3-dense for one with small random weights and the
layout of Qwen3-Embedding or EmbeddingGemma. Exports it to SCRATCH in each type; --file adds a file of llama.cpp's
converter. For each file, prints the largest difference of normalized embeddings and the smallest cosine: `hybrid
predict` with the file against sentence-transformers in f32, and llama.cpp against both. Needs numpy,
sentence-transformers and xllamacpp from PyPI.
"""
import argparse
import json
import subprocess
from pathlib import Path

import numpy
import xllamacpp
from sentence_transformers import SentenceTransformer

TEXTS = ["The lathe is called Bertha.", "Which machine cuts wood?", "a", "naïve café, Ångström!", "10.5 % of 世界 people",
         "unaffable embeddings: tokenization of rare words", "don't (ever) stop", "UPPER and lower CASE",
         "Embeddings of longer texts average over more tokens, so that rounding errors of single products matter less. " * 3]


def ours(hybrid, model, scratch):
    data, output = scratch / "texts.jsonl", scratch / "embeddings.npy"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    output.unlink(missing_ok=True)
    subprocess.run([hybrid, "predict", str(model), "--data", str(data), "--output", str(output), "--device", "cpu"], check=True,
                   capture_output=True)
    return numpy.load(output)


def theirs(path):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.embedding = True
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    answer = xllamacpp.Server(params).handle_embeddings({"input": TEXTS})
    answer = json.loads(answer) if isinstance(answer, str) else answer
    return numpy.array([row["embedding"] for row in answer["data"]], dtype=numpy.float32)


def random_model(kind, folder):
    """Makes a folder with pooling, and for gemma3-dense with two linear layers."""
    import torch
    import transformers
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    from tokenizers import processors

    from compare_gguf import tokenizer_of

    torch.manual_seed(1)
    is_gemma = kind.startswith("gemma3")
    tokenizer = tokenizer_of("gemma" if is_gemma else "qwen2", TEXTS)
    end = ("</s>", tokenizer.token_to_id("</s>"))
    start = [("<s>", tokenizer.token_to_id("<s>"))] if is_gemma else []
    around = ["<s>"] * is_gemma + ["$A", "</s>"]
    tokenizer.post_processor = processors.TemplateProcessing(" ".join(around), " ".join(around + ["$B", "</s>"]), start + [end])
    sizes = dict(vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=96, num_hidden_layers=7, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, max_position_embeddings=256, initializer_range=0.1)
    config = (transformers.Gemma3TextConfig(**sizes, query_pre_attn_scalar=16, sliding_window=32, use_bidirectional_attention=True)
              if is_gemma else transformers.Qwen3Config(**sizes, tie_word_embeddings=True))
    transformers.AutoModel.from_config(config).save_pretrained(folder / "body")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<|user|>",
                                         model_max_length=256).save_pretrained(folder / "body")
    dense = [Dense(a, b, bias=False, activation_function=torch.nn.Identity()) for a, b in ((64, 96), (96, 64)) if kind.endswith("dense")]
    pooling = Pooling(64, "mean" if is_gemma else "lasttoken")
    model = SentenceTransformer(modules=[Transformer(str(folder / "body")), pooling, *dense, Normalize()], device="cpu")
    model.save(str(folder / kind), create_model_card=False)
    return str(folder / kind)


def difference(a, b):
    return f"{numpy.abs(a - b).max():8.1e} {(a * b).sum(axis=1).min():.7f}"


def main():
    parser = argparse.ArgumentParser()
    for name in ("hybrid", "model", "scratch"):
        parser.add_argument(name)
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--type", nargs="*", default=["f32", "f16", "q8_0"])
    asked = parser.parse_args()
    scratch = Path(asked.scratch)
    scratch.mkdir(exist_ok=True)
    if asked.model in ("qwen3", "gemma3", "gemma3-dense"):
        asked.model = random_model(asked.model, scratch)
    wanted = SentenceTransformer(asked.model, device="cpu").encode(TEXTS, normalize_embeddings=True)
    print("largest difference and smallest cosine of", len(TEXTS), "texts")
    print(f"{'':12} here, sentence-t.   llama.cpp, sentence-t.   llama.cpp, here")
    print(f"{'folder':12} {difference(ours(asked.hybrid, asked.model, scratch), wanted)}")
    files = {Path(path).name: Path(path) for path in asked.file}
    for kind in asked.type:
        files[kind] = scratch / f"{kind}.gguf"
        files[kind].unlink(missing_ok=True)
        subprocess.run([asked.hybrid, "export", asked.model, "--output", str(files[kind]), "--type", kind], check=True)
    for name, path in files.items():
        here, there = ours(asked.hybrid, path, scratch), theirs(path)
        print(f"{name:12} {difference(here, wanted)}   {difference(there, wanted)}   {difference(there, here)}", flush=True)


if __name__ == "__main__":
    main()
