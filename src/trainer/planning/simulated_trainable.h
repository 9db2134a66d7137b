#pragma once

#include "src/trainer/model_trainable.h"

namespace hybrid_trainer {

/// Trainable for a simulated device, with scripted losses to make phases predict and decide.
class SimulatedTrainable final : public Trainable {
 public:
  /// `model` must be on a simulated device and outlive this object.
  explicit SimulatedTrainable(ModelTrainable& model);
  ~SimulatedTrainable() override;
  /// Computes only the first `micro_batches` micro-batches of `size` examples. Allocates only the
  /// losses of the remaining micro-batches.
  void compute_with(std::int64_t micro_batches, std::int64_t size) {
    micro_batch_ = size;
    examples_ = micro_batches * size;
  }
  /// Simulates a prediction of `predicted` steps with only `simulated` steps, but keeps as many
  /// batches in memory as the whole prediction.
  void keep_batches_of(std::int64_t predicted, std::int64_t simulated);
  /// Sets additional memory to allocate during a gradient for micro-batches that are not simulated:
  /// `count` partial sums of `elements` elements in the pool of `home`.
  void set_partial_sums(int count, std::int64_t elements, const Stream& home) {
    partials_ = {count, elements, &home};
  }
  void decide(bool keeps) { keeps_ = keeps; }

  void enter_phase(Phase phase) override { model_.enter_phase(phase); }
  void begin_restore() override { model_.begin_restore(); }
  double wait_for_loss(const Batch& batch, std::int64_t examples) override;
  GradientMeasurement wait_for_gradient(const Batch& batch) override;
  void apply_gradient() override { model_.apply_gradient(); }
  void scale_learning_rate(double factor) override { model_.scale_learning_rate(factor); }
  double step_flops(const Batch& batch) const override { return model_.step_flops(batch); }
  bool is_distributed() const override { return false; }
  const Stream& stream() const override { return model_.stream(); }
  WeightSpace& weights() override { return model_.weights(); }
  Rollback& rollback() override;
  PendingWork& pending() override;

 private:
  class Kept;
  class Optimizer;
  class Gradients;
  class Local;
  struct PartialSums {
    int count = 0;
    std::int64_t elements = 0;
    const Stream* home = nullptr;
  };
  Batch part_of(const Batch& batch) const {
    return batch.examples(0, std::min(examples_, batch.size()));
  }
  std::vector<Tensor> other_losses(const Batch& batch) const;

  ModelTrainable& model_;
  std::unique_ptr<Kept> kept_;
  std::unique_ptr<PendingWork> pending_;
  PartialSums partials_;
  std::int64_t examples_ = 0, micro_batch_ = 1;
  bool keeps_ = true;
  double loss_;
};

}  // namespace hybrid_trainer
