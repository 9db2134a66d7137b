#pragma once

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Sums of squares that together are that of all gradients that were written, in their order, (1) f64
/// each on the stream's device: one of those there, and one of each that lies elsewhere.
std::vector<Tensor> gradient_square_sums(const std::vector<Parameter*>& parameters,
                                         const Stream& stream);
/// The L2 norm from them; not finite where an element is not. Blocks.
double wait_for_norm(const std::vector<Tensor>& square_sums, const Stream& stream);

/// The factor that brings gradients of this norm down to at most `clip_norm`; 1 if `clip_norm` is 0
/// (off) or the norm is not above it. A norm that is not finite gives 1: the caller has to check it
/// first. Source: Pascanu et al. 2013, algorithm 1.
float clip_scale(double norm, double clip_norm);

/// Role of a tensor in an optimizer's state.
enum class StateRole {
  kMomentum,            // a mean of gradients, of the parameter's shape
  kSecondMoment,        // a mean of their squares, of the parameter's shape; never negative
  kSharedSecondMoment,  // one for each row, column or block of elements; never negative
  kCodes,               // one of these in bytes
  kScales,              // of codes, one for each block of them
  kSlowMomentum         // a mean of weights
};

/// Which tensor of the state it is. Only files and people read the name
/// ("h.0.attn.c_attn.weight.m").
struct StateLabel {
  const Parameter* parameter;
  StateRole role;
  std::string name;
};

/// Where a run stands before one of its updates.
struct RunProgress {
  std::int64_t update = 0, updates = 0;  // the one to come, from 1 on, and all of the run
  double scheduled_rate = 0;             // of the update after it
};

/// Turns gradients into weight changes. Its state (moments) is a list of named tensors that others
/// may offload and restore; the counters stay. Vectors do not decay. While state is
/// offloaded, step and write_momentum_directions throw.
class Optimizer {
 public:
  using StateVisitor = std::function<void(const StateLabel& label, Tensor& tensor)>;
  using NumberVisitor = std::function<void(const std::string& name, double& value)>;

  virtual ~Optimizer() = default;
  /// One step on all parameters that have a gradient, with the given learning rate.
  /// `gradient_scale` multiplies gradients first (clipping). Refreshes compute copies. Allocates
  /// nothing.
  void step(float learning_rate, float gradient_scale, const Stream& stream);
  /// A step in parts, for callers that have one weight loaded at a time: begin_step, update_weight
  /// once for each parameter, by its place among them, in any order, end_step. A parameter without
  /// a gradient is left alone. Throws Error from begin_step where state is offloaded.
  virtual void begin_step(const Stream& stream) = 0;
  virtual std::size_t weights() const = 0;
  virtual void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                             const Stream& stream) = 0;
  /// update_weight for each parameter; those that lie on the device may share launches.
  virtual void update_weights(float learning_rate, float gradient_scale, const Stream& stream);
  virtual void end_step(const Stream&) {}
  /// directions[i] = the change that a step with a vanishing gradient and no weight decay would make
  /// to parameter i, from the moments alone (momentum coasting). f32, shapes of the parameters, in
  /// visiting order. Changes no state.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                         const Stream& stream) = 0;
  /// Visits each state tensor, always in the same order. The visitor may replace the tensor; the
  /// Tensor object's address stays the same.
  virtual void visit_state(const StateVisitor& visit) = 0;
  /// Visits each number of the state besides its tensors and steps_taken; the visitor may change it.
  virtual void visit_numbers(const NumberVisitor&) {}
  /// To be called before each step and each write_momentum_directions, for what depends on it.
  virtual void see_progress(const RunProgress&) {}
  /// From the next step on; see OptimizerConfig. Nothing to an optimizer without one.
  virtual void set_orthogonalization_period(std::int64_t) {}
  /// Writes back what the device has of a state whose home is elsewhere, and frees it until the next
  /// update; true if that was anything. To be called before visit_state.
  virtual bool leave_device(const Stream&) { return false; }
  /// Until then the gradients of the last step must stay as they are. Blocks. Throws IoError.
  virtual void wait_until_gradients_are_sent() {}
  /// Steps since the state was zero; not part of visit_state. Whoever zeroes the tensors sets this
  /// to 0.
  std::int64_t steps_taken() const { return steps_; }
  virtual void set_steps_taken(std::int64_t steps) { steps_ = steps; }

 protected:
  std::int64_t steps_ = 0;
};

}  // namespace hybrid_trainer
