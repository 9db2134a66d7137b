#!/usr/bin/env python3
"""Writes small folders of text encoders next to this script: config.json and model.safetensors. expected.safetensors
contains transformers' results for a row of two texts, each computed alone: tokens with positions and types, targets (-1
for none), hidden states, logits, the mean loss of the targets with its gradients ("grad.NAME"), and the gradients of
the sum of hidden states times `weights` ("body.NAME"). F64 results, stored in F32, eager attention, on the CPU.
Weights, gains and biases are random."""

import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

VOCABULARY, LENGTHS = 37, (11, 6)
SIZES = dict(vocab_size=VOCABULARY, attn_implementation="eager", pad_token_id=1)
BERT = dict(
    **SIZES,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)
MODELS = {
    "bert_a": (transformers.BertConfig(**BERT), transformers.BertForMaskedLM),
    "bert_body": (transformers.BertConfig(**BERT), transformers.BertModel),
    "distilbert_a": (
        transformers.DistilBertConfig(
            **SIZES, dim=12, n_layers=2, n_heads=3, hidden_dim=20, max_position_embeddings=16
        ),
        transformers.DistilBertForMaskedLM,
    ),
    "roberta_a": (
        transformers.RobertaConfig(**BERT, type_vocab_size=1, layer_norm_eps=1e-5),
        transformers.RobertaForMaskedLM,
    ),
    "xlm_roberta_a": (
        transformers.XLMRobertaConfig(**BERT, type_vocab_size=1),
        transformers.XLMRobertaForMaskedLM,
    ),
    "modernbert_a": (
        transformers.ModernBertConfig(
            **SIZES,
            hidden_size=12,
            num_hidden_layers=5,
            num_attention_heads=3,
            intermediate_size=10,
            max_position_embeddings=32,
            local_attention=4,
            global_attn_every_n_layers=3,
            bos_token_id=None,
            eos_token_id=None,
            cls_token_id=None,
            sep_token_id=None,
        ),
        transformers.ModernBertForMaskedLM,
    ),
}


def randomize(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # otherwise the table's row of that token gets no gradient
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            vector = parameter.dim() == 1
            gain = vector and key.endswith("weight")
            parameter.normal_(1.0 if gain else 0.0, 0.2 if vector else 0.4)


def gradients_of(model, prefix):
    """Returns the gradients by all names, except the token table's name as a head."""
    named = model.named_parameters(remove_duplicate=False)
    return {
        prefix + key: value.grad.float().clone()
        for key, value in named
        if value.grad is not None and not key.endswith(("decoder.weight", "vocab_projector.weight"))
    }


def make(seed, name, config, kind):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    model = kind(config).eval()
    randomize(model)
    model.float().save_pretrained(folder)
    model = model.double()
    texts = [torch.randint(2, VOCABULARY, (1, length)) for length in LENGTHS]
    type_count = getattr(config, "type_vocab_size", 0)
    types = [torch.randint(max(type_count, 1), text.shape) for text in texts]
    has_head = kind is not transformers.BertModel
    hidden, logits = [], []
    for text, of_text in zip(texts, types):
        inputs = dict(input_ids=text, output_hidden_states=True)
        if type_count > 1:
            inputs["token_type_ids"] = of_text
        output = model(**inputs)
        body = model.base_model(**{key: value for key, value in inputs.items() if key != "output_hidden_states"})
        hidden.append(body.last_hidden_state[0])
        if has_head:
            logits.append(output.logits[0])
    hidden = torch.cat(hidden)
    tokens = torch.cat(texts, 1)
    weights = torch.randn(hidden.shape, dtype=torch.float64)
    (hidden * weights).sum().backward()
    expected = {
        "tokens": tokens.int(),
        "types": torch.cat(types, 1).int(),
        "positions": torch.cat([torch.arange(length) for length in LENGTHS])[None].int(),
        "hidden": hidden.detach().float(),
        "weights": weights.float(),
        **gradients_of(model, "body."),
    }
    if has_head:
        model.zero_grad()
        logits = torch.cat(logits)
        targets = torch.where(torch.arange(tokens.numel()) % 3 == 0, tokens[0].flip(0), -1)
        loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1)
        loss.backward()
        expected |= {
            "targets": targets[None].int(),
            "logits": logits.detach().float(),
            "loss": loss.detach().float().reshape(1),
            **gradients_of(model, "grad."),
        }
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    print(name, tuple(hidden.shape), float(expected.get("loss", torch.zeros(1))))


for number, (name, (config, kind)) in enumerate(MODELS.items()):
    make(900 + number, name, config, kind)
