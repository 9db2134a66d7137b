#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "hybrid_trainer/phases/trainable.h"
#include "phases/asynchronous_gradients/delayed_gradients.h"
#include "phases/asynchronous_optimizer/delayed_optimizer.h"
#include "phases/local_sgd/local_training.h"

namespace hybrid_trainer {

/// loss = floor + ½·Σ curvature_i·(w_i − center_i)² over ten weights in two tensors, trained with
/// momentum. The batch's input is the center, so noise in the batches is noise in the gradients.
class QuadraticBowl final : public Trainable,
                            public WeightSpace,
                            public Rollback,
                            public PendingWork,
                            public DelayedOptimizer,
                            public DelayedGradients {
 public:
  static constexpr std::int64_t kWeights = 10;
  struct Options {
    double learning_rate = 0.02;
    double momentum = 0.9;
    double direction_scale = 1;  // factor of write_momentum_directions; negative: uphill
    double floor = 1;
    double forward_offset = 0;  // added by wait_for_loss, like a difference due to dropout
  };

  explicit QuadraticBowl(const Options& options) : options_(options) {
    for (const Shape& shape : {Shape{2, 3}, Shape{4}}) {
      values_.push_back(Tensor::empty(shape, DType::kF32, MemoryKind::kParameters, stream_));
    }
    for (std::int64_t i = 0; i < kWeights; ++i) at(i) = 1.0f + 0.1f * static_cast<float>(i);
    moments_.assign(kWeights, 0.0f);
  }
  QuadraticBowl() : QuadraticBowl(Options{}) {}

  void enter_phase(Phase phase) override {
    if (phase == Phase::kPredict || phase == Phase::kCorrect) may_run_short();
    log.push_back(name_of(phase));
    phase_ = phase;
    restoring_ = false;
    if (phase == Phase::kPredict) gradients_.clear();
  }
  void begin_restore() override {
    require(phase_ == Phase::kPredict, "begin_restore: in Predict");
    if (!restoring_) log.push_back("begin_restore");
    restoring_ = true;
  }
  double wait_for_loss(const Batch& batch, std::int64_t examples) override {
    if (phase_ == Phase::kWarmup) return probe_loss(batch, examples);
    may_run_short();
    ++forwards;
    if (phase_ == Phase::kPredict) gradients_.clear();
    return loss_of(batch) + options_.forward_offset;
  }
  GradientMeasurement wait_for_gradient(const Batch& batch) override {
    may_run_short();
    if (steps_need_all && holds_directions()) throw OutOfMemory("device memory: full", 1, 0);
    ++measurements;
    gradients_.clear();
    double squares = 0;
    for (std::size_t t = 0, i = 0; t < values_.size(); ++t) {
      gradients_.push_back(Tensor::empty_like(values_[t], MemoryKind::kGradients, stream_));
      for (std::int64_t k = 0; k < values_[t].elements(); ++k, ++i) {
        const float g = curvature(i) * (at(i) - batch.at("centres").data<float>()[i]);
        gradients_[t].data<float>()[k] = g;
        squares += static_cast<double>(g) * g;
      }
    }
    return {loss_of(batch), std::sqrt(squares)};
  }
  void apply_gradient() override {
    require(phase_ != Phase::kPredict && !gradients_.empty(), "apply_gradient: nothing to apply");
    take_step(gradients_);
  }
  /// Delays updates by one step: each is applied with the next, or for exact weights.
  ArrivedUpdate wait_for_update(bool finite) override {
    require(phase_ == Phase::kPredict, "wait_for_update: in Predict");
    ArrivedUpdate arrived;
    arrived.is_delayed = true;
    if (!under_way_.empty()) {
      take_step(std::exchange(under_way_, {}));
      arrived = {prediction_error, "bowl", true, 1};
    }
    if (finite) under_way_ = std::exchange(gradients_, {});
    return arrived;
  }
  /// Behaves as if all ranks had the same gradient and it arrived one step late.
  double wait_for_own_gradient(const Batch& batch) override {
    sent_.push_back(wait_for_gradient(batch));
    sent_gradients_.push_back(std::exchange(gradients_, {}));
    return sent_.back().loss;
  }
  std::optional<GradientMeasurement> wait_for_gradient(bool all) override {
    if (sent_.empty() || (!all && sent_.size() < 2)) return {};
    gradients_ = sent_gradients_.front();
    sent_gradients_.erase(sent_gradients_.begin());
    const GradientMeasurement arrived = sent_.front();
    sent_.erase(sent_.begin());
    return arrived;
  }
  ArrivedUpdate apply(bool finite) override {
    if (finite) take_step(gradients_);
    ArrivedUpdate arrived;
    arrived.is_delayed = true;
    arrived.prediction_error = prediction_error;
    return arrived;
  }
  void predict_weights() override { log.push_back("predict weights"); }
  void wait_for_exact_weights() override {
    log.push_back("exact");
    if (!under_way_.empty()) take_step(std::exchange(under_way_, {}));
  }
  WeightSpace& weights() override { return *this; }
  Rollback& rollback() override { return *this; }
  /// Pending work of the configured method.
  PendingWork& pending() override {
    if (phases.method == "local_sgd") return local_;
    return *this;
  }
  const std::vector<Tensor>& values() const { return values_; }
  double loss(const Batch& batch) const { return loss_of(batch) + options_.forward_offset; }
  bool is_distributed() const override { return is_several; }
  std::vector<Tensor> empty_like_weights(MemoryKind kind) override {
    if (is_full) throw OutOfMemory("device memory: full", 1, 0);
    std::vector<Tensor> tensors;
    for (const Tensor& value : values_) tensors.push_back(Tensor::empty_like(value, kind, stream_));
    return tensors;
  }
  Batch keep_batch(const Batch& batch) override {
    may_run_short();
    return batch.with([&](const Tensor& part) {
      const Tensor made = Tensor::empty_like(part, MemoryKind::kData, stream_);
      copy(made, part, stream_);
      return made;
    });
  }
  Batch fetch_batch(const Batch& kept) override { return kept; }
  std::vector<Tensor> empty_directions() override {
    return empty_like_weights(MemoryKind::kPredictor);
  }
  void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                       const std::vector<float>& factors) override {
    kernels::scale(direction, of[0], factors[0], stream_);
    for (std::size_t i = 1; i < of.size(); ++i)
      kernels::axpy(direction, direction, factors[i], of[i], stream_);
  }
  void copy_weights(const std::vector<Tensor>& to) override {
    for (std::size_t i = 0; i < to.size(); ++i) copy(to[i], values_[i], stream_);
  }
  void add_weights(const std::vector<Tensor>& to, float kept, float added) override {
    for (std::size_t i = 0; i < to.size(); ++i) {
      for (std::int64_t k = 0; k < to[i].elements(); ++k) {
        float& value = to[i].data<float>()[k];
        value = (kept == 0 ? 0 : kept * value) + added * values_[i].data<float>()[k];
      }
    }
  }
  double wait_for_dot(const Tensor& x, const Tensor& y) override {
    may_run_short();
    return kernels::wait_for_dot(x, y, stream_);
  }
  void move_along(const std::vector<Tensor>& directions, double length) override {
    ++moves;
    for (std::size_t t = 0; t < values_.size(); ++t) {
      if (t > 0) may_run_short();  // after half of the move
      kernels::axpy(values_[t], values_[t], static_cast<float>(length), directions[t], stream_);
    }
  }
  double wait_for_slope(const std::vector<Tensor>& directions) override {
    may_run_short();
    const Tensor slope = kernels::empty_result(stream_);
    kernels::dot(slope, gradients_, directions, {}, stream_);
    return kernels::wait_for_value(slope, stream_);
  }
  void write_momentum_directions(const std::vector<Tensor>& directions) override {
    require(phase_ != Phase::kPredict, "the moments are away in Predict");
    may_run_short();
    ++directions_asked;
    const double scale = -options_.direction_scale * options_.learning_rate * options_.momentum;
    for (std::size_t t = 0, i = 0; t < values_.size(); ++t) {
      for (std::int64_t k = 0; k < values_[t].elements(); ++k, ++i) {
        directions[t].data<float>()[k] = static_cast<float>(scale) * moments_[i];
      }
    }
  }
  void follow(const std::vector<Tensor>&, double length) override { followed += length; }
  void save_snapshot() override {
    may_run_short();
    snapshot_ = flat();
  }
  void restore_snapshot() override {
    require(!snapshot_.empty(), "restore_snapshot: there is none");
    for (std::size_t i = 0; i < snapshot_.size(); ++i) at(i) = snapshot_[i];
  }
  void drop_snapshot() override { snapshot_.clear(); }
  void rewind(std::int64_t steps) override { rewinds.push_back(steps); }
  void scale_learning_rate(double factor) override { rate_factor = factor; }
  double step_flops(const Batch&) const override { return flops; }
  const Stream& stream() const override { return stream_; }

