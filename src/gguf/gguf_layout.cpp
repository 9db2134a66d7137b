#include "src/gguf/gguf_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/models/decoder_spec.h"

namespace hybrid_trainer {
namespace {

struct Architecture {
  std::string_view family, name;
  bool is_gemma = false, pairs_rows = false;
};

constexpr std::array kArchitectures{
    Architecture{"gpt2", "gpt2"},
    Architecture{.family = "llama", .name = "llama", .pairs_rows = true},
    Architecture{.family = "mistral", .name = "llama", .pairs_rows = true},
    Architecture{"qwen2", "qwen2"},
    Architecture{"qwen3", "qwen3"},
    Architecture{.family = "gemma2", .name = "gemma2", .is_gemma = true},
    Architecture{.family = "gemma3", .name = "gemma3", .is_gemma = true}};

const Architecture* find_architecture(const std::string& family) {
  const auto* found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                   [&](const Architecture& one) { return one.family == family; });
  return found == kArchitectures.end() ? nullptr : found;
}

[[noreturn]] void refuse(const std::string& key, const std::string& value, const char* why) {
  throw DataError(concat("model.", key, "=", value, " has no place in a GGUF file: ", why,
                         "; export a Hugging Face folder instead"));
}

std::int64_t head_size(const ModelConfig& model) {
  return model.head_size > 0 ? model.head_size : model.width / model.heads;
}

std::int64_t key_heads(const ModelConfig& model) {
  return model.key_heads > 0 ? model.key_heads : model.heads;
}

void check_scaling(const RotaryScaling& scaling) {
  const RotaryScaling usual;
  if (scaling.type == "dynamic")
    refuse("rope_scaling.type", "dynamic", "llama.cpp's angles do not change with the length");
  if (scaling.type == "yarn" &&
      (scaling.attention_factor != 0 || scaling.mscale != 0 || scaling.mscale_all_dim != 0 ||
       !scaling.truncate || scaling.beta_fast != 32 || scaling.beta_slow != 1))
    refuse("rope_scaling", "yarn with an attention_factor, mscale, beta or truncate of its own",
           "llama.cpp computes these by itself");
}

void check_gemma(const ModelConfig& model) {
  // Source: llama.cpp, src/models/gemma2.cpp and gemma3.cpp: f_attention_scale.
  const bool is_27b = model.layers == (model.family == "gemma2" ? 46 : 62);
  const double scalar = static_cast<double>(is_27b ? model.width / model.heads : head_size(model));
  if (model.query_scalar != scalar)
    refuse("query_scalar", concat(model.query_scalar),
           "llama.cpp divides scores by the root of a head's size");
  if (model.attention_bias) refuse("attention_bias", "true", "llama.cpp's Gemma has no biases");
  if (!model.tied_head) refuse("tied_head", "false", "llama.cpp's Gemma shares its token table");
  if (model.family == "gemma2" && (model.attention_cap == 0 || model.logit_cap == 0))
    refuse("attention_cap and model.logit_cap", "0", "llama.cpp's Gemma 2 always caps");
  if (model.family == "gemma3" && model.attention_cap > 0)
    refuse("attention_cap", concat(model.attention_cap), "llama.cpp's Gemma 3 caps no scores");
}

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
  const std::int64_t rows = values.shape()[0], half = rows / heads / 2;
  const auto bytes = static_cast<std::size_t>(values.elements() / rows) * sizeof(float);
  const auto* from = static_cast<const std::byte*>(values.raw());
  auto* to = static_cast<std::byte*>(changed.raw());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / (2 * half), within = row % (2 * half);
    const std::int64_t paired = head * 2 * half + 2 * (within % half) + within / half;
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

void add_rotary_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values) {
  values.push_back(gguf_count(name + ".rope.dimension_count", head_size(model)));
  values.push_back(gguf_number(name + ".rope.freq_base", model.rope_theta));
  if (model.window_rope_theta > 0)
    values.push_back(gguf_number(name + ".rope.freq_base_swa", model.window_rope_theta));
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  if (scaling.type != "linear" && scaling.type != "yarn") return;
  values.push_back(gguf_text(name + ".rope.scaling.type", scaling.type));
  values.push_back(gguf_number(name + ".rope.scaling.factor", scaling.factor));
  if (scaling.type == "yarn")
    values.push_back(
        gguf_count(name + ".rope.scaling.original_context_length", scaling.original_context));
}

