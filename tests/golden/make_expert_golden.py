#!/usr/bin/env python3
"""Writes a folder for each small mixture-of-experts model of MODELS next to this script: config.json and
model.safetensors like transformers' save_pretrained, gpt_oss_mxfp4 in the format of OpenAI's release, and
expected.safetensors with transformers' results; README.md says more. Weights, gains, biases and sinks are random in
F32. Results are computed in F64 and rounded once. Skips seeds for which a token's choice of experts is nearly a tie,
or F32 is not precise enough. With names as arguments, writes only those folders."""

import contextlib
import itertools
import json
import pathlib
import shutil
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

import make_hybrid_golden as hybrid
from make_hybrid_golden import ATTENTION, COMMON, FULL, LINEAR, logits_of

GAP = 1e-3  # between the scores of a token's last chosen expert and the next one
APART = 4e-6  # relative error of F32 logits against F64
NO_TOKENS = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)  # otherwise padding's row gets no gradient
QWEN = dict(ATTENTION, moe_intermediate_size=9)
MULTIPLIERS = {key: value for key, value in hybrid.GRANITE.items() if "multiplier" in key or key == "logits_scaling"}
NARROW = dict(hybrid.NARROW, intermediate_size=10, moe_intermediate_size=5)
DELTA_EXPERTS = dict(
    {**hybrid.DELTA, **NARROW},
    head_dim=8,
    shared_expert_intermediate_size=7,
    rope_parameters=hybrid.QUARTER,
)
LFM2_EXPERTS = dict({**ATTENTION, **NARROW}, num_hidden_layers=3, layer_types=["conv", "conv", FULL])
GPT_OSS = dict(
    ATTENTION, head_dim=8, num_local_experts=4, num_experts_per_tok=2, intermediate_size=10, sliding_window=8
)
YARN = dict(
    rope_type="yarn",
    rope_theta=1500.0,
    factor=32.0,
    beta_fast=8.0,
    beta_slow=1.0,
    truncate=False,
    original_max_position_embeddings=64,
)
MODELS = {  # class, differences from COMMON, batch, time, tokens of a row's first document or 0
    "mixtral_a": (
        "Mixtral",
        dict(
            ATTENTION,
            head_dim=10,
            num_local_experts=5,
            num_experts_per_tok=2,
            intermediate_size=11,
            sliding_window=None,
        ),
        2,
        33,
        13,
    ),
    "mixtral_window": (
        "Mixtral",
        dict(
            ATTENTION,
            num_local_experts=4,
            num_experts_per_tok=1,
            sliding_window=8,
            tie_word_embeddings=True,
            num_hidden_layers=1,
            router_aux_loss_coef=0.05,
        ),
        1,
        33,
        0,
    ),
    "qwen2_moe_a": (
        "Qwen2Moe",
        dict(
            QWEN,
            num_experts=5,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            shared_expert_intermediate_size=13,
            decoder_sparse_step=2,
            mlp_only_layers=[1],
            num_hidden_layers=4,
        ),
        2,
        17,
        0,
    ),
    "qwen2_moe_norm": (
        "Qwen2Moe",
        dict(
            QWEN,
            num_experts=6,
            num_experts_per_tok=4,
            norm_topk_prob=True,
            shared_expert_intermediate_size=7,
            tie_word_embeddings=True,
        ),
        1,
        17,
        0,
    ),
    "qwen3_moe_a": (
        "Qwen3Moe",
        dict(
            QWEN,
            head_dim=14,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            mlp_only_layers=[0],
            router_aux_loss_coef=0.05,
        ),
        2,
        33,
        0,
    ),
    "qwen3_moe_plain": (
        "Qwen3Moe",
        dict(
            QWEN,
            head_dim=6,
            num_experts=7,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            attention_bias=True,
            tie_word_embeddings=True,
        ),
        1,
        17,
        0,
    ),
    "olmoe_a": (
        "Olmoe",
        dict(
            ATTENTION, num_experts=6, num_experts_per_tok=3, intermediate_size=9, num_key_value_heads=4, clip_qkv=None
        ),
        2,
        17,
        0,
    ),
    "olmoe_clip": (
        "Olmoe",
        dict(
            ATTENTION, num_experts=5, num_experts_per_tok=2, intermediate_size=7, clip_qkv=1.25, norm_topk_prob=True
        ),
        1,
        17,
        0,
    ),
    "granitemoe_a": (
        "GraniteMoe",
        dict(
            ATTENTION,
            **MULTIPLIERS,
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=11,
            tie_word_embeddings=True,
        ),
        2,
        33,
        0,
    ),
    "granitemoe_plain": (
        "GraniteMoe",
        dict(
            ATTENTION,
            num_attention_heads=3,
            num_key_value_heads=1,
            num_local_experts=6,
            num_experts_per_tok=3,
            intermediate_size=7,
            attention_bias=True,
        ),
        1,
        17,
        0,
    ),
    "granite_moe_hybrid": (
        "GraniteMoeHybrid",
        dict(
            hybrid.GRANITE,
            num_local_experts=5,
            num_experts_per_tok=2,
            intermediate_size=9,
            shared_intermediate_size=13,
            layer_types=[LINEAR, FULL],
        ),
        2,
        33,
        13,
    ),
    "qwen3_next_moe": (
        "Qwen3Next",
        dict(
            DELTA_EXPERTS,
            num_experts=5,
            num_experts_per_tok=3,
            norm_topk_prob=False,
            mlp_only_layers=[0],
            num_hidden_layers=3,
            layer_types=[LINEAR, LINEAR, FULL],
        ),
        2,
        33,
        13,
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeText",
        dict(
            DELTA_EXPERTS,
            num_experts=4,
            num_experts_per_tok=2,
            shared_expert_intermediate_size=3,
            layer_types=[FULL, LINEAR],
            tie_word_embeddings=True,
        ),
        1,
        33,
        0,
    ),
    "lfm2_moe_a": (
        "Lfm2Moe",
        dict(LFM2_EXPERTS, num_experts=5, num_experts_per_tok=3, routed_scaling_factor=1.5, num_dense_layers=1),
        2,
        33,
        13,
    ),
    "lfm2_moe_plain": (
        "Lfm2Moe",
        dict(
            LFM2_EXPERTS,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            use_expert_bias=False,
            num_dense_layers=0,
            tie_word_embeddings=False,
            conv_bias=True,
        ),
        1,
        17,
        0,
    ),
    "gpt_oss_a": (
        "GptOss",
        dict(GPT_OSS, rope_parameters=dict(rope_type="default", rope_theta=150000.0)),
        2,
        33,
        0,
    ),
    "gpt_oss_yarn": (
        "GptOss",
        dict(GPT_OSS, head_dim=16, num_local_experts=3, swiglu_limit=2.5, sliding_window=12, rope_parameters=YARN),
        1,
        33,
        0,
    ),
    "gpt_oss_mxfp4": (
        "GptOss",
        dict(GPT_OSS, hidden_size=32, intermediate_size=32, num_local_experts=3, rope_parameters=YARN),
        1,
        33,
        0,
    ),
}
ONE_PLUS = ("qwen3_next", "qwen3_5_moe_text")  # gains are stored minus 1
AUX = ("mixtral_window", "qwen3_moe_a")  # also with the balance loss of their single mixture layer
OLD_WORDS = (  # folders with the key names of version 4 and the Hub
    "mixtral_window",
    "qwen2_moe_norm",
    "qwen3_moe_plain",
    "olmoe_clip",
    "granitemoe_plain",
    "granite_moe_hybrid",
    "gpt_oss_yarn",
    "gpt_oss_mxfp4",
)
PACKED = "gpt_oss_mxfp4"
NOT_PACKED = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
FP4 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
BLOCK = 32