  std::vector<float> flat() const {
    std::vector<float> all;
    for (std::int64_t i = 0; i < kWeights; ++i) all.push_back(at(i));
    return all;
  }
  const std::vector<float>& moments() const { return moments_; }
  const std::vector<float>& snapshot() const { return snapshot_; }
  Options& options() { return options_; }

  /// State that a checkpoint would contain, other than the phase machine's.
  struct Saved {
    std::vector<float> weights, moments, snapshot;
  };
  Saved saved() const { return {flat(), moments_, snapshot_}; }
  void restore(const Saved& saved) {
    for (std::int64_t i = 0; i < kWeights; ++i) at(i) = saved.weights[static_cast<std::size_t>(i)];
    moments_ = saved.moments;
    snapshot_ = saved.snapshot;
  }

  /// Batch i, with centers normally distributed around 0 with standard deviation `noise`.
  Batch batch(std::int64_t i, double noise) const {
    Tensor centres = Tensor::zeros({1, kWeights}, DType::kF32, MemoryKind::kData, stream_);
    const RandomKey key{7, static_cast<std::uint64_t>(i), 0};
    for (std::int64_t k = 0; k < kWeights; ++k) {
      centres.data<float>()[k] =
          static_cast<float>(noise) * random_normal(key, static_cast<std::uint64_t>(k));
    }
    return Batch({{"centres", centres}}, kWeights);
  }
  Batch broken_batch() const {
    Batch broken = batch(0, 0);
    broken.at("centres").data<float>()[3] = std::nanf("");
    return broken;
  }

