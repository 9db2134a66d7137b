#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer::testing {

/// Normally distributed values from `seed`, of the given shape.
inline Tensor normal_tensor(const Shape& shape, std::uint64_t seed, const Stream& stream) {
  Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.data<float>()[i] = random_normal({seed, 0, 0}, static_cast<std::uint64_t>(i));
  }
  return tensor;
}

inline std::vector<float> numbers(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
}

inline bool same_bits(const Tensor& x, const Tensor& y) {
  return x.shape() == y.shape() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

inline Tensor clone(const Tensor& tensor, const Stream& stream) {
  Tensor other = Tensor::empty_like(tensor, MemoryKind::kOptimizerState, stream);
  copy(other, tensor, stream);
  return other;
}

/// One of each kind of parameter: a wide, a tall and a square matrix, an embedding table and a
/// vector; and an embedding table that is large enough for 8-bit moments.
class ParameterSet {
 public:
  explicit ParameterSet(const Stream& stream) : stream_(stream) {
    add("wide", {6, 20}, true, false);
    add("embedding", {11, 8}, true, true);
    add("tall", {24, 8}, true, false);
    add("bias", {19}, false, false);
    add("square", {9, 9}, true, false);
    add("large", {41, 101}, true, true);
  }

  std::vector<Parameter*> pointers() {
    std::vector<Parameter*> pointers;
    for (Parameter& parameter : parameters_) pointers.push_back(&parameter);
    return pointers;
  }
  Parameter& operator[](std::size_t i) { return parameters_[i]; }
  std::size_t size() const { return parameters_.size(); }

  void set_gradients(std::uint64_t seed) {
    for (std::size_t i = 0; i < size(); ++i) {
      copy(parameters_[i].gradient,
           normal_tensor(parameters_[i].value.shape(), 100 * seed + i, stream_), stream_);
      parameters_[i].has_gradient = true;
    }
  }
  void zero_gradients() {
    for (Parameter& parameter : parameters_) fill_zero(parameter.gradient, stream_);
  }
  std::vector<Tensor> copies() const {
    std::vector<Tensor> copies;
    for (const Parameter& parameter : parameters_)
      copies.push_back(clone(parameter.value, stream_));
    return copies;
  }
  bool has_values(const std::vector<Tensor>& values) const {
    bool same = true;
    for (std::size_t i = 0; i < size(); ++i)
      same = same && same_bits(parameters_[i].value, values[i]);
    return same;
  }

 private:
  void add(const std::string& name, const Shape& shape, bool is_matrix, bool is_embedding) {
    Parameter parameter;
    parameter.name = name;
    parameter.value = normal_tensor(shape, parameters_.size(), stream_);
    parameter.gradient = Tensor::zeros(shape, DType::kF32, MemoryKind::kGradients, stream_);
    parameter.is_matrix = is_matrix;
    parameter.is_embedding = is_embedding;
    parameters_.push_back(std::move(parameter));
  }
  const Stream& stream_;
  std::vector<Parameter> parameters_;
};

}  // namespace hybrid_trainer::testing
