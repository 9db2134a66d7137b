#include "src/model_files/adapters/adapter_contents.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/models/lora.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/hugging_face/file_layout.h"

namespace hybrid_trainer {

namespace {

/// Modules that contain all experts and have other names in adapters.
constexpr std::pair<std::string_view, const char*> kModulesOfAll[] = {
    {".input_linear", ".experts.base_layer"},
    {".output_linear", ".experts"},
    {".experts.gate_up_proj", ".experts.base_layer"},
    {".experts.down_proj", ".experts"}};

std::string name_among_adapters(const std::string& module) {
  for (const auto& [ending, name] : kModulesOfAll)
    if (module.ends_with(ending)) return module.substr(0, module.size() - ending.size()) + name;
  return module;
}

/// Describes a part of an adapted linear map, which may belong to an expert.
AdapterTensor tensor_of(Linear& linear, const AdapterPart& part, std::int64_t experts) {
  const AdapterSpec& spec = linear.adapter()->spec();
  AdapterTensor tensor{.module = part.name,
                       .scale = spec.scale,
                       .rank = spec.rank,
                       .inputs = linear.weight().shape()[1],
                       .outputs = linear.weight().shape()[0]};
  if (linear.weight().role() != Role::kExpert) return tensor;
  tensor.is_fused = part.experts > 1;
  tensor.expert = tensor.is_fused ? part.expert : expert_of(part.name);
  tensor.experts = experts;
  tensor.is_last = linear.weight().name().ends_with(".c_proj.weight");
  if (tensor.is_fused) tensor.module = name_among_adapters(part.name);
  return tensor;
}

constexpr const char* kMagnitudes = ".lora_magnitude_vector";
constexpr const char* kPickled = "adapter_model.bin";

std::string tensors_in(const fs::path& folder) {
  if (fs::exists(folder / kAdapterTensors) || !fs::exists(folder / kPickled))
    return (folder / kAdapterTensors).string();
  const std::string in = folder.string();
  throw MissingInput(concat(
      in, ": contains ", kPickled,
      ", a pickled file, which is not supported because it can run code; convert it to ",
      kAdapterTensors,
      ": python3 -c \"import torch; from safetensors.torch import save_file as s; ",
      "s({k: v.contiguous() for k, v in torch.load('", in, "/", kPickled,
      "', map_location='cpu', weights_only=True).items()}, '", in, "/", kAdapterTensors, "')\""));
}

/// Returns the name of the tensor's module if the tensor's name ends in `ending`, otherwise "".
std::string module_before(const std::string& name, std::string_view ending) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : "";
}

bool is_head(const std::string& module) {
  return module == "lm_head" || module.ends_with(".lm_head");
}

bool is_token_table(const std::string& module) {
  return module.ends_with("embed_tokens") || module.ends_with("wte");
}

/// Returns whether the tensor belongs to the images or audio part of some family's outer model.
bool is_outside_text(const std::string& name) {
  return std::ranges::any_of(model_families(), [&](const ModelFamily& family) {
    const HuggingFaceLayout& layout = family.hugging_face;
    return !layout.outer.model_type.empty() && !layout.carried_name(name).empty();
  });
}

/// Removes the wrappers that PEFT adds around a module from a weight's name.
std::string unwrapped(std::string name) {
  for (const std::string wrapper :
       {"base_layer.", "modules_to_save.default.", "modules_to_save."}) {
    if (const std::size_t at = name.rfind(wrapper); at != name.npos) name.erase(at, wrapper.size());
  }
  return name;
}

/// Scales each row, or each column, to its length in `magnitudes`.
void set_lengths(const Tensor& values, const Tensor& magnitudes, bool of_columns) {
  const std::int64_t rows = values.size(0), columns = values.size(1);
  std::vector<double> squares(static_cast<std::size_t>(of_columns ? columns : rows));
  const auto visit = [&](const auto& take) {
    for (std::int64_t i = 0; i < rows * columns; ++i)
      take(values.data<float>()[i], of_columns ? i % columns : i / columns);
  };
  visit([&](float value, std::int64_t at) {
    squares[static_cast<std::size_t>(at)] += static_cast<double>(value) * value;
  });
  visit([&](float& value, std::int64_t at) {
    value *= magnitudes.data<float>()[at] /
             static_cast<float>(std::sqrt(squares[static_cast<std::size_t>(at)]));
  });
}

Tensor transposed(const Tensor& matrix) {
  const Tensor turned = host_tensor({matrix.size(1), matrix.size(0)});
  transpose(turned, matrix);
  return turned;
}

constexpr const char* kExperts = ".experts";
constexpr const char* kFirst = ".experts.base_layer";
constexpr const char* kGraniteFirst = ".block_sparse_moe.input_linear";
constexpr const char* kGraniteLast = ".block_sparse_moe.output_linear";

/// Returns the layer of an expert's module: "model.layers.0".
std::string layer_of(const std::string& module) {
  const std::size_t layers = module.find("layers.");
  return module.substr(0, module.find('.', module.find('.', layers) + 1));
}

bool is_b(const AdapterTensor& tensor) { return tensor.matrix == AdapterTensor::Matrix::kB; }

/// Copies an expert's columns of B between `of_expert` (rows, r) and stacked `all` (outputs, r·E).
void copy_columns(const Tensor& of_expert, const Tensor& all, const AdapterTensor& tensor,
                  TargetOrder side) {
  const std::int64_t rank = of_expert.size(1);
  for (std::int64_t row = 0; row < tensor.rows; ++row) {
    for (std::int64_t r = 0; r < rank; ++r) {
      float& there = all.data<float>()[(tensor.first_row + row) * all.size(1) + r * tensor.experts +
                                       tensor.expert];
      float& here = of_expert.data<float>()[row * rank + r];
      (side == TargetOrder::kFile ? there : here) = side == TargetOrder::kFile ? here : there;
    }
  }
}

}  // namespace