  std::vector<std::string> log;  // phases entered and restores begun
  std::vector<std::int64_t> rewinds;
  PhaseConfig phases;
  std::vector<std::int64_t> probed_examples;  // by each wait_for_loss in Warmup
  std::int64_t fails_at_forward = -1;         // forward pass that runs out of memory
  double rate_factor = 1;
  double flops = 1e8;               // of a step
  std::int64_t fails_at_call = -1;  // call for a prediction that runs out of memory
  std::int64_t calls = 0;           // number of calls for predictions
  bool is_full = false;             // no memory for directions
  bool is_several = false;          // several ranks take part
  double prediction_error = 0.5;    // of delayed updates
  bool steps_need_all = false;      // gradient and direction do not fit together
  double followed = 0;              // total length of kept jumps
  std::int64_t forwards = 0, measurements = 0, updates = 0, moves = 0, directions_asked = 0;

 private:
  /// Behaves like a single rank with an exchange after every second step.
  class Local final : public PendingWork, public LocalTraining {
   public:
    explicit Local(QuadraticBowl& bowl) : bowl_(bowl) {}
    LocalStep wait_for_step(const Batch& batch) override {
      LocalStep step;
      step.own = bowl_.wait_for_gradient(batch);
      if (step.own.finite()) bowl_.take_step(bowl_.gradients_);
      skipped_ += step.own.finite() ? 0 : 1;
      step.since_exchange = ++steps_;
      if (steps_ < 2) return step;
      step.steps = std::exchange(steps_, 0);
      step.skipped = std::exchange(skipped_, 0);
      return step;
    }
    LocalStep wait_for_exact_weights() override {
      bowl_.log.push_back("exact");
      LocalStep last;
      last.steps = std::exchange(steps_, 0);
      last.skipped = std::exchange(skipped_, 0);
      return last;
    }

