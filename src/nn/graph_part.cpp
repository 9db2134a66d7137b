#include "hybrid_trainer/nn/graph_part.h"

#include <cmath>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/nn/initialization.h"
#include "src/nn/module_sequence.h"

namespace hybrid_trainer::graph {

void Part::initialize(std::uint64_t seed, const Stream& stream) {
  first_matrices([&](const ParameterVisitor& visit) { visit_parameters(visit); }, seed, stream);
}

void first_matrices(const std::function<void(const ParameterVisitor&)>& visit_parameters,
                    std::uint64_t seed, const Stream& stream) {
  constexpr double kOfTables = 0.02;
  visit_parameters([&](Parameter& parameter) {
    if (parameter.role() == Role::kVector || !parameter.trainable()) return;
    const Shape& shape = parameter.shape();
    const auto inputs = static_cast<double>(shape[shape.rank() - 1]);
    const bool is_table = parameter.role() == Role::kEmbedding;
    initialize_normal(parameter, is_table ? kOfTables : 1 / std::sqrt(inputs), seed, stream);
  });
}

Shape output_shape(const ModuleMaker& make, const ModuleName& name, const Shape& input) {
  const Stream nowhere(make_device_pool({.simulated = true}));
  const std::unique_ptr<Module> module = make(name, input, nowhere);
  ForwardOnlyTape tape{Pass{.training = false}};
  const DType dtype = reads_tokens(*module) ? DType::kI32 : DType::kF32;
  const Tensor x = Tensor::empty(input, dtype, MemoryKind::kData, nowhere);
  return module->forward(x, tape, nowhere).shape();
}

}  // namespace hybrid_trainer::graph
