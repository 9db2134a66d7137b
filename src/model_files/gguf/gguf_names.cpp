#include "src/model_files/gguf/gguf_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>

#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/module_weights.h"

namespace hybrid_trainer {

namespace {

struct Renamed {
  std::string_view in_folder, in_file;
};

constexpr std::string_view kPositions = "position_embd", kGatesAndUps = "ffn_gate_up_exps",
                           kRates = "ssm_a", kQueriesToGates = "attn_qkvz";

constexpr std::array kTopNames{Renamed{"embed_tokens", "token_embd"},
                               Renamed{"norm", "output_norm"},
                               Renamed{"lm_head", "output"},
                               Renamed{"wte", "token_embd"},
                               Renamed{"wpe", kPositions},
                               Renamed{"ln_f", "output_norm"},
                               Renamed{"embedding_norm", "token_embd_norm"},
                               Renamed{"embed_tokens_per_layer", "per_layer_token_embd"},
                               Renamed{"per_layer_model_projection", "per_layer_model_proj"},
                               Renamed{"per_layer_projection_norm", "per_layer_proj_norm"},
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
                                 Renamed{"output_layer_norm", "layer_output_norm"},
                                 Renamed{"layer_scalar", "layer_output_scale"},
                                 Renamed{"per_layer_input_gate", "inp_gate"},
                                 Renamed{"per_layer_projection", "proj"},
                                 Renamed{"post_per_layer_input_norm", "post_norm"},
                                 Renamed{"linear_attn.in_proj_qkvz", kQueriesToGates},
                                 Renamed{"linear_attn.in_proj_ba", "ssm_ba"},
                                 Renamed{"linear_attn.in_proj_qkv", "attn_qkv"},
                                 Renamed{"linear_attn.in_proj_z", "attn_gate"},
                                 Renamed{"linear_attn.in_proj_b", "ssm_beta"},
                                 Renamed{"linear_attn.in_proj_a", "ssm_alpha"},
                                 Renamed{"linear_attn.conv1d", "ssm_conv1d"},
                                 Renamed{"linear_attn.dt", "ssm_dt"},
                                 Renamed{"linear_attn.A_log", kRates},
                                 Renamed{"linear_attn.norm", "ssm_norm"},
                                 Renamed{"linear_attn.out_proj", "ssm_out"},
                                 Renamed{"self_attn.sinks", "attn_sinks"},
                                 Renamed{"block_sparse_moe.gate", "ffn_gate_inp"},
                                 Renamed{"block_sparse_moe.router.layer", "ffn_gate_inp"},
                                 Renamed{"mlp.gate", "ffn_gate_inp"},
                                 Renamed{"mlp.router", "ffn_gate_inp"},
                                 Renamed{"feed_forward.gate", "ffn_gate_inp"},
                                 Renamed{"feed_forward.expert", "exp_probs_b"},
                                 Renamed{"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                 Renamed{"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                 Renamed{"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                 Renamed{"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                 Renamed{"block_sparse_moe.input_linear", kGatesAndUps},
                                 Renamed{"block_sparse_moe.output_linear", "ffn_down_exps"}};

/// Modules of a mixture, after the name of the mixture and without an expert's index.
constexpr std::array kExpertNames{
    Renamed{"w1", "ffn_gate_exps"},       Renamed{"w3", "ffn_up_exps"},
    Renamed{"w2", "ffn_down_exps"},       Renamed{"gate_proj", "ffn_gate_exps"},
    Renamed{"up_proj", "ffn_up_exps"},    Renamed{"down_proj", "ffn_down_exps"},
    Renamed{"gate_up_proj", kGatesAndUps}};

/// Values of model.pooling in the order of llama.cpp's numbers. Source: llama.cpp, include/llama.h.
constexpr std::array<std::string_view, 4> kGgufPoolings{"", "mean", "cls", "last"};

std::string_view renamed(std::span<const Renamed> names, std::string_view module) {
  const auto found = std::ranges::find(names, module, &Renamed::in_folder);
  return found == names.end() ? "" : found->in_file;
}

/// Splits a tensor's name into module and ending. Plain tensors of experts have no ending.
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  for (const std::string_view ending : {".weight", ".bias"})
    if (name.ends_with(ending)) return {name.substr(0, name.size() - ending.size()), ending};
  constexpr std::string_view kBias = "_bias";
  if (name.ends_with(kBias)) return {name.substr(0, name.size() - kBias.size()), ".bias"};
  return {name, ".weight"};
}

constexpr std::string_view kExpertsModule = "experts.";

std::optional<std::int64_t> index_of_expert(std::string_view name) {
  const std::size_t at = name.find(kExpertsModule);
  if (at == name.npos) return {};
  std::int64_t index = 0;
  const char* const begin = name.data() + at + kExpertsModule.size();
  const auto read = std::from_chars(begin, name.data() + name.size(), index);
  return read.ec == std::errc() ? std::optional(index) : std::nullopt;
}

/// Returns the module after "experts." and an index; "" for other modules.
std::string_view module_of_expert(std::string_view module) {
  const std::size_t at = module.find(kExpertsModule);
  if (at == module.npos) return "";
  const std::size_t begin = at + kExpertsModule.size();
  const std::size_t letter = module.find_first_not_of("0123456789.", begin);
  return letter == module.npos ? "" : module.substr(letter);
}

/// Returns the rows of queries, keys and values in a DeltaNet layer.
std::int64_t delta_rule_rows(const ModelConfig& model) {
  const StateSpaceConfig& sizes = model.state_space;
  return 2 * sizes.groups * sizes.state_size + sizes.heads * sizes.head_size;
}

/// Returns the order of value heads in a DeltaNet layer's tensor, if it has any.
std::optional<HeadTiles> tiles_of(const ModelConfig& model, std::string_view found) {
  const StateSpaceConfig& sizes = model.state_space;
  const std::int64_t keys = sizes.groups, shared = sizes.heads / keys;
  const auto tiles = [&](std::int64_t first, std::int64_t size, bool are_columns = false) {
    return HeadTiles{first, keys, shared, size, are_columns};
  };
  if (shared == 1) return {};
  if (found == "attn_qkv" || found == "ssm_conv1d")
    return tiles(2 * keys * sizes.state_size, sizes.head_size);
  if (found == "attn_gate") return tiles(0, sizes.head_size);
  if (found == "ssm_out") return tiles(0, sizes.head_size, true);
  if (found == "ssm_beta" || found == "ssm_alpha" || found == "ssm_dt" || found == kRates)
    return tiles(0, 1);
  return {};
}

Tensor with_tiles(const Tensor& values, const HeadTiles& tiles, bool tile) {
  const Tensor changed = host_tensor(values.shape());
  std::copy_n(values.data<float>(), values.elements(), changed.data<float>());
  const std::int64_t runs = tiles.are_columns ? values.size(0) : 1;
  const std::int64_t length = values.elements() / runs;
  const std::int64_t unit = tiles.are_columns ? 1 : values.elements() / values.size(0);
  for (std::int64_t run = 0; run < runs; ++run) {
    for (std::int64_t i = 0; i < tiles.keys * tiles.shared; ++i) {
      const std::int64_t there = i % tiles.shared * tiles.keys + i / tiles.shared;
      const auto at = [&](std::int64_t head) {
        return run * length + (tiles.first + head * tiles.size) * unit;
      };
      std::copy_n(values.data<float>() + at(tile ? i : there), tiles.size * unit,
                  changed.data<float>() + at(tile ? there : i));
    }
  }
  return changed;
}

template <class Change>
Tensor with_each(const Tensor& values, const Change& change) {
  const Tensor changed = host_tensor(values.shape());
  std::transform(values.data<float>(), values.data<float>() + values.elements(),
                 changed.data<float>(), change);
  return changed;
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

/// Returns the first `rows` rows of a part, and the others.
std::vector<GgufPart> split_part(const GgufPart& part, std::int64_t rows,
                                 std::array<std::string_view, 3> whole_and_names) {
  std::vector<GgufPart> parts{part, part};
  const std::int64_t all = part.in_file.shape[0];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    FileTensor& tensor = parts[i].in_file;
    tensor.order = {};  // in memory, all rows of the first part precede the others
    const std::int64_t count = i == 0 ? rows : all - rows;
    tensor.shape =
        part.in_file.shape.rank() == 1 ? Shape{count} : Shape{count, part.in_file.shape[1]};
    std::string& name = parts[i].name.name;
    name.replace(name.find(whole_and_names[0]), whole_and_names[0].size(), whole_and_names[i + 1]);
  }
  return parts;
}

}  // namespace

std::int64_t paired_row(std::int64_t row, std::int64_t rows, std::int64_t heads) {
  const std::int64_t half = rows / heads / 2;
  const std::int64_t head = row / (2 * half), within = row % (2 * half);
  return head * 2 * half + 2 * (within % half) + within / half;
}

std::string gguf_architecture_both_ways(const ModelFamily& family) {
  return family.gguf.gemma && family.has("bidirectional") ? kGemmaEmbedding : "";
}

std::string gguf_dense_name(std::int64_t index) { return concat("dense_", index + 2); }

GgufName gguf_name(const ModelConfig& model, const FileTensor& in_folder) {
  if (is_of_module(in_folder.name)) {  // "2_Dense/linear.weight"
    const std::size_t number = in_folder.name.find('_'), end = in_folder.name.rfind('.');
    return {.name = concat("dense_", in_folder.name.substr(0, number), in_folder.name.substr(end))};
  }
  const GgufLayout& layout = find_family(model.family).gguf;
  const auto [whole, ending] = split_name(in_folder.name);
  std::string_view module = whole, found;
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
  } else if (const std::string_view of_experts = module_of_expert(module); !of_experts.empty()) {
    found = renamed(kExpertNames, of_experts);
  } else {
    found = renamed(kLayerNames, module);
  }
  if (found.empty())
    throw DataError(concat("the tensor ", in_folder.name, " cannot be stored in a GGUF file"));
  GgufName name{.name = concat(prefix, found, found == kRates ? "" : ending)};
  const bool adds_one = layout.gemma || (layout.delta_rule && found != "ssm_norm");
  if (adds_one && found.ends_with("norm")) name.change = GgufChange::kOnePlus;
  if (found == kRates) name.change = GgufChange::kNegativeExp;
  if (layout.delta_rule && layout.delta_rule->tiles_heads) name.tiles = tiles_of(model, found);
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

std::vector<GgufPart> gguf_parts(const ModelConfig& model, const FileTensor& in_folder) {
  GgufPart part{outputs_first(in_folder), gguf_name(model, in_folder)};
  FileTensor& tensor = part.in_file;
  if (tensor.shape.rank() == 3 && tensor.shape[1] == 1)
    tensor.shape = {tensor.shape[0], tensor.shape[2]};
  if (const auto expert = index_of_expert(in_folder.name)) {
    tensor.part = *expert;
    tensor.parts = model.experts.count;
  }
  const auto is = [&](std::string_view whole) {
    return part.name.name.find(whole) != std::string::npos;
  };
  if (is(kGatesAndUps))
    return split_part(part, tensor.shape[0] / 2, {kGatesAndUps, "ffn_gate_exps", "ffn_up_exps"});
  if (is(kQueriesToGates))
    return split_part(part, delta_rule_rows(model), {kQueriesToGates, "attn_qkv", "attn_gate"});
  return {part};
}

Shape GgufName::shape(const Shape& in_folder) const {
  return change == GgufChange::kLaterRows ? Shape{in_folder[0] - first_row, in_folder[1]}
                                          : in_folder;
}

bool is_gguf_encoder(const std::string& architecture) {
  return architecture == "bert" || architecture == kModernBert;
}

bool has_gguf_windows(const GgufLayout& layout, std::int64_t layers) {
  return layout.window_period > 0 && (layout.window_depth == 0 || layout.window_depth == layers);
}

std::int64_t pooling_number(const std::string& pooling) {
  return std::ranges::find(kGgufPoolings, pooling) - kGgufPoolings.begin();
}

std::optional<std::string> pooling_of_number(std::int64_t number) {
  if (number < 0 || number >= std::ssize(kGgufPoolings)) return {};
  return std::string(kGgufPoolings[static_cast<std::size_t>(number)]);
}

Tensor to_gguf(const Tensor& values, const GgufName& name) {
  const auto changed = [&] {
    switch (name.change) {
      case GgufChange::kNone: break;
      case GgufChange::kOnePlus: return with_each(values, [](float value) { return value + 1; });
      case GgufChange::kPairedRows: return with_paired_rows(values, name.heads, true);
      case GgufChange::kLaterRows: return values.rows(name.first_row, values.size(0));
      case GgufChange::kNegativeExp:
        return with_each(values, [](float value) { return -std::exp(value); });
    }
    return values;
  };
  return name.tiles ? with_tiles(changed(), *name.tiles, true) : changed();
}

Tensor from_gguf(const Tensor& in_file, const GgufName& name) {
  const Tensor values = name.tiles ? with_tiles(in_file, *name.tiles, false) : in_file;
  switch (name.change) {
    case GgufChange::kNone: break;
    case GgufChange::kOnePlus: return with_each(values, [](float value) { return value - 1; });
    case GgufChange::kPairedRows: return with_paired_rows(values, name.heads, false);
    case GgufChange::kLaterRows: return after_zeros(values, name.first_row);
    case GgufChange::kNegativeExp:
      return with_each(values, [](float value) { return std::log(-value); });
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
