#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

/// A table, two matrices and a vector.
struct SomeWeights {
  SomeWeights() {
    add("table", {301, 50}, Role::kEmbedding);
    add("first", {128, 100}, Role::kMatrix);
    add("gain", {77}, Role::kVector);
    add("second", {64, 192}, Role::kMatrix);
  }
  void add(const char* name, const Shape& shape, Role role) {
    own.push_back(std::make_unique<Parameter>(name, shape, role, stream));
    weights.push_back(own.back().get());
    float* const values = weights.back()->master_in_place().data<float>();
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values[i] = static_cast<float>(own.size() * 100000) + static_cast<float>(i);
  }

  Stream stream{MemoryPool::create("device")};
  std::vector<std::unique_ptr<Parameter>> own;
  std::vector<Parameter*> weights;
};

inline OptimizerConfig optimizer_named(const char* name) {
  OptimizerConfig config;
  config.name = name;
  return config;
}

}  // namespace hybrid_trainer
