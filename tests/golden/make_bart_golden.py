#!/usr/bin/env python3
"""Writes small BART folders next to this script, like make_whisper_golden.py does for Whisper: config.json,
model.safetensors and generation_config.json. expected.safetensors contains transformers' results: sources with their
lengths, tokens, targets, logits, loss, gradients and greedy tokens. writings.json contains the output of generate
for each source and several settings. F32 (logits, loss and gradients from F64), eager attention, on the CPU.
Weights, gains, biases and final_logits_bias are random."""

import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

SIZES = {  # differences, deviation of matrices, bias of the end, lengths of sources, time
    "bart_a": (dict(), 0.5, 2.0, (9, 6), 11),
    "bart_b": (
        dict(
            encoder_layers=1,
            decoder_layers=3,
            encoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=40,
            scale_embedding=True,
        ),
        0.5,
        3.0,
        (12, 5, 4),
        16,
    ),
}

FIRST_SEEDS = {"bart_a": 700, "bart_b": 800}  # first seed to try; the first one with varied texts is used

WRITINGS = [
    dict(),
    dict(num_beams=2),
    dict(num_beams=4),
    dict(num_beams=4, early_stopping=True, length_penalty=2.0),
    dict(num_beams=3, early_stopping="never", length_penalty=-1.0),
    dict(num_beams=4, early_stopping="never", length_penalty=0.5),
    dict(num_beams=1, no_repeat_ngram_size=2, min_length=8),
    dict(num_beams=2, no_repeat_ngram_size=1),
    dict(num_beams=4, no_repeat_ngram_size=3, min_length=6, max_length=12, early_stopping=True),
    dict(num_beams=4, forced_bos_token_id=0, forced_eos_token_id=2, max_length=9),
    dict(num_beams=1, forced_bos_token_id=0, forced_eos_token_id=2, max_length=9),
    dict(repetition_penalty=1.7),
    dict(num_beams=3, repetition_penalty=1.3, no_repeat_ngram_size=2),
    dict(max_new_tokens=5),
    dict(num_beams=2, min_new_tokens=9, max_length=15),
    dict(suppress_tokens=list(range(3, 40))),
    dict(num_beams=3, begin_suppress_tokens=list(range(3, 50))),
    dict(begin_suppress_tokens=list(range(3, 50)), forced_bos_token_id=0),
]


def is_varied(writings):
    """Returns whether the texts end at different positions."""
    return len({len(writing["ids"]) for writing in writings}) > 5


def make(name, changes, deviation, end, lengths, time):
    seed = FIRST_SEEDS[name]
    while not make_of(seed, name, changes, deviation, end, lengths, time):
        seed += 1


def make_of(seed, name, changes, deviation, end, lengths, time):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    config = transformers.BartConfig(
        **{
            **dict(
                vocab_size=61,
                d_model=16,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
                max_position_embeddings=20,
                attn_implementation="eager",
            ),
            **changes,
        }
    )
    model = transformers.BartForConditionalGeneration(config).float().eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # otherwise the table's row of that token gets no gradient
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            vector = parameter.dim() == 1
            gain = vector and "norm" in key and "weight" in key
            table = "shared" in key or "embed" in key
            parameter.normal_(1.0 if gain else 0.0, 0.2 if vector else 0.3 if table else deviation)
        model.final_logits_bias.normal_(0.0, 0.5)
        model.final_logits_bias[0, 2] += end  # makes texts end
    sources = torch.randint(3, config.vocab_size, (len(lengths), max(lengths)))
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    sources[~mask] = config.pad_token_id
    tokens = torch.randint(config.vocab_size, (len(lengths), time + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    reads = dict(input_ids=sources, attention_mask=mask.long())
    model = model.double()
    logits = model(**reads, decoder_input_ids=inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size), targets.reshape(-1))
    loss.backward()
    gradients = {"grad." + key: value.grad.float() for key, value in model.named_parameters() if value.grad is not None}
    model = model.float()
    model.save_pretrained(folder)
    greedy = inputs[:, :2]
    with torch.no_grad():
        for _ in range(6):
            following = model(**reads, decoder_input_ids=greedy).logits[:, -1].argmax(-1)
            greedy = torch.cat([greedy, following[:, None]], 1)
    expected = {
        "source_tokens": sources.int().contiguous(),
        "source_lengths": torch.tensor(lengths).int(),
        "tokens": inputs.int().contiguous(),
        "targets": targets.int().contiguous(),
        "logits": logits.detach().float().contiguous(),
        "greedy": greedy.int().contiguous(),
        "loss": loss.detach().float().reshape(1),
        **{key: value.contiguous() for key, value in gradients.items()},
    }
    save_file(expected, folder / "expected.safetensors")
    writings = []
    for settings in WRITINGS:
        for row, length in zip(sources, lengths):
            settings = {"max_length": 20, "num_beams": 1, "forced_eos_token_id": None, **settings}
            generation = transformers.GenerationConfig(
                **settings, do_sample=False, bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2
            )
            model.generation_config = generation
            with torch.no_grad():
                ids = model.generate(row[None, :length], generation_config=generation)
            writings.append(dict(settings=settings, source=row[:length].tolist(), ids=ids[0].tolist()))
    text = ",\n".join(json.dumps(writing) for writing in writings)
    (folder / "writings.json").write_text("[" + text + "]\n")
    print(name, seed, float(loss.detach()), [len(w["ids"]) for w in writings])
    return is_varied(writings)


for name, arguments in SIZES.items():
    make(name, *arguments)
