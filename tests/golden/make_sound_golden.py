#!/usr/bin/env python3
"""Makes wav/, log_mel.safetensors, word_errors.json, clip_*.parquet and pictures_*.parquet.

usage: make_sound_golden.py SPEECH.wav
SPEECH.wav has one second of speech or more, 16,000 samples a second. Needs torch, transformers, safetensors, jiwer,
soundfile, imageio-ffmpeg and pyarrow.
"""

import json
import pathlib
import struct
import subprocess
import sys

import imageio_ffmpeg
import jiwer
import numpy as np
import pyarrow
import pyarrow.parquet
import soundfile
import torch
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor
from transformers.models.whisper.english_normalizer import BasicTextNormalizer

HERE = pathlib.Path(__file__).parent
RATE = 16000


def write_wavs(speech):
    """The same 50 frames of two channels in each sample format, as written by libsndfile and ffmpeg."""
    folder = HERE / "wav"
    folder.mkdir(exist_ok=True)
    stereo = np.stack([speech[4000:4050], -0.5 * speech[4100:4150]], axis=1).astype(np.float64)
    stereo *= 0.9 / np.abs(stereo).max()
    expected = {}
    for name, container, kind in (
            ("u8", "WAV", "PCM_U8"), ("i16", "WAV", "PCM_16"), ("i24", "WAV", "PCM_24"), ("i32", "WAV", "PCM_32"),
            ("f32", "WAV", "FLOAT"), ("f64", "WAV", "DOUBLE"), ("extensible", "WAVEX", "PCM_24"),
            ("rf64", "RF64", "PCM_16"), ("mu_law", "WAV", "ULAW"), ("a_law", "WAV", "ALAW"),
            ("ima_adpcm", "WAV", "IMA_ADPCM"), ("ms_adpcm", "WAV", "MS_ADPCM"), ("gsm", "WAV", "GSM610")):
        path = folder / f"{name}.wav"
        one = kind == "GSM610"
        soundfile.write(path, stereo[:, 0] if one else stereo, 8000 if one else 22050, subtype=kind, format=container)
        bytes_of = bytearray(path.read_bytes())
        if b"PEAK" in bytes_of:  # the time of writing
            at = bytes_of.index(b"PEAK") + 12
            bytes_of[at:at + 4] = bytes(4)
            path.write_bytes(bytes_of)
        if kind.startswith("PCM") or kind in ("FLOAT", "DOUBLE"):
            values, rate = soundfile.read(path, dtype="float64")
            expected[path.name] = {"rate": rate, "samples": values.mean(axis=1).tolist()}
    program = imageio_ffmpeg.get_ffmpeg_exe()
    piped = subprocess.run([program, "-v", "error", "-i", folder / "i16.wav", "-f", "wav", "-"], check=True,
                           stdout=subprocess.PIPE).stdout
    (folder / "ffmpeg_pipe.wav").write_bytes(piped)
    expected["ffmpeg_pipe.wav"] = expected["i16.wav"]
    for name in ("flac", "mp3", "ogg"):
        path = folder / f"sound.{name}"
        soundfile.write(path, stereo, 22050)
        path.write_bytes(path.read_bytes()[:14])  # an Ogg file contains a random number there
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def noise(count):
    """Numbers of a linear congruential generator, which C++ reproduces exactly."""
    state, values = 1, np.empty(count, np.float32)
    for i in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        values[i] = np.float32(0.2 * ((state >> 8) / 2**24 - 0.5))
    return values


def exact_features(extractor, samples, length):
    """The extractor's results in F64. Its own F32 results are 2.4e-5 off for weak bands."""
    padded = np.zeros(length)
    padded[:min(length, len(samples))] = samples[:length]
    spectrum = torch.stft(torch.from_numpy(padded), 400, 160, window=torch.hann_window(400, dtype=torch.float64),
                          return_complex=True)[:, :-1]
    logs = (torch.from_numpy(extractor.mel_filters).T @ spectrum.abs()**2).clamp(min=1e-10).log10()
    return ((torch.maximum(logs, logs.max() - 8) + 4) / 4).T.numpy()


def features(extractor, samples, padding="max_length"):
    theirs = extractor(samples, sampling_rate=RATE, return_tensors="np", padding=padding).input_features[0].T
    exact = exact_features(extractor, samples, 30 * RATE if padding == "max_length" else len(samples))
    most = np.abs(theirs - exact).max()
    print(f"{len(samples)} samples: transformers in F32 is {most:.1e} off")
    if most > 5e-5:
        raise SystemExit("error: transformers computes something else")
    return exact.astype(np.float32)


