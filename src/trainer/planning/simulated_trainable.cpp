#include "src/trainer/planning/simulated_trainable.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "phases/asynchronous_gradients/delayed_gradients.h"
#include "phases/asynchronous_optimizer/delayed_optimizer.h"
#include "phases/local_sgd/local_training.h"

namespace hybrid_trainer {

namespace {

constexpr double kLoss = 1e6;

}  // namespace

/// Keeps the batches of a longer prediction than the simulated one.
class SimulatedTrainable::Kept final : public Rollback {
 public:
  explicit Kept(Rollback& real) : real_(real) {}
  void keep_batches_of(std::int64_t predicted, std::int64_t simulated) {
    predicted_ = predicted;
    simulated_ = simulated;
  }
  void save_snapshot() override { real_.save_snapshot(); }
  void restore_snapshot() override { real_.restore_snapshot(); }
  void drop_snapshot() override {
    real_.drop_snapshot();
    others_.clear();
    kept_ = 0;
  }
  /// Keeps this step's batch, and a copy of it for each step that the simulation omits, so that
  /// memory use equals that of the full prediction.
  Batch keep_batch(const Batch& batch) override {
    const std::int64_t before = predicted_ * kept_ / simulated_,
                       now = predicted_ * ++kept_ / simulated_;
    for (std::int64_t i = before + 1; i < now; ++i) others_.push_back(real_.keep_batch(batch));
    return real_.keep_batch(batch);
  }
  Batch fetch_batch(const Batch& kept) override { return real_.fetch_batch(kept); }
  void rewind(std::int64_t steps) override { real_.rewind(steps); }

 private:
  Rollback& real_;
  std::int64_t predicted_ = 1, simulated_ = 1, kept_ = 0;
  std::vector<Batch> others_;  // batches of steps that are not simulated
};

/// Delayed updates that arrive without a prediction error.
class SimulatedTrainable::Optimizer final : public PendingWork, public DelayedOptimizer {
 public:
  explicit Optimizer(DelayedOptimizer& real) : real_(real) {}
  ArrivedUpdate wait_for_update(bool finite) override {
    real_.wait_for_update(finite);
    return {};
  }
  void wait_for_exact_weights() override { real_.wait_for_exact_weights(); }

 private:
  DelayedOptimizer& real_;
};

class SimulatedTrainable::Gradients final : public PendingWork, public DelayedGradients {
 public:
  Gradients(DelayedGradients& real, const SimulatedTrainable& model) : real_(real), model_(model) {}
  double wait_for_own_gradient(const Batch& batch) override {
    real_.wait_for_own_gradient(model_.part_of(batch));
    return kLoss;
  }
  std::optional<GradientMeasurement> wait_for_gradient(bool all) override {
    if (!real_.wait_for_gradient(all)) return {};
    return GradientMeasurement{.loss = kLoss, .norm = 1};
  }
  ArrivedUpdate apply(bool finite) override {
    real_.apply(finite);
    return {};
  }
  void predict_weights() override { real_.predict_weights(); }
  void wait_for_exact_weights() override { real_.wait_for_exact_weights(); }

 private:
  DelayedGradients& real_;
  const SimulatedTrainable& model_;
};

class SimulatedTrainable::Local final : public PendingWork, public LocalTraining {
 public:
  Local(LocalTraining& real, const SimulatedTrainable& model) : real_(real), model_(model) {}
  LocalStep wait_for_step(const Batch& batch) override {
    return real_.wait_for_step(model_.part_of(batch));
  }
  LocalStep wait_for_exact_weights() override { return real_.wait_for_exact_weights(); }

 private:
  LocalTraining& real_;
  const SimulatedTrainable& model_;
};

SimulatedTrainable::SimulatedTrainable(ModelTrainable& model)
    : model_(model), kept_(std::make_unique<Kept>(model.rollback())), loss_(kLoss) {
  PendingWork& real = model.pending();
  if (auto* const optimizer = dynamic_cast<DelayedOptimizer*>(&real))
    pending_ = std::make_unique<Optimizer>(*optimizer);
  if (auto* const gradients = dynamic_cast<DelayedGradients*>(&real))
    pending_ = std::make_unique<Gradients>(*gradients, *this);
  if (auto* const local = dynamic_cast<LocalTraining*>(&real))
    pending_ = std::make_unique<Local>(*local, *this);
}

SimulatedTrainable::~SimulatedTrainable() = default;

void SimulatedTrainable::keep_batches_of(std::int64_t predicted, std::int64_t simulated) {
  kept_->keep_batches_of(predicted, simulated);
}

std::vector<Tensor> SimulatedTrainable::other_losses(const Batch& batch) const {
  std::vector<Tensor> losses;
  for (std::int64_t first = examples_; first < batch.size(); first += micro_batch_)
    losses.push_back(kernels::empty_result(model_.stream()));
  return losses;
}

/// Returns a scripted loss. Correct measures the predicted point first, then the snapshot. The
/// learning rate finder, which probes parts of the batch, expects the loss to fall.
double SimulatedTrainable::wait_for_loss(const Batch& batch, std::int64_t examples) {
  const bool is_whole = examples == batch.size();
  const std::vector<Tensor> losses = is_whole ? other_losses(batch) : std::vector<Tensor>();
  model_.wait_for_loss(part_of(batch), std::min(examples, examples_));
  return !is_whole || keeps_ ? --loss_ : ++loss_;
}

GradientMeasurement SimulatedTrainable::wait_for_gradient(const Batch& batch) {
  std::vector<Tensor> held = other_losses(batch);
  for (int i = 0; i < partials_.count; ++i) {
    held.push_back(
        Tensor::empty({partials_.elements}, DType::kF32, MemoryKind::kGradients, *partials_.home));
  }
  model_.wait_for_gradient(part_of(batch));
  return {.loss = kLoss, .norm = 1};
}

Rollback& SimulatedTrainable::rollback() { return *kept_; }
PendingWork& SimulatedTrainable::pending() { return *pending_; }

}  // namespace hybrid_trainer