void add_gemma_values(const ModelConfig& model, const std::string& name,
                      std::vector<GgufPair>& values) {
  values.push_back(gguf_count(name + ".attention.sliding_window", model.window));
  std::vector<bool> has_window;
  for (std::int64_t i = 0; i < model.layers; ++i)
    has_window.push_back(kind_of_layer(model.window_layers, i) == 'w');
  values.push_back(gguf_flags(name + ".attention.sliding_window_pattern", has_window));
  if (model.attention_cap > 0)
    values.push_back(gguf_number(name + ".attn_logit_softcapping", model.attention_cap));
  if (model.logit_cap > 0)
    values.push_back(gguf_number(name + ".final_logit_softcapping", model.logit_cap));
}

}  // namespace

std::string gguf_architecture(const ModelConfig& model) {
  const Architecture* found = find_architecture(model.family);
  if (found == nullptr) {
    std::string families;
    for (const Architecture& one : kArchitectures)
      families += concat(families.empty() ? "" : ", ", one.family);
    throw DataError(concat("models of the family ", model.family, " are not written as GGUF here; ",
                           "want one of ", families, ", or export a Hugging Face folder"));
  }
  if (model.attention_pattern.is_on())
    refuse("attention_pattern", "on", "llama.cpp lets attention see all tokens before");
  if (model.rotary_share != 1 && model.family != "gpt2")
    refuse("rotary_share", concat(model.rotary_share), "llama.cpp turns whole heads");
  if (model.family == "qwen3" && model.attention_bias)
    refuse("attention_bias", "true", "llama.cpp's Qwen3 has no biases");
  check_scaling(model.rope_scaling);
  if (found->is_gemma) check_gemma(model);
  return std::string(found->name);
}

std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file) {
  const std::string name = gguf_architecture(model);
  const bool is_gpt2 = model.family == "gpt2";
  std::vector<GgufPair> values{
      gguf_count(name + ".block_count", model.layers),
      gguf_count(name + ".context_length", model.context),
      gguf_count(name + ".embedding_length", model.width),
      gguf_count(name + ".feed_forward_length",
                 model.inner_width > 0 ? model.inner_width : 4 * model.width),
      gguf_count(name + ".attention.head_count", model.heads),
      gguf_count(name + ".attention.head_count_kv", key_heads(model)),
      gguf_number(
          name + (is_gpt2 ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon"),
          model.norm_epsilon),
      gguf_count(name + ".vocab_size", model.vocabulary)};
  if (is_gpt2) return values;
  values.push_back(gguf_count(name + ".attention.key_length", head_size(model)));
  values.push_back(gguf_count(name + ".attention.value_length", head_size(model)));
  add_rotary_values(model, name, values);
  if (find_architecture(model.family)->is_gemma) {
    add_gemma_values(model, name, values);
  } else if (model.window > 0 && model.window < model.context) {
    warn(file,
         concat("llama.cpp knows no window of this architecture (model.window is ", model.window,
                "): from there on it sees more than the model was trained for"));
  }
  return values;
}

GgufName gguf_name(const ModelConfig& model, const std::string& in_folder) {
  const Architecture& architecture = *find_architecture(model.family);
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
    name.heads = found == "attn_q" ? model.heads : key_heads(model);
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

std::vector<float> rotary_divisors(const ModelConfig& model) {
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  if (scaling.type != "llama3") return {};
  const double original = static_cast<double>(scaling.original_context);
  const std::int64_t size = head_size(model);
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(size);
    const double turns = original / (2 * std::numbers::pi * std::pow(model.rope_theta, exponent));
    const double share = std::clamp(
        (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency), 0.0,
        1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - share) / scaling.factor + share)));
  }
  return divisors;
}

}  // namespace hybrid_trainer