class Routing:
    """Each layer's choices in the latest pass, and the smallest gap of all layers."""

    def __init__(self, model):
        self.layers, self.gap = {}, float("inf")
        for name, module in routers(model):
            layer = int(name.split("layers.")[1].split(".")[0])
            bias = getattr(model.get_submodule(name.rsplit(".", 1)[0]), "expert_bias", None)
            module.register_forward_hook(
                lambda module, inputs, outputs, layer=layer, bias=bias: self.look(layer, bias, *outputs)
            )

    def look(self, layer, bias, scores, weights, experts):
        scores = scores.detach() if bias is None else scores.detach().sigmoid() + bias
        best = scores.topk(experts.shape[1] + 1).values
        self.gap = min(self.gap, float((best[:, -2] - best[:, -1]).min()))
        self.layers[layer] = (experts, weights.detach())


def routers(model):
    return [(name, module) for name, module in model.named_modules() if type(module).__name__.endswith("TopKRouter")]


def model_of(family, config):
    kind = getattr(transformers, family.removesuffix("Text") + "ForCausalLM")
    return kind._from_config(config, attn_implementation="eager", experts_implementation="eager").float()


def draw(model):
    """Gains of about 1, but 0.4 before experts: router weights have a standard deviation of 1, and the best expert must
    leave some weight to the others. Experts of gpt_oss are large enough to be clamped."""
    hybrid.draw(model, model.config)
    with torch.no_grad():
        for name, module in routers(model):
            for parameter in module.parameters():
                parameter.normal_(0.0, 1.0)
            layer = model.get_submodule(name[: name.index(".", name.index("layers.") + len("layers."))])
            norm = layer.ffn_norm if hasattr(layer, "ffn_norm") else layer.post_attention_layernorm
            norm.weight.normal_(-0.6 if model.config.model_type in ONE_PLUS else 0.4, 0.1)
            mixture = model.get_submodule(name.rsplit(".", 1)[0])
            if getattr(mixture, "expert_bias", None) is not None:
                mixture.expert_bias.normal_(0.0, 0.2)
            if model.config.model_type == "gpt_oss":
                layer.self_attn.sinks.normal_(0.0, 1.0)
                layer.mlp.experts.gate_up_proj.normal_(0.0, 1.5)


