#include "src/gguf/gguf_names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

constexpr std::array kArchitectures{
    GgufArchitecture{"gpt2", "gpt2"},
    GgufArchitecture{.family = "llama", .name = "llama", .pairs_rows = true},
    GgufArchitecture{.family = "mistral", .name = "llama", .pairs_rows = true},
    GgufArchitecture{"qwen2", "qwen2"},
    GgufArchitecture{"qwen3", "qwen3"},
    GgufArchitecture{.family = "gemma2", .name = "gemma2", .is_gemma = true},
    GgufArchitecture{.family = "gemma3", .name = "gemma3", .is_gemma = true}};

struct Renamed {
  std::string_view in_folder, in_file;
};

constexpr std::array kTopNames{
    Renamed{"embed_tokens", "token_embd"}, Renamed{"norm", "output_norm"},
    Renamed{"lm_head", "output"},          Renamed{"wte", "token_embd"},
    Renamed{"wpe", "position_embd"},       Renamed{"ln_f", "output_norm"}};

constexpr std::array kLayerNames{Renamed{"input_layernorm", "attn_norm"},
                                 Renamed{"self_attn.q_proj", "attn_q"},
                                 Renamed{"self_attn.k_proj", "attn_k"},
                                 Renamed{"self_attn.v_proj", "attn_v"},
                                 Renamed{"self_attn.o_proj", "attn_output"},
                                 Renamed{"self_attn.q_norm", "attn_q_norm"},
                                 Renamed{"self_attn.k_norm", "attn_k_norm"},
                                 Renamed{"pre_feedforward_layernorm", "ffn_norm"},
                                 Renamed{"post_feedforward_layernorm", "post_ffw_norm"},
                                 Renamed{"mlp.gate_proj", "ffn_gate"},
                                 Renamed{"mlp.up_proj", "ffn_up"},
                                 Renamed{"mlp.down_proj", "ffn_down"},
                                 Renamed{"ln_1", "attn_norm"},
                                 Renamed{"attn.c_attn", "attn_qkv"},
                                 Renamed{"attn.c_proj", "attn_output"},
                                 Renamed{"ln_2", "ffn_norm"},
                                 Renamed{"mlp.c_fc", "ffn_up"},
                                 Renamed{"mlp.c_proj", "ffn_down"}};

std::string_view renamed(std::span<const Renamed> names, std::string_view module) {
  const auto found = std::ranges::find(names, module, &Renamed::in_folder);
  return found == names.end() ? "" : found->in_file;
}

/// Of the same shape, on the host.
Tensor empty_like(const Tensor& values) {
  const Stream host(MemoryPool::create("host"));
  return Tensor::empty_like(values, MemoryKind::kWorkspace, host);
}

Tensor with_paired_rows(const Tensor& values, std::int64_t heads, bool pair) {
  const Tensor changed = empty_like(values);
  const std::int64_t rows = values.shape()[0];
  const auto bytes = static_cast<std::size_t>(values.elements() / rows) * sizeof(float);
  const auto* from = static_cast<const std::byte*>(values.raw());
  auto* to = static_cast<std::byte*>(changed.raw());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t paired = paired_row(row, rows, heads);
    std::memcpy(to + static_cast<std::size_t>(pair ? paired : row) * bytes,
                from + static_cast<std::size_t>(pair ? row : paired) * bytes, bytes);
  }
  return changed;
}

Tensor plus(const Tensor& values, float added) {
  const Tensor changed = empty_like(values);
  std::transform(values.data<float>(), values.data<float>() + values.elements(),
                 changed.data<float>(), [=](float value) { return value + added; });
  return changed;
}

}  // namespace

const GgufArchitecture* gguf_architecture_of_family(std::string_view family) {
  const auto* found = std::ranges::find(kArchitectures, family, &GgufArchitecture::family);
  return found == kArchitectures.end() ? nullptr : found;
}

const GgufArchitecture* gguf_architecture_of_name(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  return found == kArchitectures.end() ? nullptr : found;
}