   private:
    QuadraticBowl& bowl_;
    std::int64_t steps_ = 0, skipped_ = 0;
  };
  double probe_loss(const Batch& batch, std::int64_t examples) {
    probed_examples.push_back(examples);
    if (forwards++ == fails_at_forward) throw OutOfMemory("device memory: full", 1, 0);
    return loss_of(batch);
  }
  bool holds_directions() const {
    return stream_.pool()->use().live[static_cast<std::size_t>(MemoryKind::kPredictor)] > 0;
  }
  /// Runs out of memory at the configured call, if memory is held for a prediction.
  void may_run_short() {
    if (snapshot_.empty() && !holds_directions()) return;
    if (calls++ == fails_at_call) throw OutOfMemory("device memory: full", 1, 0);
  }
  void take_step(const std::vector<Tensor>& gradients) {
    ++updates;
    for (std::size_t t = 0, i = 0; t < values_.size(); ++t) {
      for (std::int64_t k = 0; k < values_[t].elements(); ++k, ++i) {
        const auto beta = static_cast<float>(options_.momentum);
        moments_[i] = beta * moments_[i] + (1 - beta) * gradients[t].data<float>()[k];
        at(i) -= static_cast<float>(rate_factor * options_.learning_rate) * moments_[i];
      }
    }
  }
  template <class Index>
  float& at(Index i) const {
    const auto index = static_cast<std::int64_t>(i), first = values_[0].elements();
    return index < first ? values_[0].data<float>()[index]
                         : values_[1].data<float>()[index - first];
  }
  template <class Index>
  static float curvature(Index i) {
    return 0.1f + 0.3f * static_cast<float>(i);
  }
  double loss_of(const Batch& batch) const {
    double loss = options_.floor;
    for (std::int64_t i = 0; i < kWeights; ++i) {
      const double away = static_cast<double>(at(i)) - batch.at("centres").data<float>()[i];
      loss += 0.5 * curvature(i) * away * away;
    }
    return loss;
  }

  Options options_;
  Stream stream_{MemoryPool::create("device")};
  std::vector<Tensor> values_, gradients_, under_way_;
  std::vector<float> moments_, snapshot_;
  Phase phase_ = Phase::kWarmup;
  bool restoring_ = false;
  Local local_{*this};
  std::vector<GradientMeasurement> sent_;
  std::vector<std::vector<Tensor>> sent_gradients_;
};

/// A bowl with a phase machine and a numbered stream of batches.
struct BowlRun {
  QuadraticBowl bowl;
  PhaseMachine machine;
  double noise;
  std::int64_t steps = 0;

  BowlRun(const QuadraticBowl::Options& options, const PhaseMachine::Setup& setup, double noise_)
      : bowl(options), machine(bowl, setup), noise(noise_) {
    bowl.phases = setup.phases;
  }
  PhaseOutcome step() { return machine.step(bowl.batch(steps++, noise)); }
  std::vector<PhaseOutcome> run(std::int64_t count) {
    std::vector<PhaseOutcome> outcomes;
    for (std::int64_t i = 0; i < count; ++i) outcomes.push_back(step());
    return outcomes;
  }
  /// Steps until the next step is in `phase`. Fails the test after 1,000 steps.
  PhaseOutcome run_until(Phase phase) {
    PhaseOutcome last;
    for (int i = 0; machine.phase() != phase; ++i) {
      require(i < 1000, "the phase does not come");
      last = step();
    }
    return last;
  }
};

/// Short phases, with Predict after every Full phase: neither confidence nor the gate delays it.
inline PhaseMachine::Setup eager_setup() {
  PhaseMachine::Setup setup;
  setup.phases.warmup_steps = 5;
  setup.phases.full_steps = 6;
  setup.phases.max_predict_steps = 4;
  setup.phases.skip_backward.trial_steps = 4;
  setup.phases.skip_backward.trial_share = 1;
  setup.phases.skip_backward.confidence_threshold = 0;
  setup.phases.skip_backward.confidence_window = 4;
  setup.phases.skip_backward.history_interval = 1;
  setup.phases.skip_backward.slow_steps = 4;
  return setup;
}

}  // namespace hybrid_trainer