std::int64_t expert_of(const std::string& module) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = module.rfind(kExperts);
  if (at == std::string::npos) return -1;
  return leading_number(std::string_view(module).substr(at + kExperts.size()));
}

std::vector<AdapterTensor> tensors_of_adapters(Network& model, std::int64_t experts) {
  using Matrix = AdapterTensor::Matrix;
  std::vector<AdapterTensor> tensors;
  model.visit_linears([&](Linear& linear) {
    LowRankAdapter* const adapter = linear.adapter();
    if (adapter == nullptr) return;
    const std::int64_t rank = adapter->spec().rank;
    std::int64_t a_row = 0, b_row = 0;
    for (const AdapterPart& part : adapter->parts()) {
      const AdapterTensor of_part = tensor_of(linear, part, experts);
      const std::string stem = concat(kAdapterPrefix, of_part.module, ".lora_");
      const auto add = [&](const char* end, Matrix matrix, Parameter& parameter,
                           std::int64_t first_row, std::int64_t rows) {
        AdapterTensor tensor = of_part;
        tensor.name = stem + end;
        tensor.matrix = matrix;
        tensor.parameter = &parameter;
        tensor.first_row = first_row;
        tensor.rows = rows;
        if (matrix != Matrix::kA) tensor.order = part.order;
        tensors.push_back(std::move(tensor));
      };
      add("A.weight", Matrix::kA, adapter->a(), a_row, rank);
      add("B.weight", Matrix::kB, adapter->b(), b_row, part.rows);
      if (adapter->decomposes())
        add("magnitude_vector", Matrix::kMagnitudes, *adapter->magnitude(), b_row, part.rows);
      a_row += rank;
      b_row += part.rows;
    }
  });
  return tensors;
}

AdapterContents::AdapterContents(const fs::path& folder)
    : config_(read_adapter_config_file(folder / kAdapterConfig)), file_(tensors_in(folder)) {
  config_.uses_outer_names =
      file_.rename(concat(kAdapterPrefix, kInsideOuter), concat(kAdapterPrefix, kAlone));
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file_.entries()) names.push_back(entry.name);
  for (const std::string& name : names) {
    if (!name.starts_with(kAdapterPrefix)) continue;
    const std::string in_base = name.substr(std::string_view(kAdapterPrefix).size());
    if (const std::string here = vit_name_of_folder(in_base); here != in_base)
      config_.uses_vit_5_names |= file_.rename(name, kAdapterPrefix + here);
  }
  for (const SafetensorsEntry& entry : file_.entries()) sort_tensor(entry);
}

