#include "src/model_files/gguf/gguf_names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/hugging_face/file_layout.h"

namespace hybrid_trainer {

namespace {

struct Renamed {
  std::string_view in_folder, in_file;
};

constexpr std::string_view kPositions = "position_embd";

constexpr std::array kTopNames{Renamed{"embed_tokens", "token_embd"},
                               Renamed{"norm", "output_norm"},
                               Renamed{"lm_head", "output"},
                               Renamed{"wte", "token_embd"},
                               Renamed{"wpe", kPositions},
                               Renamed{"ln_f", "output_norm"},
                               Renamed{"embedding_norm", "token_embd_norm"},
                               Renamed{"embeddings.word_embeddings", "token_embd"},
                               Renamed{"embeddings.position_embeddings", kPositions},
                               Renamed{"embeddings.token_type_embeddings", "token_types"},
                               Renamed{"embeddings.LayerNorm", "token_embd_norm"},
                               Renamed{"embeddings.tok_embeddings", "token_embd"},
                               Renamed{"embeddings.norm", "token_embd_norm"},
                               Renamed{"final_norm", "output_norm"},
                               Renamed{"head.dense", "cls"},
                               Renamed{"head.norm", "cls.norm"},
                               Renamed{"pooler.dense", "cls"},
                               Renamed{"pre_classifier", "cls"},
                               Renamed{"classifier", "cls.output"},
                               Renamed{"classifier.dense", "cls"},
                               Renamed{"classifier.out_proj", "cls.output"}};

constexpr std::array kLayerNames{Renamed{"input_layernorm", "attn_norm"},
                                 Renamed{"self_attn.q_proj", "attn_q"},
                                 Renamed{"self_attn.k_proj", "attn_k"},
                                 Renamed{"self_attn.v_proj", "attn_v"},
                                 Renamed{"self_attn.o_proj", "attn_output"},
                                 Renamed{"self_attn.q_norm", "attn_q_norm"},
                                 Renamed{"self_attn.k_norm", "attn_k_norm"},
                                 Renamed{"pre_feedforward_layernorm", "ffn_norm"},
                                 Renamed{"post_feedforward_layernorm", "post_ffw_norm"},
                                 Renamed{"self_attn.qkv_proj", "attn_qkv"},
                                 Renamed{"mlp.gate_proj", "ffn_gate"},
                                 Renamed{"mlp.gate_up_proj", "ffn_up"},
                                 Renamed{"mlp.up_proj", "ffn_up"},
                                 Renamed{"mlp.down_proj", "ffn_down"},
                                 Renamed{"ln_1", "attn_norm"},
                                 Renamed{"attn.c_attn", "attn_qkv"},
                                 Renamed{"attn.c_proj", "attn_output"},
                                 Renamed{"ln_2", "ffn_norm"},
                                 Renamed{"mlp.c_fc", "ffn_up"},
                                 Renamed{"mlp.c_proj", "ffn_down"},
                                 Renamed{"operator_norm", "attn_norm"},
                                 Renamed{"conv.in_proj", "shortconv.in_proj"},
                                 Renamed{"conv.conv", "shortconv.conv"},
                                 Renamed{"conv.out_proj", "shortconv.out_proj"},
                                 Renamed{"self_attn.out_proj", "attn_output"},
                                 Renamed{"self_attn.q_layernorm", "attn_q_norm"},
                                 Renamed{"self_attn.k_layernorm", "attn_k_norm"},
                                 Renamed{"ffn_norm", "ffn_norm"},
                                 Renamed{"feed_forward.w1", "ffn_gate"},
                                 Renamed{"feed_forward.w3", "ffn_up"},
                                 Renamed{"feed_forward.w2", "ffn_down"},
                                 Renamed{"attn_norm", "attn_norm"},
                                 Renamed{"attn.Wqkv", "attn_qkv"},
                                 Renamed{"attn.Wo", "attn_output"},
                                 Renamed{"mlp_norm", "ffn_norm"},
                                 Renamed{"mlp.Wi", "ffn_up"},
                                 Renamed{"mlp.Wo", "ffn_down"},
                                 Renamed{"attention.self.query", "attn_q"},
                                 Renamed{"attention.self.key", "attn_k"},
                                 Renamed{"attention.self.value", "attn_v"},
                                 Renamed{"attention.output.dense", "attn_output"},
                                 Renamed{"attention.output.LayerNorm", "attn_output_norm"},
                                 Renamed{"intermediate.dense", "ffn_up"},
                                 Renamed{"output.dense", "ffn_down"},
                                 Renamed{"output.LayerNorm", "layer_output_norm"},
                                 Renamed{"attention.q_lin", "attn_q"},
                                 Renamed{"attention.k_lin", "attn_k"},
                                 Renamed{"attention.v_lin", "attn_v"},
                                 Renamed{"attention.out_lin", "attn_output"},
                                 Renamed{"sa_layer_norm", "attn_output_norm"},
                                 Renamed{"ffn.lin1", "ffn_up"},
                                 Renamed{"ffn.lin2", "ffn_down"},
                                 Renamed{"output_layer_norm", "layer_output_norm"}};

/// Values of model.pooling in the order of llama.cpp's numbers. Source: llama.cpp, include/llama.h.
constexpr std::array<std::string_view, 4> kGgufPoolings{"", "mean", "cls", "last"};

std::string_view renamed(std::span<const Renamed> names, std::string_view module) {
  const auto found = std::ranges::find(names, module, &Renamed::in_folder);
  return found == names.end() ? "" : found->in_file;
}

Tensor with_paired_rows(const Tensor& values, std::int64_t heads, bool pair) {
  const Tensor changed = host_tensor(values.shape());
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

Tensor after_zeros(const Tensor& values, std::int64_t rows) {
  const Tensor changed = host_tensor({rows + values.size(0), values.size(1)});
  std::fill_n(changed.data<float>(), rows * values.size(1), 0.0f);
  std::copy_n(values.data<float>(), values.elements(),
              changed.data<float>() + rows * values.size(1));
  return changed;
}

Tensor plus(const Tensor& values, float added) {
  const Tensor changed = host_tensor(values.shape());
  std::transform(values.data<float>(), values.data<float>() + values.elements(),
                 changed.data<float>(), [=](float value) { return value + added; });
  return changed;
}

}  // namespace

std::int64_t paired_row(std::int64_t row, std::int64_t rows, std::int64_t heads) {
  const std::int64_t half = rows / heads / 2;
  const std::int64_t head = row / (2 * half), within = row % (2 * half);
  return head * 2 * half + 2 * (within % half) + within / half;
}

GgufName gguf_name(const ModelConfig& model, const FileTensor& in_folder) {
  const GgufLayout& layout = find_family(model.family).gguf;
  std::string_view rest = in_folder.name;
  const std::size_t end = rest.rfind('.');
  const std::string ending(rest.substr(end));
  std::string_view module = rest.substr(0, end), found;
  std::string prefix;
  for (const std::string_view layers : {"layers.", "h.", "encoder.layer.", "transformer.layer."}) {
    if (!module.starts_with(layers)) continue;
    const std::size_t number = layers.size(), dot = module.find('.', number);
    prefix = concat("blk.", module.substr(number, dot - number), ".");
    module.remove_prefix(dot + 1);
    break;
  }
  if (prefix.empty()) {
    found = renamed(kTopNames, module);
  } else if (const auto own = layout.names.find(std::string(module)); own != layout.names.end()) {
    found = own->second;
  } else if (module == "post_attention_layernorm") {
    found = layout.gemma ? "post_attention_norm" : "ffn_norm";
  } else {
    found = renamed(kLayerNames, module);
  }
  if (found.empty())
    throw DataError(concat("the tensor ", in_folder.name, " cannot be stored in a GGUF file"));
  GgufName name{.name = concat(prefix, found, ending)};
  if (layout.gemma && found.ends_with("norm")) name.change = GgufChange::kOnePlus;
  if (layout.pairs_rows && (found == "attn_q" || found == "attn_k")) {
    name.change = GgufChange::kPairedRows;
    name.heads = found == "attn_q" || model.kv_heads == 0 ? model.heads : model.kv_heads;
  }
  if (found == kPositions && in_folder.rows() > model.context) {
    name.change = GgufChange::kLaterRows;
    name.first_row = in_folder.rows() - model.context;
  }
  return name;
}

FileTensor in_gguf(const FileTensor& in_folder) {
  FileTensor tensor = outputs_first(in_folder);
  if (tensor.shape.rank() == 3 && tensor.shape[1] == 1)
    tensor.shape = {tensor.shape[0], tensor.shape[2]};
  return tensor;
}

Shape GgufName::shape(const Shape& in_folder) const {
  return change == GgufChange::kLaterRows ? Shape{in_folder[0] - first_row, in_folder[1]}
                                          : in_folder;
}

bool is_gguf_encoder(const std::string& architecture) {
  return architecture == "bert" || architecture == kModernBert;
}

std::int64_t pooling_number(const std::string& pooling) {
  return std::ranges::find(kGgufPoolings, pooling) - kGgufPoolings.begin();
}

std::optional<std::string> pooling_of_number(std::int64_t number) {
  if (number < 0 || number >= std::ssize(kGgufPoolings)) return {};
  return std::string(kGgufPoolings[static_cast<std::size_t>(number)]);
}

Tensor to_gguf(const Tensor& values, const GgufName& name) {
  switch (name.change) {
    case GgufChange::kNone: break;
    case GgufChange::kOnePlus: return plus(values, 1);
    case GgufChange::kPairedRows: return with_paired_rows(values, name.heads, true);
    case GgufChange::kLaterRows: return values.rows(name.first_row, values.size(0));
  }
  return values;
}

Tensor from_gguf(const Tensor& values, const GgufName& name) {
  switch (name.change) {
    case GgufChange::kNone: break;
    case GgufChange::kOnePlus: return plus(values, -1);
    case GgufChange::kPairedRows: return with_paired_rows(values, name.heads, false);
    case GgufChange::kLaterRows: return after_zeros(values, name.first_row);
  }
  return values;
}

std::vector<float> llama3_divisors(std::int64_t head_size, double theta,
                                   const RotaryScaling& scaling) {
  const double original = static_cast<double>(scaling.original_context);
  const double size = static_cast<double>(head_size);
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < head_size / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / size;
    const double turns = original / (2 * std::numbers::pi * std::pow(theta, exponent));
    const double share = std::clamp(
        (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency), 0.0,
        1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - share) / scaling.factor + share)));
  }
  return divisors;
}

std::optional<RotaryScaling> llama3_scaling_of(std::span<const float> divisors, double theta) {
  if (divisors.empty()) return {};
  constexpr double kClose = 1e-4;  // llama.cpp's converter computes in f32
  RotaryScaling scaling{.type = "llama3", .factor = *std::ranges::max_element(divisors)};
  // No key stores the original context, so this tries powers of two, such as Llama 3's 8192.
  for (scaling.original_context = 8; scaling.original_context <= (1 << 20);
       scaling.original_context *= 2) {
    const std::vector<float> made = llama3_divisors(2 * std::ssize(divisors), theta, scaling);
    const bool are_close = std::ranges::equal(
        made, divisors, [](double a, double b) { return std::abs(a - b) <= kClose * std::abs(b); });
    if (are_close) return scaling;
  }
  return {};
}

}  // namespace hybrid_trainer
