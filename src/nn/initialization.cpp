#include "hybrid_trainer/nn/initialization.h"

#include <algorithm>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

/// FNV-1a: a name's number is the same in every run and build.
std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001B3u;
  return hash;
}

}  // namespace

void initialize_normal(Parameter& parameter, double deviation, std::uint64_t seed) {
  const RandomKey key{seed, 0, hash_of(parameter.name)};
  float* values = parameter.value.data<float>();
  const std::int64_t count = parameter.value.elements();
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(deviation) * random_normal(key, static_cast<std::uint64_t>(i));
  }
}

void initialize_constant(Parameter& parameter, float value) {
  std::fill_n(parameter.value.data<float>(), parameter.value.elements(), value);
}

Parameter make_parameter(const std::string& name, const Shape& shape, const Stream& stream) {
  Parameter parameter;
  parameter.name = name;
  parameter.value = Tensor::zeros(shape, DType::kF32, MemoryKind::kParameters, stream);
  return parameter;
}

void allocate_gradients(const std::function<void(const ParameterVisitor&)>& visit_all,
                        const Stream& stream) {
  visit_all([&](Parameter& parameter) {
    if (!parameter.gradient)
      parameter.gradient = Tensor::empty_like(parameter.value, MemoryKind::kGradients, stream);
    parameter.clear_gradient();
  });
}

void free_gradients(const std::function<void(const ParameterVisitor&)>& visit_all) {
  visit_all([](Parameter& parameter) {
    parameter.gradient = {};
    parameter.clear_gradient();
  });
}

}  // namespace hybrid_trainer
