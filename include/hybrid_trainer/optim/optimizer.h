#pragma once

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Returns partial sums of squared gradients, each (1) f64 on the stream's device: one for each
/// gradient outside the device, in parameter order, and one for all gradients on the device.
std::vector<Tensor> gradient_square_sums(const std::vector<Parameter*>& parameters,
                                         const Stream& stream);
/// Returns the L2 norm from `square_sums`; not finite if a gradient is not finite. Blocks.
double wait_for_norm(const std::vector<Tensor>& square_sums, const Stream& stream);

/// Returns the factor that scales a norm to at most `clip_norm`. Returns 1 if `clip_norm` is 0
/// (off) or not exceeded, or if the norm is not finite. Source: Pascanu et al. 2013, algorithm 1.
float clip_scale(double norm, double clip_norm);

/// Role of a tensor in an optimizer's state.
enum class StateRole {
  kMomentum,            // mean of gradients, in the parameter's shape
  kSecondMoment,        // mean of squared gradients, in the parameter's shape; never negative
  kSharedSecondMoment,  // mean of squared gradients per row, column or block; never negative
  kCodes,               // 8-bit codes of a moment
  kScales,              // scales of 8-bit codes, one per block
  kSlowMomentum         // mean of weight updates
};

/// Identifies a state tensor. The name is for files and reports only ("h.0.attn.c_attn.weight.m").
struct StateLabel {
  const Parameter* parameter;
  StateRole role;
  std::string name;
};

/// Progress of a run before one of its updates.
struct RunProgress {
  std::int64_t update = 0, updates = 0;  // index of the next update, from 1; number of all updates
  double scheduled_rate = 0;             // learning rate of the update after the next
};

/// Turns gradients into weight updates. The state (moments) is a list of named tensors, which
/// callers may offload and restore. Counters are not part of the list. Does not decay vectors. step
/// and write_momentum_directions throw Error while the state is offloaded.
class Optimizer {
 public:
  using StateVisitor = std::function<void(const StateLabel& label, Tensor& tensor)>;
  using NumberVisitor = std::function<void(const std::string& name, double& value)>;

  virtual ~Optimizer() = default;
  /// Updates all parameters that have a gradient. Multiplies gradients by `gradient_scale` first,
  /// for clipping. Refreshes the compute copies. Allocates no memory.
  void step(float learning_rate, float gradient_scale, const Stream& stream);
  /// Begins a step for callers that load one weight at a time: call update_weight for each
  /// parameter index, in any order, then end_step. Throws Error if the state is offloaded.
  virtual void begin_step(const Stream& stream) = 0;
  virtual std::size_t weights() const = 0;
  virtual void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                             const Stream& stream) = 0;
  /// Calls update_weight for each parameter; weights on the device may share kernel launches.
  virtual void update_weights(float learning_rate, float gradient_scale, const Stream& stream);
  virtual void end_step(const Stream&) {}
  /// Writes to directions[i], f32, the change of parameter i that its moments alone would cause,
  /// without a gradient and weight decay. Does not change the state.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                         const Stream& stream) = 0;
  /// Visits each state tensor in a fixed order. The references stay valid between calls; the visitor
  /// may assign another tensor.
  virtual void visit_state(const StateVisitor& visit) = 0;
  /// Visits the scalars of the state other than steps_taken. The visitor may change them.
  virtual void visit_numbers(const NumberVisitor&) {}
  /// Updates settings that depend on progress. Call it before step and write_momentum_directions.
  virtual void set_progress(const RunProgress&) {}
  /// Sets Muon's orthogonalization period from the next step on. Other optimizers ignore it.
  virtual void set_orthogonalization_period(std::int64_t) {}
  /// Writes cached device copies of offloaded state back and frees them until the next update.
  /// Returns whether there were any. Call it before visit_state.
  virtual bool leave_device(const Stream&) { return false; }
  /// Waits until the gradients of the last step may be overwritten. Blocks. Throws IoError.
  virtual void wait_until_gradients_are_sent() {}
  /// Returns the number of steps since the state was zero. Callers that zero the state set this
  /// number to 0.
  std::int64_t steps_taken() const { return steps_; }
  virtual void set_steps_taken(std::int64_t steps) { steps_ = steps; }

 protected:
  std::int64_t steps_ = 0;
};

}  // namespace hybrid_trainer
