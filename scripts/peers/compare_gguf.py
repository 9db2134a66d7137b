#!/usr/bin/env python3
"""Compares GGUF files that `hybrid export` writes with llama.cpp, on tiny models with random weights.

usage: compare_gguf.py HYBRID FOLDER [FAMILY...]

Makes a transformers folder for each case in FOLDER and exports it. Prints the largest difference of the
log-probabilities of llama.cpp and of transformers in f32 over the entire vocabulary, and how many of 1,000 lines
have different tokens. Needs torch, transformers, tokenizers, gguf and xllamacpp from PyPI.
"""
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import torch
import transformers
import xllamacpp
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>"]


def split_of(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizer_of(kind, texts):
    whole = kind in ("llama2", "gemma", "mistral")
    tokenizer = Tokenizer(models.BPE(byte_fallback=whole, unk_token="<unk>" if whole else None, fuse_unk=whole,
                                     ignore_merges=kind == "llama3"))
    steps = {"gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False), "llama3": split_of(LLAMA3), "smaug": split_of(LLAMA3),
             "qwen2": split_of(QWEN2), "mistral": pre_tokenizers.Metaspace(prepend_scheme="always", split=False),
             "gemma": pre_tokenizers.Split(" ", "merged_with_previous"),
             "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])}
    if kind in steps:
        tokenizer.pre_tokenizer = steps[kind]
    if kind == "llama2":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if kind == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    if whole:
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        tokenizer.decoder = decoders.ByteLevel()
    special = SPECIAL + ([f"<0x{byte:02X}>" for byte in range(256)] if whole else [])
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=special, show_progress=False,
                                  initial_alphabet=[] if whole else pre_tokenizers.ByteLevel.alphabet())
    # At most the words of one sentence, so that training ends soon.
    if whole:
        cut = pre_tokenizers.Split(Regex(r" ?[^\s]+|\s+"), "isolated")
        kept, tokenizer.pre_tokenizer = tokenizer.pre_tokenizer, cut
        normal, tokenizer.normalizer = tokenizer.normalizer, normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁]+"), "isolated")
        tokenizer.train_from_iterator(texts, trainer)
        state = json.loads(tokenizer.to_str())
        state["added_tokens"] = [one for one in state["added_tokens"] if one["content"] in SPECIAL]
        tokenizer = Tokenizer.from_str(json.dumps(state))
        tokenizer.normalizer = normal
        if kept is None:
            state = json.loads(tokenizer.to_str())
            state["pre_tokenizer"] = None
            tokenizer = Tokenizer.from_str(json.dumps(state))
        else:
            tokenizer.pre_tokenizer = kept
    else:
        tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def config_of(case, vocabulary):
    common = dict(vocab_size=vocabulary, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                  initializer_range=0.2)
    gemma = dict(head_dim=32, query_pre_attn_scalar=32, sliding_window=8, hidden_activation="gelu_pytorch_tanh")
    scaling = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
    return {
        "gpt2": lambda: transformers.GPT2Config(vocab_size=vocabulary, n_embd=64, n_layer=3, n_head=4, n_positions=256,
                                                bos_token_id=1, eos_token_id=2, initializer_range=0.2),
        "llama": lambda: transformers.LlamaConfig(**common),
        "llama_tied": lambda: transformers.LlamaConfig(**common, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
        "llama31": lambda: transformers.LlamaConfig(**{**common, "max_position_embeddings": 512}, rope_theta=500000.0,
                                                    rope_scaling=scaling, head_dim=24),
        "mistral": lambda: transformers.MistralConfig(**common, sliding_window=None),
        "qwen2": lambda: transformers.Qwen2Config(**common),
        "qwen3": lambda: transformers.Qwen3Config(**common, head_dim=32, tie_word_embeddings=True),
        "gemma2": lambda: transformers.Gemma2Config(**common, **gemma),
        "gemma3": lambda: transformers.Gemma3TextConfig(
            **{**common, "num_hidden_layers": 4}, **gemma, rope_theta=1000000.0, rope_local_base_freq=10000.0,
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]),
        "granite": lambda: transformers.GraniteConfig(
            **common, attention_bias=True, embedding_multiplier=1.5, residual_multiplier=0.9, attention_multiplier=0.125,
            logits_scaling=2.0, rope_theta=10000.0, rope_scaling=scaling),
        "olmo2": lambda: transformers.Olmo2Config(**common),
        "glm4": lambda: transformers.Glm4Config(**common, head_dim=24),
        "smollm3": lambda: transformers.SmolLM3Config(**{**common, "num_hidden_layers": 5}),
        "longrope": lambda: transformers.Phi3Config(  # llama.cpp wants the tokens of Phi-3 in models of that name
            **{**common, "max_position_embeddings": 1024}, original_max_position_embeddings=512, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5,
                                 short_factor=[1.0, 1.1, 1.5, 2.0], long_factor=[1.5, 2.0, 6.5, 9.0])),
        "exaone4": lambda: transformers.Exaone4Config(**common, sliding_window=None, layer_types=["full_attention"] * 3,
                                                      rope_theta=10000.0, rope_scaling=scaling),
        "mixtral": lambda: transformers.MixtralConfig(**common, num_local_experts=6, num_experts_per_tok=2,
                                                      sliding_window=None),
        "qwen2_moe": lambda: transformers.Qwen2MoeConfig(
            **common, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48),
        "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
            **common, head_dim=32, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True),
        "olmoe": lambda: transformers.OlmoeConfig(**{**common, "num_key_value_heads": 4}, num_experts=6,
                                                  num_experts_per_tok=2),
        "granitemoe": lambda: transformers.GraniteMoeConfig(
            **common, num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=1.5, residual_multiplier=0.9,
            attention_multiplier=0.125, logits_scaling=2.0, tie_word_embeddings=True),
        "gpt_oss": lambda: transformers.GptOssConfig(
            **common, head_dim=32, num_local_experts=6, num_experts_per_tok=2, sliding_window=8,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(rope_type="default", rope_theta=150000.0)),
        "lfm2_moe": lambda: transformers.Lfm2MoeConfig(
            **{**common, "num_hidden_layers": 4}, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
            num_dense_layers=1, layer_types=["conv", "full_attention", "conv", "full_attention"]),
        "olmo3": lambda: transformers.Olmo3Config(
            **{**common, "num_hidden_layers": 5}, sliding_window=8,
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            rope_parameters=dict(
                sliding_attention=dict(rope_type="default", rope_theta=500000.0),
                full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                    attention_factor=1.1386294361119891, original_max_position_embeddings=64))),
        "exaone4_32b": lambda: transformers.Exaone4Config(  # llama.cpp has windows in models of 64 layers
            **{**common, "num_hidden_layers": 64, "hidden_size": 32, "initializer_range": 0.1}, sliding_window=8,
            sliding_window_pattern=4, rope_theta=10000.0, rope_scaling=scaling),
        "gemma4": lambda: transformers.Gemma4TextConfig(
            **{**common, "num_hidden_layers": 8, "initializer_range": 0.02}, head_dim=16, global_head_dim=32,
            sliding_window=8, final_logit_softcapping=30.0, hidden_size_per_layer_input=16,
            vocab_size_per_layer_input=vocabulary, num_kv_shared_layers=4,
            use_double_wide_mlp=True, hidden_activation="gelu_pytorch_tanh", enable_moe_block=False,
            layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 2),
        "gemma4_31b": lambda: transformers.Gemma4TextConfig(
            **{**common, "num_hidden_layers": 4, "initializer_range": 0.02}, head_dim=16, global_head_dim=32,
            sliding_window=8, attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=0,
            num_kv_shared_layers=0, enable_moe_block=False, hidden_activation="gelu_pytorch_tanh", layer_types=["sliding_attention"] * 3 + ["full_attention"]),
        "qwen3_next": lambda: transformers.Qwen3NextConfig(
            **{**common, "num_hidden_layers": 4}, head_dim=32, linear_key_head_dim=32, linear_value_head_dim=32,
            linear_num_key_heads=2, linear_num_value_heads=4, num_experts=6, num_experts_per_tok=2,
            moe_intermediate_size=32, shared_expert_intermediate_size=48),
        "qwen3_5": lambda: transformers.Qwen3_5TextConfig(
            **{**common, "num_hidden_layers": 4}, head_dim=32, linear_key_head_dim=32, linear_value_head_dim=32,
            linear_num_key_heads=2, linear_num_value_heads=6),
        "qwen3_5_moe": lambda: transformers.Qwen3_5MoeTextConfig(
            **{key: value for key, value in common.items() if key not in ("num_hidden_layers", "intermediate_size")},
            num_hidden_layers=4, head_dim=32, linear_key_head_dim=32, linear_value_head_dim=32, linear_num_key_heads=2,
            linear_num_value_heads=4, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
            shared_expert_intermediate_size=48),
    }[case]()


