#pragma once

#include <functional>
#include <string>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer {

/// One trained tensor. `value` is the f32 master; `working` is its bf16 copy, there only while the
/// phase computes in bf16. Gradients: the first backward after clear_gradient() overwrites, the
/// ones after it add, so no pass writes zeros.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor gradient;            // f32, shape of value; undefined while freed
  Tensor working;             // bf16 or undefined
  bool is_matrix = false;     // weight decay and Muon's orthogonalisation apply to matrices only
  bool is_embedding = false;  // a table of rows or the output head: Muon leaves it to AdamW
  bool has_gradient = false;

  const Tensor& for_compute() const { return working ? working : value; }
  /// How the next contribution is to be written; calls after the first answer kAccumulate.
  kernels::GradientMode take_gradient_mode() {
    const bool first = !has_gradient;
    has_gradient = true;
    return first ? kernels::GradientMode::kOverwrite : kernels::GradientMode::kAccumulate;
  }
  void clear_gradient() { has_gradient = false; }
};

using ParameterVisitor = std::function<void(Parameter&)>;

}  // namespace hybrid_trainer
