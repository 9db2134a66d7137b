#include "src/hugging_face/fused_adapters.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/file_layout.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kExperts = ".experts";
constexpr const char* kFirst = ".experts.base_layer";
constexpr const char* kGraniteFirst = ".block_sparse_moe.input_linear";
constexpr const char* kGraniteLast = ".block_sparse_moe.output_linear";

/// The layer that a module of an expert is of: "model.layers.0".
std::string layer_of(const std::string& module) {
  const std::size_t layers = module.find("layers.");
  return module.substr(0, module.find('.', module.find('.', layers) + 1));
}

bool is_b(const AdapterTensor& tensor) { return tensor.matrix == AdapterTensor::Matrix::kB; }

/// Copies one expert's columns of B, (rows, r), from or to those of all, (outputs, r·E).
void copy_columns(const Tensor& of_expert, const Tensor& all, const AdapterTensor& tensor,
                  RowsTo side) {
  const std::int64_t rank = of_expert.size(1);
  for (std::int64_t row = 0; row < tensor.rows; ++row) {
    for (std::int64_t r = 0; r < rank; ++r) {
      float& there = all.data<float>()[(tensor.first_row + row) * all.size(1) + r * tensor.experts +
                                       tensor.expert];
      float& here = of_expert.data<float>()[row * rank + r];
      (side == RowsTo::kFile ? there : here) = side == RowsTo::kFile ? here : there;
    }
  }
}

}  // namespace

bool is_fused(const std::string& module, const AdapterConfig& config) {
  if (module.ends_with(kGraniteFirst) || module.ends_with(kGraniteLast))
    return config.is_parameter(module + ".weight");
  return module.ends_with(kExperts) || module.ends_with(kFirst);
}

bool is_of_first(const std::string& module) {
  return module.ends_with(kFirst) || module.ends_with(kGraniteFirst);
}

std::string fused_module_of(const AdapterTensor& tensor, const AdapterContents& contents) {
  if (tensor.experts == 1) return "";
  const std::string layer = layer_of(tensor.module) + ".";
  std::string bare, first;
  for (const auto& [module, rank] : contents.fused()) {
    if (!module.starts_with(layer)) continue;
    (is_of_first(module) ? first : bare) = module;
  }
  if (!first.empty()) return tensor.is_last ? bare : first;
  if (bare.empty()) return "";
  if (bare.ends_with(kGraniteLast)) return tensor.is_last ? bare : "";
  // Alone, either has the name without base_layer: the configuration tells which it is, or else the
  // width of its inputs.
  const AdapterConfig& config = contents.config();
  const bool may_be_first = config.is_parameter(bare + ".gate_up_proj"),
             may_be_last = config.is_parameter(bare + ".down_proj");
  if (may_be_first != may_be_last) return tensor.is_last == may_be_last ? bare : "";
  const Shape there =
      contents.file().entry(concat(kAdapterPrefix, bare, ".lora_A.weight")).tensor_shape();
  return there.rank() == 2 && there[1] == tensor.inputs ? bare : "";
}

Tensor read_expert(const AdapterTensor& tensor, const std::string& module,
                   const AdapterContents& contents, const Stream& host) {
  const std::int64_t rank = contents.fused().at(module);
  const std::string name =
      concat(kAdapterPrefix, module, is_b(tensor) ? ".lora_B.weight" : ".lora_A.weight");
  if (!is_b(tensor)) {
    const Tensor all = contents.load(name, {tensor.experts * rank, tensor.inputs}, host);
    return all.rows(tensor.expert * rank, (tensor.expert + 1) * rank);
  }
  const Tensor all = contents.load(name, {tensor.outputs, rank * tensor.experts}, host);
  const Tensor own = Tensor::empty({tensor.rows, rank}, DType::kF32, MemoryKind::kWorkspace, host);
  copy_columns(own, all, tensor, RowsTo::kHere);
  return own;
}

Shape whole_shape(const AdapterTensor& tensor) {
  if (is_b(tensor)) return {tensor.outputs, tensor.rank * tensor.experts};
  return {tensor.experts * tensor.rank, tensor.inputs};
}

void write_expert(const Tensor& whole, const AdapterTensor& tensor, const Tensor& values) {
  if (is_b(tensor)) return copy_columns(values, whole, tensor, RowsTo::kFile);
  std::copy_n(values.data<float>(), values.elements(),
              whole.data<float>() + tensor.expert * values.elements());
}

}  // namespace hybrid_trainer
