#include "src/step/accumulated_gradients.h"

#include <optional>

#include "hybrid_trainer/memory/consumed_gradients.h"
#include "hybrid_trainer/nn/rounded_gradients.h"
#include "hybrid_trainer/optim/gradient_norm.h"

namespace hybrid_trainer {

void AccumulatedGradients::prepare(const Batch& batch) {
  allocate();
  begin_gradients(parts_.weights, sink(),
                  parts_.micro_batches.of(batch) * parts_.pass.contributions(batch));
}

PendingGradient AccumulatedGradients::enqueue(const Batch& batch, const Stream& stream) {
  const std::int64_t count = parts_.micro_batches.of(batch);
  begin();
  begin_gradients(parts_.weights, sink(), count * parts_.pass.contributions(batch));
  PendingGradient pending;
  for (std::int64_t i = 0; i < count; ++i) {
    pending.losses.push_back(
        parts_.pass.enqueue(parts_.micro_batches.part(batch, i), {i, count}, stream, immediate()));
  }
  end_gradients(parts_.weights, stream);
  if (immediate() == nullptr) measure(pending, stream);
  return pending;
}

double AccumulatedGradients::wait_for_norm(const PendingGradient& pending) {
  return hybrid_trainer::wait_for_norm(pending.squares, parts_.stream);
}

void AccumulatedGradients::free() {
  release();
  for (Parameter* parameter : parts_.weights) parameter->leave(sink());
}

namespace {

class KeptGradients final : public AccumulatedGradients {
 public:
  using AccumulatedGradients::AccumulatedGradients;
  ~KeptGradients() override { free(); }
  GradientSink& sink() override { return gradients_; }
  void begin_elsewhere() override { gradients_.free(); }

 private:
  void allocate() override { gradients_.allocate(parts_.weights, parts_.stream); }
  void release() override { gradients_.free(); }
  ResidentGradients gradients_;
};

class RoundedPath final : public AccumulatedGradients {
 public:
  explicit RoundedPath(const GradientParts& parts)
      : AccumulatedGradients(parts),
        gradients_([this] { parts_.speculation->wait_until_gradients_are_sent(); }) {}
  ~RoundedPath() override {
    for (Parameter* parameter : parts_.weights) parameter->leave(gradients_);
  }
  GradientSink& sink() override { return gradients_; }
  void begin_elsewhere() override { gradients_.free(); }

 private:
  void allocate() override { gradients_.allocate(parts_.weights, parts_.stream); }
  void release() override { gradients_.free(); }
  RoundedGradients gradients_;
};

/// Each leaves the device once it is complete, or updates its weight at once.
class ConsumedPath final : public AccumulatedGradients {
 public:
  ConsumedPath(const GradientParts& parts, bool updates_at_once)
      : AccumulatedGradients(parts), consumed_(parts.places.overflow(), parts.stream) {
    if (updates_at_once) immediate_.emplace(parts.weights, parts.optimizer, parts.stream);
  }
  ~ConsumedPath() override { free(); }
  GradientSink& sink() override {
    if (immediate_) return *immediate_;
    return consumed_;
  }
  bool is_consumed() const override { return true; }
  ImmediateUpdates* immediate() override { return immediate_ ? &*immediate_ : nullptr; }
  double wait_for_norm(const PendingGradient& pending) override {
    return immediate_ ? immediate_->end() : AccumulatedGradients::wait_for_norm(pending);
  }
  void begin_elsewhere() override { begin(); }

 private:
  void allocate() override {}
  void release() override { consumed_.begin(); }
  void begin() override {
    consumed_.begin();
    if (immediate_) immediate_->begin(static_cast<float>(parts_.rates.rate()));
  }
  ConsumedGradients consumed_;
  std::optional<ImmediateUpdates> immediate_;
};

}  // namespace

std::unique_ptr<AccumulatedGradients> make_accumulated_gradients(const HybridTrainerConfig& config,
                                                                 const GradientParts& parts) {
  if (config.memory.gradients == "consume")
    return std::make_unique<ConsumedPath>(parts, config.updates_at_once());
  if (config.memory.gradient_bits == 16) return std::make_unique<RoundedPath>(parts);
  return std::make_unique<KeptGradients>(parts);
}

}  // namespace hybrid_trainer