def write_features(speech):
    second = (speech[:RATE] * 32768).round().astype(np.int16)
    click = np.zeros(RATE, np.float32)
    click[8000] = 1
    cases = {
        "speech": second / np.float32(32768),
        "sine": (0.5 * np.sin(2 * np.pi * 440 / RATE * np.arange(3 * RATE))).astype(np.float32),
        "click": click,
        "silence": np.zeros(RATE, np.float32),
        "noise": noise(30 * RATE),
        "too_long": noise(31 * RATE),
        "short": noise(320),
        "tone_of_30_s": (0.9 * np.cos(2 * np.pi * 3000 / RATE * np.arange(30 * RATE))).astype(np.float32),
    }
    tensors = {"speech.samples": second}
    for mels in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=mels)
        filters = extractor.mel_filters  # (201, mels)
        tensors[f"filters.{mels}"] = np.stack([filters.sum(0), np.arange(201) @ filters]).astype(np.float32)
        for name, samples in cases.items():
            if mels == 128 and name not in ("speech", "noise"):
                continue
            found = features(extractor, samples)
            frames = np.array([0, 1, 2, 3, 30, 48, 49, 50, 51, 60, 98, 99, 100, 101, 102, 1500, 2998, 2999], np.int32)
            tensors[f"{name}.{mels}"] = np.ascontiguousarray(found[frames])
            tensors[f"{name}.{mels}.mean"] = np.array([found.mean(dtype=np.float64)], np.float32)
    whole = features(WhisperFeatureExtractor(), cases["speech"][:15937], "longest")
    tensors["whole.80"] = np.ascontiguousarray(whole[-6:])
    tensors["frames"] = frames
    save_file(tensors, HERE / "log_mel.safetensors")


def write_word_errors():
    normal = BasicTextNormalizer()
    texts = ["Hello, World!", "It's 5 o'clock — isn't it?", "[music] he said (laughs) no.", "Crème BRÛLÉE naïve",
             "ﬁve ½ ①", "<noise> a () b (c", "tab\tand\nline", "«Straße» ÄÖÜ", "50% of $3.20 + x_y", "",
             "Привет, МИР!", "日本語、テスト。", "e\u0301 combining", "  spaced   out  "]
    words = "one two three red blue go stop left right now".split()
    rng = np.random.default_rng(5)
    pairs = [("", ""), ("", "a b"), ("a b", ""), ("a b", "b c"), ("a b c d", "a x c d e"),
             ("the cat sat", "the cat sat"), ("a a a a", "a a"), ("x y", "y x")]
    for _ in range(200):
        said = [words[i] for i in rng.integers(0, len(words), rng.integers(1, 9))]
        heard = [words[i] for i in rng.integers(0, len(words), rng.integers(0, 9))]
        if rng.random() < 0.7:
            heard = [word for word in said if rng.random() < 0.8]
            for _ in range(rng.integers(0, 3)):
                heard.insert(rng.integers(0, len(heard) + 1), words[rng.integers(0, len(words))])
        pairs.append((" ".join(said), " ".join(heard)))
    errors = []
    for said, heard in pairs:
        if not said.strip():
            found = [0, 0, len(heard.split())]  # jiwer rejects texts without words
        else:
            result = jiwer.process_words(said, heard)
            found = [result.substitutions, result.deletions, result.insertions]
        errors.append({"said": said, "heard": heard, "errors": found})
    (HERE / "word_errors.json").write_text(json.dumps(
        {"normal": [[text, normal(text).strip()] for text in texts], "errors": errors}, ensure_ascii=False) + "\n")


def write_clips():
    """A clip as in Hugging Face data sets, by path and embedded, and two images likewise."""
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    samples = np.round(3000 * np.sin(np.arange(800) / 5)).astype("<i2").tobytes()
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16,
                         b"data", len(samples))
    for name, sound in (("path", None), ("bytes", header + samples)):
        audio = pyarrow.array([{"bytes": sound, "path": "clips/a.wav"}], kind)
        pyarrow.parquet.write_table(pyarrow.table({"audio": audio, "text": ["stop now"], "language": ["en"]}),
                                    HERE / f"clip_{name}.parquet")
    pictures = [(HERE / "images" / name).read_bytes() for name in ("palette.png", "grey.jpg")]
    held = pyarrow.array([{"bytes": pictures[0], "path": "a.png"}, {"bytes": pictures[1], "path": None}], kind)
    for name, column in (("objects", held), ("bytes", pyarrow.array(pictures, pyarrow.binary()))):
        pyarrow.parquet.write_table(pyarrow.table({"image": column, "label": ["cat", "dog"]}),
                                    HERE / f"pictures_{name}.parquet")


def main():
    speech, rate = soundfile.read(sys.argv[1], dtype="float32")
    if rate != RATE or len(speech) < RATE:
        raise SystemExit("error: want one second of speech or more, 16,000 samples a second")
    write_wavs(speech)
    write_features(speech)
    write_word_errors()
    write_clips()


if __name__ == "__main__":
    main()
