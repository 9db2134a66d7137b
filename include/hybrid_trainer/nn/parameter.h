#pragma once

#include <functional>
#include <string>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer {

/// One trainable tensor. `value` is the f32 master; `working` is its bf16 copy, which exists only
/// while the phase computes in bf16. Gradients: the first backward after clear_gradient()
/// overwrites, later ones add, so no pass writes zeros.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor gradient;            // f32, shape of value; undefined while freed
  Tensor working;             // bf16 or undefined
  bool is_matrix = false;     // weight decay and Muon's orthogonalisation apply to matrices only
  bool is_embedding = false;  // an embedding table or the output head: Muon leaves it to AdamW
  bool has_gradient = false;

  const Tensor& for_compute() const { return working ? working : value; }
  /// How to write the next contribution; calls after the first return kAccumulate.
  kernels::GradientMode take_gradient_mode() {
    const bool first = !has_gradient;
    has_gradient = true;
    return first ? kernels::GradientMode::kOverwrite : kernels::GradientMode::kAccumulate;
  }
  void clear_gradient() { has_gradient = false; }
};

using ParameterVisitor = std::function<void(Parameter&)>;

}  // namespace hybrid_trainer