std::string gguf_architectures_text() {
  std::string text;
  for (const GgufArchitecture& one : kArchitectures)
    if (gguf_architecture_of_name(one.name) == &one)
      text += concat(text.empty() ? "" : ", ", one.name);
  return text;
}

std::string gguf_families_text() {
  std::string text;
  for (const GgufArchitecture& one : kArchitectures)
    text += concat(text.empty() ? "" : ", ", one.family);
  return text;
}

std::int64_t paired_row(std::int64_t row, std::int64_t rows, std::int64_t heads) {
  const std::int64_t half = rows / heads / 2;
  const std::int64_t head = row / (2 * half), within = row % (2 * half);
  return head * 2 * half + 2 * (within % half) + within / half;
}

GgufName gguf_name(const GgufArchitecture& architecture, std::int64_t heads, std::int64_t key_heads,
                   const std::string& in_folder) {
  std::string_view rest = in_folder;
  const std::size_t end = rest.rfind('.');
  const std::string ending(rest.substr(end));
  std::string_view module = rest.substr(0, end), found;
  std::string prefix;
  for (const std::string_view layers : {"layers.", "h."}) {
    if (!module.starts_with(layers)) continue;
    const std::size_t number = layers.size(), dot = module.find('.', number);
    prefix = concat("blk.", module.substr(number, dot - number), ".");
    module.remove_prefix(dot + 1);
    break;
  }
  if (prefix.empty()) {
    found = renamed(kTopNames, module);
  } else if (module == "post_attention_layernorm") {
    found = architecture.is_gemma ? "post_attention_norm" : "ffn_norm";
  } else {
    found = renamed(kLayerNames, module);
  }
  if (found.empty())
    throw DataError(concat("the tensor ", in_folder, " has no place in a GGUF file"));
  GgufName name{.name = concat(prefix, found, ending)};
  if (architecture.is_gemma && found.ends_with("norm")) name.change = GgufChange::kOnePlus;
  if (architecture.pairs_rows && (found == "attn_q" || found == "attn_k")) {
    name.change = GgufChange::kPairedRows;
    name.heads = found == "attn_q" ? heads : key_heads;
  }
  return name;
}

Tensor to_gguf(const Tensor& values, const GgufName& name) {
  if (name.change == GgufChange::kNone) return values;
  return name.change == GgufChange::kOnePlus ? plus(values, 1)
                                             : with_paired_rows(values, name.heads, true);
}

Tensor from_gguf(const Tensor& values, const GgufName& name) {
  if (name.change == GgufChange::kNone) return values;
  return name.change == GgufChange::kOnePlus ? plus(values, -1)
                                             : with_paired_rows(values, name.heads, false);
}

std::vector<float> llama3_divisors(const Llama3Rotation& rotation) {
  const double original = static_cast<double>(rotation.original_context);
  const double size = static_cast<double>(rotation.head_size);
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < rotation.head_size / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / size;
    const double turns = original / (2 * std::numbers::pi * std::pow(rotation.theta, exponent));
    const double share = std::clamp(
        (turns - rotation.low_frequency) / (rotation.high_frequency - rotation.low_frequency), 0.0,
        1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - share) / rotation.factor + share)));
  }
  return divisors;
}

std::optional<Llama3Rotation> llama3_rotation_of(std::span<const float> divisors, double theta) {
  if (divisors.empty()) return {};
  constexpr double kClose = 1e-4;  // llama.cpp's converter computes in f32
  Llama3Rotation rotation{.head_size = static_cast<std::int64_t>(2 * divisors.size()),
                          .theta = theta,
                          .factor = *std::ranges::max_element(divisors)};
  // The context is told by no key: powers of two, 8192 of Llama 3.1 to 3.3 among them.
  for (rotation.original_context = 8; rotation.original_context <= (1 << 20);
       rotation.original_context *= 2) {
    const std::vector<float> made = llama3_divisors(rotation);
    const bool are_close = std::ranges::equal(
        made, divisors, [](double a, double b) { return std::abs(a - b) <= kClose * std::abs(b); });
    if (are_close) return rotation;
  }
  return {};
}

}  // namespace hybrid_trainer
