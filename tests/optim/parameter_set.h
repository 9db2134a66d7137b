#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {

inline std::vector<float> numbers(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
}

/// One parameter of each kind: a wide, a tall and a square matrix, an embedding table and a vector.
/// A second embedding table is large enough for 8-bit moments.
class ParameterSet {
 public:
  /// `gradient_bits`: stored precision of gradients, 32 or 16.
  explicit ParameterSet(const Stream& stream, std::int64_t gradient_bits = 32)
      : stream_(stream), rounds_(gradient_bits == 16) {
    add("wide", {6, 20}, Role::kMatrix);
    add("embedding", {11, 8}, Role::kEmbedding);
    add("tall", {24, 8}, Role::kMatrix);
    add("bias", {19}, Role::kVector);
    add("square", {9, 9}, Role::kMatrix);
    add("large", {41, 101}, Role::kEmbedding);
    rounds_ ? rounded_.allocate(pointers(), stream_) : kept_.allocate(pointers(), stream_);
  }

  std::vector<Parameter*> pointers() {
    std::vector<Parameter*> pointers;
    for (Parameter& parameter : parameters_) pointers.push_back(&parameter);
    return pointers;
  }
  Parameter& operator[](std::size_t i) { return parameters_[i]; }
  std::size_t size() const { return parameters_.size(); }

  /// Writes one step's gradients, for all parameters except `without`.
  void set_gradients(std::uint64_t seed, std::size_t without = 100) {
    begin_gradients(pointers(), sink(), 1);
    for (std::size_t i = 0; i < size(); ++i) {
      if (i == without) continue;
      const GradientContribution to(parameters_[i], stream_);
      copy(to.gradient(), normal_tensor(parameters_[i].shape(), 100 * seed + i, stream_), stream_);
    }
  }
  void zero_gradients() {
    for (Parameter& parameter : parameters_) fill_zero(parameter.gradient(), stream_);
  }
  std::vector<Tensor> copies() const {
    std::vector<Tensor> copies;
    for (const Parameter& parameter : parameters_)
      copies.push_back(clone(master_of(parameter), stream_));
    return copies;
  }
  std::function<void()> before_rounding{};
  bool has_values(const std::vector<Tensor>& values) const {
    bool same = true;
    for (std::size_t i = 0; i < size(); ++i)
      same = same && same_bits(master_of(parameters_[i]), values[i]);
    return same;
  }

 private:
  void add(const std::string& name, const Shape& shape, Role role) {
    parameters_.emplace_back(name, shape, role, stream_);
    copy(master_of(parameters_.back()), normal_tensor(shape, parameters_.size() - 1, stream_),
         stream_);
  }
  GradientSink& sink() { return rounds_ ? static_cast<GradientSink&>(rounded_) : kept_; }

  const Stream& stream_;
  bool rounds_;
  std::vector<Parameter> parameters_;
  ResidentGradients kept_;
  RoundedGradients rounded_{[this] {
    if (before_rounding) before_rounding();
  }};
};

/// Compares ten steps at a rate of 0.02 with gradients halved with `rule(w, m, gradient, decay)` in
/// double. Everything except vectors decays by 0.1.
template <class Rule>
void expect_follows(Optimizer& optimizer, ParameterSet& parameters, const Stream& stream,
                    const Rule& rule) {
  std::vector<std::vector<double>> w, m;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto start = numbers(master_of(parameters[i]));
    w.emplace_back(start.begin(), start.end());
    m.emplace_back(start.size(), 0.0);
  }
  for (std::uint64_t t = 1; t <= 10; ++t) {
    parameters.set_gradients(t);
    optimizer.step(0.02f, 0.5f, stream);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const auto g = numbers(parameters[i].gradient());
      const double decay = parameters[i].role() != Role::kVector ? 0.1 : 0;
      for (std::size_t j = 0; j < g.size(); ++j)
        rule(w[i][j], m[i][j], 0.5 * static_cast<double>(g[j]), decay);
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    const auto now = numbers(master_of(parameters[i]));
    for (std::size_t j = 0; j < now.size(); ++j) EXPECT_NEAR(now[j], w[i][j], 3e-6);
  }
}

}  // namespace hybrid_trainer::testing