TOKENIZERS = {"gpt2": "gpt2", "llama": "llama2", "llama_tied": "smollm", "llama31": "llama3", "mistral": "mistral",
              "qwen2": "qwen2", "qwen3": "smaug", "gemma2": "gemma", "gemma3": "gemma",
              "granite": "gpt2", "olmo2": "llama3", "glm4": "smaug", "smollm3": "llama3", "longrope": "llama2", "exaone4": "qwen2",
              "mixtral": "mistral", "qwen2_moe": "qwen2", "qwen3_moe": "qwen2", "olmoe": "gpt2", "granitemoe": "gpt2",
              "gpt_oss": "llama3", "lfm2_moe": "llama3", "olmo3": "llama3", "exaone4_32b": "qwen2",
              "gemma4": "gemma", "gemma4_31b": "gemma", "qwen3_next": "qwen2", "qwen3_5": "qwen2", "qwen3_5_moe": "qwen2"}


class HalfGelu(torch.nn.Module):
    """ggml's GELU on the CPU: a table from f16 to f16, outside of which it is 0 or x."""

    def forward(self, x):
        y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, y))


def with_gelu_of_ggml(model):
    for module in model.modules():
        for name in ("act", "act_fn"):
            if "gelu" in type(getattr(module, name, None)).__name__.lower():
                setattr(module, name, HalfGelu())
    return model