def draw_packed(random, experts, rows, columns, highest):
    """Codes and scales of blocks along the columns. Small scales are more likely, and each up to the highest occurs."""
    blocks = random.integers(0, 256, (experts, rows, columns // BLOCK, BLOCK // 2), dtype=numpy.uint8)
    scales = 119 + random.geometric(0.5, blocks.shape[:3]).clip(1, highest - 119).astype(numpy.uint8)
    every = numpy.arange(120, highest + 1, dtype=numpy.uint8)
    scales.reshape(-1)[random.permutation(scales.size)[: every.size]] = every
    return blocks, scales


def unpacked(blocks, scales):
    """The first of two numbers is in the low four bits."""
    numbers = numpy.stack((FP4[blocks & 15], FP4[blocks >> 4]), axis=-1).reshape(*blocks.shape[:3], BLOCK)
    return (numbers * 2.0 ** (scales[..., None].astype(int) - 127)).reshape(*blocks.shape[:2], -1)


def pack(model, seed):
    """Packs weights like OpenAI's release: experts in MXFP4, everything else in BF16. Returns the file's tensors, and
    the experts' tensors in BF16 as transformers stores them."""
    random = numpy.random.default_rng(seed)
    config, tensors, again = model.config, {}, {}
    for key, parameter in model.named_parameters():
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            parameter.data = parameter.data.bfloat16().float()
            tensors[key] = parameter.data.bfloat16().contiguous()
            continue
        rows, columns = (2 * config.intermediate_size, config.hidden_size)
        if key.endswith("down_proj"):
            rows, columns = (config.hidden_size, config.intermediate_size)
        highest = 134 if key == "model.layers.0.mlp.experts.gate_up_proj" else 126  # such rows are clamped
        blocks, scales = draw_packed(random, config.num_local_experts, rows, columns, highest)
        values = torch.from_numpy(unpacked(blocks, scales)).transpose(1, 2).contiguous()
        told = transformers.integrations.mxfp4.convert_moe_packed_tensors(
            torch.from_numpy(blocks), torch.from_numpy(scales)
        )
        assert torch.equal(told.double(), values), key
        parameter.data = values.float()
        tensors[key + "_blocks"], tensors[key + "_scales"] = torch.from_numpy(blocks), torch.from_numpy(scales)
        again[key] = values.bfloat16()
    return tensors, again


@contextlib.contextmanager
def in_double():
    single = torch.float
    torch.float = torch.float64
    try:
        with hybrid.in_double():
            yield
    finally:
        torch.float = single


def save(model, folder):
    """Qwen3.5's published folders have one tensor for all experts of a layer."""
    model.save_pretrained(folder, save_original_format=model.config.model_type != "qwen3_5_moe_text")


def as_saved(model, values):
    """Values of the model's parameters, with the names and shapes of its file."""
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.zeros_like(parameter) if values[key] is None else values[key])
        for key, buffer in model.named_buffers():
            if key.endswith("expert_bias"):
                buffer.zero_()
        save(model, folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {key: parameter.grad for key, parameter in model.named_parameters()}


def single(tensor):
    return tensor.detach().to(torch.get_default_dtype()).contiguous()


def expected_of(name, model, routing, tokens, first):
    vocabulary = model.config.vocab_size
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    with in_double():
        logits = logits_of(model, inputs)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1))
        chosen = dict(routing.layers)
        expected = {"tokens": inputs.int(), "targets": targets.int()}
        expected.update({"logits": single(logits), "loss": single(loss.reshape(1))})
        for layer, (experts, weights) in chosen.items():
            expected[f"experts.{layer}"] = experts.int()
            expected[f"weights.{layer}"] = single(weights)
        of_loss = gradients(model, loss)
        prompt = inputs[:1, :9]
        expected["prompt"] = prompt.int()
        expected["greedy"] = hybrid.greedy(model, prompt).int()
        if first > 0:  # the first row as two documents, each computed separately
            parts = [logits_of(model, part) for part in (inputs[:1, :first], inputs[:1, first:])]
            expected["document_logits"] = single(torch.cat(parts, dim=1))
            expected["document_tokens"] = torch.tensor([first, inputs.shape[1] - first], dtype=torch.int32)
        if name in AUX:
            told = model(input_ids=inputs, use_cache=False, output_router_logits=True)
            loss = torch.nn.functional.cross_entropy(told.logits.reshape(-1, vocabulary), targets.reshape(-1))
            loss = loss + model.config.router_aux_loss_coef * told.aux_loss
            expected["aux_loss"], expected["aux.loss"] = single(told.aux_loss.reshape(1)), single(loss.reshape(1))
            of_aux = gradients(model, loss)
    if name in AUX:
        kept = ("block_sparse_moe.gate.weight", "mlp.gate.weight", "self_attn.v_proj.weight")
        saved = as_saved(model, of_aux).items()
        expected.update({"aux.grad." + key: single(value) for key, value in saved if key.endswith(kept)})
    expected.update({"grad." + key: single(value) for key, value in as_saved(model, of_loss).items()})
    return {key: value.contiguous() for key, value in expected.items()}


