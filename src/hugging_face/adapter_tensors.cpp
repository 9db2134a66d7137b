#include "src/hugging_face/adapter_tensors.h"

#include <string_view>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/hugging_face/module_names.h"

namespace hybrid_trainer {

namespace {

/// Modules of all experts together that have other names among adapters.
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

/// What is told of a linear map of an expert.
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

}  // namespace hybrid_trainer
