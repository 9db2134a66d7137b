#!/usr/bin/env python3
"""Compares the output of `hybrid transcribe --beam N` with transformers' for num_beams=N.

usage: compare_beams.py [--beams 1,2,4] HYBRID WHISPER_DIR CLIP.wav...    needs torch and transformers from PyPI

Clips have 16 kHz and 16 bits. Each is transcribed without and with timestamps, and clips longer than 30 s only with
them. Prints a line for each, and how many texts and segments are equal.
"""
import argparse
import json
import subprocess
import wave

import numpy as np
import torch
import transformers

LONGEST = 480_000  # samples that the model processes together


def samples_of(path):
    with wave.open(path) as clip:
        if clip.getframerate() != 16_000 or clip.getsampwidth() != 2:
            raise SystemExit(f"{path}: want 16 kHz and 16 bits")
        return np.frombuffer(clip.readframes(clip.getnframes()), np.int16).astype(np.float32) / 32768


def theirs(model, features, tokenizer, samples, beams, timestamps):
    is_long = len(samples) > LONGEST
    more = dict(truncation=False, padding="longest", return_attention_mask=True) if is_long else {}
    read = features(samples, sampling_rate=16_000, return_tensors="pt", **more)
    keys = dict(attention_mask=read.attention_mask) if is_long else {}
    if model.generation_config.is_multilingual:
        keys.update(language="en", task="transcribe")
    with torch.no_grad():
        out = model.generate(
            read.input_features, return_timestamps=timestamps, return_segments=True, num_beams=beams, **keys
        )
    ids = (out["sequences"] if isinstance(out, dict) else out)[0].tolist()
    text = tokenizer.decode(ids, skip_special_tokens=True).strip()
    if not timestamps:
        return text, None
    segments = [
        (round(float(s["start"]), 2), round(float(s["end"]), 2), tokenizer.decode(s["tokens"], skip_special_tokens=True).strip())
        for s in out["segments"][0]
    ]
    return text, segments


def ours(hybrid, folder, clip, beams, timestamps, multilingual):
    more = (["--timestamps"] if timestamps else []) + (["--language", "en"] if multilingual else [])
    command = [hybrid, "transcribe", folder, clip, "--beam", str(beams), "--json", *more]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    segments = [(round(s["begin"], 2), round(s["end"], 2), s["text"]) for s in said["segments"]]
    return said["text"], segments if timestamps else None


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--beams", default="1,2,4")
    arguments.add_argument("hybrid")
    arguments.add_argument("folder")
    arguments.add_argument("clips", nargs="+")
    asked = arguments.parse_args()
    transformers.logging.set_verbosity_error()
    model = transformers.WhisperForConditionalGeneration.from_pretrained(asked.folder).eval()
    features = transformers.WhisperFeatureExtractor.from_pretrained(asked.folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.folder)
    equal = all_of_them = 0
    for clip in asked.clips:
        samples = samples_of(clip)
        for beams in map(int, asked.beams.split(",")):
            for timestamps in (True,) if len(samples) > LONGEST else (False, True):
                want = theirs(model, features, tokenizer, samples, beams, timestamps)
                got = ours(asked.hybrid, asked.folder, clip, beams, timestamps, model.generation_config.is_multilingual)
                same = want == got
                equal, all_of_them = equal + same, all_of_them + 1
                print(f"{clip} beams {beams}{' timestamps' if timestamps else ''}: {'equal' if same else 'differs'}")
                if not same:
                    print(f"  theirs {want}\n  ours   {got}")
    print(f"{equal} of {all_of_them} are equal")


main()