def old_words(folder):
    path = folder / "config.json"
    text = json.loads(path.read_text())
    kind = text["model_type"]
    text["torch_dtype"] = text.pop("dtype")
    text["transformers_version"] = "4.57.3"
    rope = text.pop("rope_parameters")
    text["rope_theta"] = rope.pop("rope_theta")
    text["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if kind == "qwen3_moe":
        text["num_experts"] = text.pop("num_local_experts")
    if kind == "gpt_oss":
        text["experts_per_token"] = text["num_experts_per_tok"]
        text["initial_context_length"] = rope["original_max_position_embeddings"]
        text.pop("swiglu_alpha")
    if kind == "qwen2_moe":
        text.pop("layer_types")
        text["sliding_window"] = 4096
    path.write_text(json.dumps(dict(sorted(text.items())), indent=2) + "\n")
    if kind == "granitemoehybrid":
        hybrid.old_words(folder, hybrid.OLD_WORDS["granite_hybrid_rope"])


def attempt(name, seed, family, changes, batch, time, first):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    config = getattr(transformers, family + "Config")(**{**COMMON, **NO_TOKENS, **changes})
    model = model_of(family, config)
    draw(model)
    again = {}
    if name == PACKED:
        tensors, again = pack(model, seed)
        folder.mkdir()
        config.architectures, config.dtype = [type(model).__name__], "bfloat16"
        config.save_pretrained(folder)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        save(model, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in OLD_WORDS:
        old_words(folder)
    if name == PACKED:
        text = json.loads((folder / "config.json").read_text())
        text["quantization_config"] = {"modules_to_not_convert": NOT_PACKED, "quant_method": "mxfp4"}
        (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")
    tokens = torch.randint(config.vocab_size, (batch, time + 1))
    routing = Routing(model)
    expected = expected_of(name, model.double(), routing, tokens, first)
    expected.update({"again." + key: value for key, value in again.items()})
    assert routing.gap > GAP, "nearly a tie between experts"
    in_file = {key.replace("_blocks", "").replace("_scales", "") for key in load_file(folder / "model.safetensors")}
    graded = {key.removeprefix("grad.") for key in expected if key.startswith("grad.")}
    assert in_file == graded, in_file ^ graded
    save_file(expected, folder / "expected.safetensors")
    size = sum(parameter.numel() for parameter in model.parameters())
    print(name, "seed", seed, "parameters", size, "loss", float(expected["loss"]), "gap", routing.gap)
    for layer in sorted(routing.layers):
        experts, weights = expected[f"experts.{layer}"], expected[f"weights.{layer}"]
        print("   layer", layer, "loads", experts.flatten().bincount().tolist(), "weights", weights.mean(0).tolist())
    check(folder, expected)


def check(folder, expected):
    """Checks that transformers computes the same from the folder."""
    eager = dict(attn_implementation="eager", experts_implementation="eager")  # grouped_mm does not support odd widths
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.get_default_dtype(), **eager)
    with torch.no_grad():
        logits = logits_of(model.float(), expected["tokens"])
    apart = (logits - expected["logits"]).abs().max() / expected["logits"].abs().max()
    print("   read again:", float(apart))
    assert apart < APART, "nearly lost in F32's rounding"


def make(name, *arguments):
    for seed in itertools.count(sum(map(ord, name)), 1000):
        try:
            return attempt(name, seed, *arguments)
        except AssertionError as error:
            if "nearly" not in str(error):
                raise
            print(name, "seed", seed, error)


if __name__ == "__main__":
    for name, arguments in MODELS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, *arguments)