def make_folder(case, folder, texts):
    torch.manual_seed(1)
    tokenizer = tokenizer_of(TOKENIZERS[case], texts)
    config = config_of(case, tokenizer.get_vocab_size() + 4)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:
                value.add_(0.1 * torch.randn_like(value))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}))
    return with_gelu_of_ggml(model), tokenizer


def server_of(path, adapter=None):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 256
    params.warmup = False
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if adapter:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
    return xllamacpp.Server(params)


def log_probabilities(server, ids, vocabulary, bytes_alone):
    """Log-probabilities by id. The server returns none if the sampled token is not a complete character, so these are
    banned."""
    answer = server.handle_completions({"prompt": ids, "n_predict": 1, "n_probs": vocabulary, "temperature": 0,
                                        "ignore_eos": True, "logit_bias": [[id, False] for id in bytes_alone]})
    content = (answer["choices"][0].get("logprobs") or {}).get("content") or []
    return {one["id"]: one["logprob"] for one in content[0]["top_logprobs"]} if content else {}


def not_characters(tokenizer):
    """Ids of tokens that are not complete characters."""
    ids = range(tokenizer.get_vocab_size())
    return [id for id in ids if id < len(SPECIAL) or "\ufffd" in tokenizer.decode([id]) or tokenizer.id_to_token(id).startswith("<0x")]


def token_ids(server, text):
    request = urllib.request.Request(server.listening_address + "/tokenize",
                                     json.dumps({"content": text, "add_special": False, "parse_special": False}).encode(),
                                     {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request).read())["tokens"]


