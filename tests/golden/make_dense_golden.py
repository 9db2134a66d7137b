#!/usr/bin/env python3
"""Writes a folder for each small dense decoder of MODELS next to this script, like make_hybrid_golden.py, whose draws and
results it uses. With names as arguments, writes only those folders."""

import sys

import make_hybrid_golden as hybrid

SMALL = dict(
    hidden_size=12,
    intermediate_size=8,
    vocab_size=19,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
)
SCALES = dict(embedding_multiplier=1.5, residual_multiplier=0.9, attention_multiplier=0.25, logits_scaling=3.0)
FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT = dict(rope_type="default")
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=1e4,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
LONGROPE = dict(
    rope_type="longrope",
    rope_theta=1e4,
    partial_rotary_factor=0.5,
    short_factor=[1.0, 1.25, 1.5],
    long_factor=[1.5, 2.0, 6.5],
)
MODELS = {  # class, differences from SMALL, batch, time, tokens of a row's first document or 0
    "granite_a": (
        "Granite",
        dict(SCALES, head_dim=6, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        2,
        17,
        7,
    ),
    "granite_plain": (
        "Granite",
        dict(hidden_size=16, intermediate_size=12, vocab_size=31, num_key_value_heads=1, logits_scaling=0.5),
        1,
        17,
        0,
    ),
    "olmo2_a": ("Olmo2", dict(head_dim=6, attention_bias=True, num_key_value_heads=4), 2, 17, 7),
    "olmo2_tied": (
        "Olmo2",
        dict(num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True, num_hidden_layers=1),
        1,
        17,
        0,
    ),
    "glm4_a": ("Glm4", dict(num_attention_heads=2, num_key_value_heads=1, head_dim=12), 2, 17, 7),
    "glm4_tied": (
        "Glm4",
        dict(
            head_dim=8,
            attention_bias=False,
            tie_word_embeddings=True,
            rope_parameters=dict(DEFAULT, rope_theta=100.0, partial_rotary_factor=0.75),
        ),
        1,
        17,
        0,
    ),
    "smollm3_a": ("SmolLM3", dict(num_hidden_layers=4, head_dim=6), 1, 17, 7),
    "smollm3_windows": (
        "SmolLM3",
        dict(
            num_hidden_layers=4,
            num_attention_heads=3,
            num_key_value_heads=1,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
            use_sliding_window=True,
            sliding_window=5,
            no_rope_layers=[0, 1, 1, 0],
            layer_types=[SLIDING, SLIDING, FULL, FULL],
        ),
        1,
        17,
        0,
    ),
    "phi3_a": ("Phi3", dict(hidden_size=16, sliding_window=5), 2, 17, 7),
    "phi3_longrope": (
        "Phi3",
        dict(
            hidden_size=24,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_hidden_layers=1,
            original_max_position_embeddings=8,
            rope_parameters=LONGROPE,
            tie_word_embeddings=True,
        ),
        1,
        17,
        5,
    ),
    "olmo3_a": (
        "Olmo3",
        dict(
            num_hidden_layers=4,
            num_attention_heads=3,
            num_key_value_heads=1,
            sliding_window=5,
            rope_parameters={FULL: dict(YARN, rope_theta=5e5), SLIDING: dict(DEFAULT, rope_theta=5e5)},
        ),
        1,
        33,
        7,
    ),
    "olmo3_types": (
        "Olmo3",
        dict(
            head_dim=6,
            attention_bias=True,
            tie_word_embeddings=True,
            sliding_window=7,
            layer_types=[FULL, SLIDING],
            rope_parameters={FULL: dict(YARN, rope_theta=100.0), SLIDING: dict(DEFAULT, rope_theta=7.0)},
        ),
        1,
        17,
        0,
    ),
    "exaone4_a": (
        "Exaone4",
        dict(num_hidden_layers=4, sliding_window=5, num_attention_heads=2, num_key_value_heads=1, head_dim=6),
        1,
        17,
        7,
    ),
    "exaone4_full": (
        "Exaone4",
        dict(hidden_size=16, sliding_window=None, layer_types=[FULL, FULL], rope_parameters=LLAMA3, tie_word_embeddings=True),
        2,
        17,
        0,
    ),
}


def make(name):
    family, changes, *shape = MODELS[name]
    hybrid.make(name, family, {**SMALL, **changes}, *shape)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
