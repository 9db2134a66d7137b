#pragma once

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {

/// Another optimizer, whose weights run ahead of their own slow path. With u, an exponential mean of
/// the path's changes with a time constant of `slow_momentum_steps` updates, the live weights are
/// w = x + b·u, gradients are taken there, and the update Δ that the other optimizer makes at w moves
/// the path:
///   x' = w + Δ;  u' = (1 − 1/steps)·u + (x' − x)/steps;  w' = x' + b'·u'
/// The share b' is chosen before each update; at 0 the live weights are the path. One tensor for each
/// parameter, "….slow", f32; x is never stored. While b and b' are 0 the mean rests, and where b' rises
/// again it begins anew: what it holds is of long ago. Source: EMA-Nesterov, arXiv 2605.25395.
class SlowNesterov final : public Optimizer {
 public:
  /// `parameters` are the other optimizer's, in its order; the state lies in the pool of `home`.
  /// Throws OutOfMemory.
  SlowNesterov(std::unique_ptr<Optimizer> other, std::vector<Parameter*> parameters,
               const OptimizerConfig& config, const Stream& home);

  /// b' is slow_momentum at the highest learning rate, less as it falls, and 0 in the last third of
  /// the run: what extrapolates while the learning rate is high only adds noise where it falls.
  void see_progress(const RunProgress& progress) override;
  /// b' of the updates to come.
  void set_next_share(double share) { next_share_ = static_cast<float>(share); }
  /// b of the weights as they are.
  double share() const { return share_; }

  void begin_step(const Stream& stream) override;
  std::size_t weights() const override { return parameters_.size(); }
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) override;
  void end_step(const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;
  void visit_numbers(const NumberVisitor& visit) override;
  bool leave_device(const Stream& stream) override { return other_->leave_device(stream); }
  void set_steps_taken(std::int64_t steps) override;
  void set_orthogonalization_period(std::int64_t steps) override {
    other_->set_orthogonalization_period(steps);
  }

 private:
  /// The share of u in u', whose rest is Δ/steps; 0 where the mean begins.
  float kept() const { return share_ == 0 ? 0 : 1 - added_ + added_ * share_; }
  bool rests() const { return share_ == 0 && next_share_ == 0; }

  std::unique_ptr<Optimizer> other_;
  std::vector<Parameter*> parameters_;
  double share_at_peak_, peak_rate_;
  float added_;  // 1/steps
  float share_ = 0, next_share_ = 0;
  std::vector<Tensor> slow_;  // u of each parameter
};

}  // namespace hybrid_trainer
