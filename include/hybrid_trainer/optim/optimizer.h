#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Turns gradients into weight changes. Its state (moments) is a list of named f32 tensors that others may move away and
/// bring back; the counters stay.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step on all parameters with the learning rate of now. `gradient_scale` multiplies gradients first (clipping).
  /// Refreshes Parameter::working where it is defined. Nothing is allocated.
  virtual void step(float learning_rate, float gradient_scale, const Stream& stream) = 0;
  /// directions[i] = the change that the next step would make to parameter i with no new gradient and without weight decay,
  /// from the moments alone (momentum coasting). f32, shapes of the parameters, in visiting order.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                         const Stream& stream) = 0;
  /// Visits each state tensor with its name ("h.0.attn.c_attn.weight.m"); the visitor may replace the tensor.
  virtual void visit_state(const std::function<void(const std::string& name, Tensor& tensor)>& visit) = 0;
  /// Counters only; tensors travel through visit_state.
  virtual std::int64_t steps_taken() const = 0;
  virtual void set_steps_taken(std::int64_t steps) = 0;
};

}  // namespace hybrid_trainer
