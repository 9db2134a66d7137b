#pragma once

#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {

/// Slow Nesterov momentum. Wraps an optimizer whose updates move a path x. u is the exponential
/// mean of the changes of x, with a time constant of `slow_momentum_steps` updates. Live weights,
/// at which gradients are computed, run ahead of the path: w = x + b·u. An update Δ of the wrapped
/// optimizer at w gives:
///   x' = w + Δ;  u' = (1 − 1/steps)·u + (x' − x)/steps;  w' = x' + b'·u'
/// The share b' is set before each update. If it is 0, live weights are on the path. State: u, one
/// f32 tensor per parameter, "….slow"; x is not stored. u is not updated while b and b' are 0, and
/// restarts when b' rises again, because it is outdated. Source: EMA-Nesterov, arXiv 2605.25395.
class SlowNesterov final : public Optimizer {
 public:
  /// `parameters`: the parameters of `other`, in its order. The state is in the pool of `home`.
  /// Throws OutOfMemory.
  SlowNesterov(std::unique_ptr<Optimizer> other, std::vector<Parameter*> parameters,
               const OptimizerConfig& config, const Stream& home);

  /// Sets b' in proportion to the learning rate: slow_momentum at the highest rate, and 0 in the
  /// last third of the run, because extrapolation only adds noise there.
  void set_progress(const RunProgress& progress) override;
  void set_next_share(double share) { next_share_ = static_cast<float>(share); }
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
  /// Returns the factor of u in u' when u' is computed from Δ/steps; 0 when the mean restarts.
  float kept() const { return share_ == 0 ? 0 : 1 - added_ + added_ * share_; }
  bool is_idle() const { return share_ == 0 && next_share_ == 0; }

  std::unique_ptr<Optimizer> other_;
  std::vector<Parameter*> parameters_;
  double share_at_peak_, peak_rate_;
  float added_;  // 1/steps
  float share_ = 0, next_share_ = 0;
  std::vector<Tensor> slow_;  // u of each parameter
};

}  // namespace hybrid_trainer