void AdapterContents::sort_tensor(const SafetensorsEntry& entry) {
  const auto refuse_tensor = [&] {
    throw DataError(concat(file_.path(), ": the tensor ", entry.name.substr(0, 200),
                           " does not belong to an adapter that ", kAdapterConfig, " describes"));
  };
  constexpr std::size_t kLongestName = 1000;
  if (!entry.name.starts_with(kAdapterPrefix) || entry.name.size() > kLongestName) refuse_tensor();
  const std::string name = entry.name.substr(std::string_view(kAdapterPrefix).size());
  if (config_.task == kEmbeddingTask && name.starts_with("pooler.")) {
    extra_weights_.insert(entry.name);  // embeddings do not depend on BERT's pooler
    return;
  }
  if (is_outside_text(name))
    throw DataError(concat(file_.path(), ": the tensor ", entry.name.substr(0, 200),
                           " is outside the text model; only adapters of text models are "
                           "supported, so train without these modules (exclude_modules)"));
  if (const std::string module = module_before(name, ".lora_embedding_A"); !module.empty()) {
    if (!config_.is_target(module)) refuse_tensor();
    add_extra_weight(embeddings_, module, ".lora_embedding_A", ".lora_embedding_B");
    if (is_token_table(module)) table_ = module;
  } else if (const std::string of_all = module_before(name, ".lora_A.weight");
             is_fused(of_all, config_)) {
    fused_.emplace(of_all, rank_of_experts(of_all, entry));
  } else if (const std::string of_a = module_before(name, ".lora_A.weight"); !of_a.empty()) {
    const bool follows = config_.ties_whole && is_head(of_a);  // not a target itself
    if (!config_.is_target(of_a) && !config_.is_parameter(of_a + ".weight") && !follows)
      refuse_tensor();
    const std::int64_t rank = entry.shape.empty() ? 0 : entry.shape.front();
    if (const std::int64_t wanted = config_.rank_of(of_a); rank != wanted)
      throw DataError(concat(file_.path(), ": ", entry.name.substr(0, 200), " has rank ", rank,
                             ", want ", wanted, " as in ", kAdapterConfig,
                             "; copy both files again"));
    if (is_head(of_a)) {
      add_extra_weight(heads_, of_a, ".lora_A.weight", ".lora_B.weight");
    } else {
      ranks_.emplace(of_a, rank);
    }
  } else if (name.find(".lora_") == name.npos) {
    extra_weights_.insert(entry.name);
    if (name.find(".original_module.") != name.npos) return;  // the base's, which PEFT ignores
    const auto [found, is_new] = whole_.try_emplace(unwrapped(name), entry.name);
    if (!is_new && name.find(".modules_to_save.") != name.npos) found->second = entry.name;
  }
}

std::string AdapterContents::parameter_of_experts(const std::string& module) const {
  if (module.ends_with("_linear")) return module + ".weight";  // Granite in transformers 4
  if (is_gate_or_up(module)) return module.substr(0, module.rfind('.')) + ".gate_up_proj";
  const std::string first = module + ".gate_up_proj", last = module + ".down_proj";
  const bool is_alone =
      !file_.contains(concat(kAdapterPrefix, module, ".base_layer.lora_A.weight"));
  return is_alone && (config_.is_parameter(first) || !config_.is_parameter(last)) ? first : last;
}

std::int64_t AdapterContents::rank_of_experts(const std::string& module,
                                              const SafetensorsEntry& entry) const {
  const std::int64_t rank = config_.rank_of(parameter_of_experts(module)),
                     rows = entry.shape.empty() ? 0 : entry.shape.front();
  if (rows % rank == 0) return rank;
  throw DataError(concat(file_.path(), ": ", entry.name.substr(0, 200), " has ", rows,
                         " rows, want a multiple of the rank ", rank, " in ", kAdapterConfig,
                         ", one part per expert; copy both files again"));
}

double AdapterContents::scale_of_fused(const std::string& module) const {
  return config_.scale_of(parameter_of_experts(module));
}