def compare_adapter(hybrid, folder, case, tokenizer):
    """Compares an adapter on its base in llama.cpp with the merged model."""
    rows, run = folder / "rows.jsonl", folder / f"{case}-run"
    rows.write_text("".join(json.dumps({"prompt": f"Question {i}: ", "completion": f" the answer is {i * i}."}) + "\n"
                            for i in range(12)))
    adapter, merged = folder / f"{case}-adapter.gguf", folder / f"{case}-merged.gguf"
    for path in (adapter, merged):
        path.unlink(missing_ok=True)
    shutil.rmtree(run, ignore_errors=True)
    settings = ["lora.base=fp32", "lora.variant=rslora", "data.sequence_length=128", "training.steps=6",
                "optimizer.learning_rate=3e-2"]
    quiet = {"check": True, "stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.run([hybrid, "finetune", "--model", str(folder / case), "--data", str(rows), "--run", str(run), "--method", "lora"]
                   + [part for setting in settings for part in ("--set", setting)], **quiet)
    subprocess.run([hybrid, "export", str(run), "--format", "gguf", "--adapter", "--output", str(adapter)], **quiet)
    subprocess.run([hybrid, "export", str(run), "--format", "gguf", "--merge", "--type", "f32", "--output", str(merged)], **quiet)
    banned = not_characters(tokenizer)
    ids = torch.randint(300, 900, (20,), generator=torch.Generator().manual_seed(1)).tolist()
    found = [log_probabilities(server_of(path, beside), ids, tokenizer.get_vocab_size(), banned)
             for path, beside in ((merged, None), (folder / f"{case}-f32.gguf", adapter))]
    worst = max(abs(found[0][id] - found[1][id]) for id in found[0] if id in found[1])
    print(f"{case} adapter: log-probabilities differ by {worst:.2e} from those of the merged file", flush=True)


def compare(hybrid, folder, case, texts, lines):
    here = folder / case
    model, tokenizer = make_folder(case, here, texts)
    banned = not_characters(tokenizer) + list(range(tokenizer.get_vocab_size(), model.config.vocab_size))
    for kind in ("f32", "f16", "bf16", "q8_0", "q4_0"):
        path = folder / f"{case}-{kind}.gguf"
        path.unlink(missing_ok=True)
        subprocess.run([hybrid, "export", str(here), "--format", "gguf", "--type", kind, "--output", str(path)], check=True,
                       stderr=subprocess.DEVNULL if kind != "f32" else None)
        server = server_of(path)
        worst = 0.0
        for length in (3, 17, 60):
            generator = torch.Generator().manual_seed(length)
            ids = torch.randint(4, tokenizer.get_vocab_size(), (1, length), generator=generator)
            with torch.no_grad():
                wanted = torch.log_softmax(model(ids).logits[0, -1].double(), -1)
            found = log_probabilities(server, ids[0].tolist(), wanted.numel(), banned)
            missing = wanted.numel() - len(found)
            worst = max([worst] + [abs(value - wanted[id].item()) for id, value in found.items()])
            if missing:
                print(f"{case} {kind}: {missing} of {wanted.numel()} log-probabilities are not there")
        if kind == "f32":
            other = [line for line in lines if token_ids(server, line) != tokenizer.encode(line, add_special_tokens=False).ids]
            print(f"{case}: {len(other)} of {len(lines)} lines have other tokens", *[repr(line)[:100] for line in other[:3]])
        print(f"{case} {kind}: log-probabilities differ by {worst:.2e}", flush=True)
    if case in ("gpt2", "llama", "mistral", "qwen2", "qwen3"):
        compare_adapter(hybrid, folder, case, tokenizer)


def main():
    hybrid, folder, *cases = sys.argv[1:]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).resolve().parents[2]
    texts = [path.read_text() for path in sorted(root.glob("docs/*.md"))]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    lines = lines[:: max(1, len(lines) // 990)][:990]
    lines += ["  two  blanks", "tab\there", "1234567 and 12", "naïve café", "日本語のテキスト", "it's we'll I'D", "\n\nx\n", "emoji 👍🏽!",
              "a" * 40, "…"]
    for case in cases or TOKENIZERS:
        compare(hybrid, folder, case, texts, lines)


if __name__ == "__main__":
    main()
