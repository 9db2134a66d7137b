#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Turns gradients into weight changes. Its state (moments) is a list of named tensors that others
/// may offload and restore; the counters stay. Vectors do not decay. While state is
/// offloaded, step and write_momentum_directions throw.
class Optimizer {
 public:
  using StateVisitor = std::function<void(const std::string& name, Tensor& tensor)>;

  virtual ~Optimizer() = default;
  /// One step on all parameters that have a gradient, with the given learning rate.
  /// `gradient_scale` multiplies gradients first (clipping). Refreshes compute copies. Allocates
  /// nothing.
  virtual void step(float learning_rate, float gradient_scale, const Stream& stream) = 0;
  /// directions[i] = the change that a step with a zero gradient and no weight decay would make to
  /// parameter i, from the moments alone (momentum coasting). f32, shapes of the parameters, in
  /// visiting order. Changes no state.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                         const Stream& stream) = 0;
  /// Visits each state tensor with its name ("h.0.attn.c_attn.weight.m"), always in the same order;
  /// the visitor may replace the tensor; names
  /// of what is never negative end in ".v"; the Tensor object's address stays the same.
  virtual void visit_state(const StateVisitor& visit) = 0;
  /// Writes back what the device has of a state whose home is elsewhere, and frees it until the next
  /// update; true if that was anything. To be called before visit_state.
  virtual bool leave_device(const Stream&) { return false; }
  /// Steps since the state was zero; not part of visit_state. Whoever zeroes the tensors sets this
  /// to 0.
  std::int64_t steps_taken() const { return steps_; }
  virtual void set_steps_taken(std::int64_t steps) { steps_ = steps; }

 protected:
  std::int64_t steps_ = 0;
};

}  // namespace hybrid_trainer