void AdapterContents::add_extra_weight(std::set<std::string>& modules, const std::string& module,
                                       const char* a, const char* b) {
  modules.insert(module);
  for (const char* ending : {a, b, kMagnitudes})
    if (ending != kMagnitudes || is_decomposed(config_.variant))
      extra_weights_.insert(concat(kAdapterPrefix, module, ending));
}

std::set<std::string> AdapterContents::extra_weights() const {
  std::set<std::string> names;
  for (const auto& [weight, tensor] : whole_) names.insert(weight);
  for (const auto* modules : {&embeddings_, &heads_})
    for (const std::string& module : *modules) names.insert(module + ".weight");
  return names;
}

std::int64_t AdapterContents::vocabulary() const {
  for (const auto& [weight, tensor] : whole_)
    if (is_token_table(weight.substr(0, weight.rfind('.'))))
      return file_.entry(tensor).tensor_shape()[0];
  return 0;
}

std::map<std::string, std::int64_t> AdapterContents::extra_weight_rows() const {
  std::map<std::string, std::int64_t> rows;
  for (const auto& [weight, tensor] : whole_) {
    const std::vector<std::int64_t>& shape = file_.entry(tensor).shape;
    if (!shape.empty()) rows[weight] = shape.front();
  }
  return rows;
}

/// Returns whether the head is tied to the token table. PEFT then saves the same adapter for both.
bool AdapterContents::head_follows_table() const {
  if (heads_.empty()) return true;
  const std::string& head = *heads_.begin();
  if (table_.empty() || is_decomposed(config_.variant) ||
      config_.scale_of(head) != config_.scale_of(table_))
    return false;
  const auto read = [&](const std::string& name) {
    const Shape shape = file_.entry(kAdapterPrefix + name).tensor_shape();
    return shape.rank() == 2 ? load(kAdapterPrefix + name, shape) : Tensor{};
  };
  const auto are_transposed = [&](const Tensor& of_head, const Tensor& of_table) {
    if (!of_head || !of_table) return false;
    const Tensor turned = transposed(of_table);
    return turned.shape() == of_head.shape() &&
           std::equal(turned.data<float>(), turned.data<float>() + turned.elements(),
                      of_head.data<float>());
  };
  return are_transposed(read(head + ".lora_A.weight"), read(table_ + ".lora_embedding_B")) &&
         are_transposed(read(head + ".lora_B.weight"), read(table_ + ".lora_embedding_A"));
}

bool AdapterContents::unties_head() const {
  const bool by_products = !table_.empty() || !heads_.empty();
  if (config_.ties_whole) return by_products && !head_follows_table();
  if (by_products) return true;
  for (const auto& [weight, tensor] : whole_) {
    const std::string module = weight.substr(0, weight.rfind('.'));
    if (config_.is_whole(module) && (is_head(module) || module.ends_with("embed_tokens")))
      return true;
  }
  return false;
}

Tensor AdapterContents::load(const std::string& name, const Shape& shape) const {
  const Shape found = file_.entry(name).tensor_shape();
  if (found != shape)
    throw DataError(concat(file_.path(), ": ", name.substr(0, 200), " is ", found.text(), ", want ",
                           shape.text(),
                           "; the adapter belongs to another base, for example one with another "
                           "vocabulary or another number of experts"));
  const Tensor values = host_tensor(shape);
  file_.read(name, values);
  if (!std::all_of(values.data<float>(), values.data<float>() + values.elements(),
                   [](float x) { return std::isfinite(x); }))
    throw DataError(concat(file_.path(), ": ", name.substr(0, 200),
                           " contains NaN or infinity; use an adapter from an earlier checkpoint"));
  return values;
}

void AdapterContents::change(const std::string& weight, const Tensor& values) const {
  if (const auto found = whole_.find(weight); found != whole_.end())
    copy(values, load(found->second, values.shape()), host_stream());
  const std::string module = weight.substr(0, weight.rfind('.'));
  if (embeddings_.contains(module) || heads_.contains(module)) add_product(module, values);
}

