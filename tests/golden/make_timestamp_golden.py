#!/usr/bin/env python3
"""Writes timestamp_golden.json next to this script: which of 24 tokens transformers' Whisper timestamp rules allow, for
random scores and random beginnings. <|endoftext|> is 10, <|notimestamps|> 13, 0.00 s is 14."""
import json
import pathlib
import types

import torch
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

VOCABULARY, END, FIRST = 24, 10, 14
torch.manual_seed(3)
cases = []
for number in range(160):
    latest = None if number % 3 else 4
    config = types.SimpleNamespace(no_timestamps_token_id=FIRST - 1, eos_token_id=END, bos_token_id=END,
                                   max_initial_timestamp_index=latest)
    written = []
    time = FIRST
    for _ in range(int(torch.randint(0, 7, ()))):
        if torch.rand(()) < 0.5:
            written.append(int(torch.randint(0, END, ())))
        else:
            time = min(VOCABULARY - 2, time + int(torch.randint(0, 3, ())))
            written.append(time)
    scores = torch.randn(1, VOCABULARY) * (3 if number % 2 else 1)
    kept = WhisperTimeStampLogitsProcessor(config, begin_index=1)(torch.tensor([[11] + written]), scores)
    cases.append({"written": written, "latest": latest, "scores": [round(float(s), 4) for s in scores[0]],
                  "kept": [int(k) for k in torch.isfinite(kept[0])]})
pathlib.Path(__file__).with_name("timestamp_golden.json").write_text(
    "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