/// Adds scale·B·A to values (transposed for an embedding), then scales to DoRA's lengths.
void AdapterContents::add_product(const std::string& module, const Tensor& values) const {
  const bool turned = embeddings_.contains(module);
  const std::string stem = concat(kAdapterPrefix, module, turned ? ".lora_embedding_" : ".lora_"),
                    end = turned ? "" : ".weight";
  const std::int64_t rank = config_.rank_of(module), rows = values.size(0),
                     columns = values.size(1);
  Tensor left = load(stem + "B" + end, {turned ? columns : rows, rank}),
         right = load(stem + "A" + end, {rank, turned ? rows : columns});
  if (turned) {
    const Tensor b = std::exchange(left, transposed(right));
    right = transposed(b);
  }
  const auto scale = static_cast<float>(config_.scale_of(module));
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const to = values.data<float>() + row * columns;
    for (std::int64_t r = 0; r < rank; ++r) {
      const float factor = scale * left.data<float>()[row * rank + r];
      const float* const from = right.data<float>() + r * columns;
      for (std::int64_t column = 0; column < columns; ++column) to[column] += factor * from[column];
    }
  }
  if (!is_decomposed(config_.variant)) return;
  const std::int64_t lengths = turned ? columns : rows;
  set_lengths(values, load(concat(kAdapterPrefix, module, kMagnitudes), {lengths}), turned);
}

bool is_fused(const std::string& module, const AdapterConfig& config) {
  if (module.ends_with(kGraniteFirst) || module.ends_with(kGraniteLast))
    return config.is_parameter(module + ".weight");
  return module.ends_with(kExperts) || module.ends_with(kFirst);
}

bool is_gate_or_up(const std::string& module) {
  return module.ends_with(kFirst) || module.ends_with(kGraniteFirst);
}

std::string fused_module_of(const AdapterTensor& tensor, const AdapterContents& contents) {
  if (tensor.experts == 1) return "";
  const std::string layer = layer_of(tensor.module) + ".";
  std::string bare, first;
  for (const auto& [module, rank] : contents.fused()) {
    if (!module.starts_with(layer)) continue;
    (is_gate_or_up(module) ? first : bare) = module;
  }
  if (!first.empty()) return tensor.is_last ? bare : first;
  if (bare.empty()) return "";
  if (bare.ends_with(kGraniteLast)) return tensor.is_last ? bare : "";
  // If only one of the two maps has an adapter, the name does not contain base_layer. The
  // configuration or the number of inputs then determines the map.
  const AdapterConfig& config = contents.config();
  const bool may_be_first = config.is_parameter(bare + ".gate_up_proj"),
             may_be_last = config.is_parameter(bare + ".down_proj");
  if (may_be_first != may_be_last) return tensor.is_last == may_be_last ? bare : "";
  const Shape there =
      contents.file().entry(concat(kAdapterPrefix, bare, ".lora_A.weight")).tensor_shape();
  return there.rank() == 2 && there[1] == tensor.inputs ? bare : "";
}

Tensor read_expert(const AdapterTensor& tensor, const std::string& module,
                   const AdapterContents& contents) {
  const std::int64_t rank = contents.fused().at(module);
  const std::string name =
      concat(kAdapterPrefix, module, is_b(tensor) ? ".lora_B.weight" : ".lora_A.weight");
  if (!is_b(tensor)) {
    const Tensor all = contents.load(name, {tensor.experts * rank, tensor.inputs});
    return all.rows(tensor.expert * rank, (tensor.expert + 1) * rank);
  }
  const Tensor all = contents.load(name, {tensor.outputs, rank * tensor.experts});
  const Tensor own = host_tensor({tensor.rows, rank});
  copy_columns(own, all, tensor, TargetOrder::kHere);
  return own;
}

Shape whole_shape(const AdapterTensor& tensor) {
  if (is_b(tensor)) return {tensor.outputs, tensor.rank * tensor.experts};
  return {tensor.experts * tensor.rank, tensor.inputs};
}

void write_expert(const Tensor& whole, const AdapterTensor& tensor, const Tensor& values) {
  if (is_b(tensor)) return copy_columns(values, whole, tensor, TargetOrder::kFile);
  std::copy_n(values.data<float>(), values.elements(),
              whole.data<float>() + tensor.expert * values.elements());
}

}  // namespace hybrid_trainer
