#include "src/trainer/step/gradient_path.h"

#include <iterator>

#include "memory/offloaded_weights.h"
#include "src/core/profile.h"

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

/// Gradients that stay on the device until their update: ResidentGradients or RoundedGradients.
template <class Gradients>
class KeptPath final : public AccumulatedGradients {
 public:
  template <class... Arguments>
  explicit KeptPath(const GradientParts& parts, Arguments... arguments)
      : AccumulatedGradients(parts), gradients_(std::move(arguments)...) {}
  ~KeptPath() override {
    for (Parameter* parameter : parts_.weights) parameter->leave(gradients_);
  }
  GradientSink& sink() override { return gradients_; }
  void begin_elsewhere() override { gradients_.free(); }

 private:
  void allocate() override { gradients_.allocate(parts_.weights, parts_.stream); }
  void release() override { gradients_.free(); }
  Gradients gradients_;
};

/// Moves each gradient off the device when it is complete, or updates its weight immediately.
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

/// Makes a path that keeps, consumes (memory.gradients) or rounds (memory.gradient_bits) gradients.
std::unique_ptr<AccumulatedGradients> make_accumulated_gradients(const HybridTrainerConfig& config,
                                                                 const GradientParts& parts) {
  if (config.memory.gradients == "consume")
    return std::make_unique<ConsumedPath>(parts, config.updates_at_once());
  if (config.memory.gradient_bits != 16)
    return std::make_unique<KeptPath<ResidentGradients>>(parts);
  return std::make_unique<KeptPath<RoundedGradients>>(
      parts, [&optimizer = parts.optimizer] { optimizer.wait_until_gradients_are_sent(); });
}

}  // namespace

void GradientPath::measure(PendingGradient& pending, const Stream& stream) const {
  const StepPartTimer timer(stream, StepPart::kUpdate);
  pending.squares = gradient_square_sums(parts_.weights, stream);
  std::copy_if(parts_.weights.begin(), parts_.weights.end(), std::back_inserter(pending.written),
               [](const Parameter* parameter) { return parameter->gradient().defined(); });
}

/// Makes the path. A single CPU process sums gradients like several ranks, unless gradients are
/// rounded.
std::unique_ptr<GradientPath> make_gradient_path(const HybridTrainerConfig& config,
                                                 const GradientParts& parts) {
  const std::int64_t bucket_bytes = bucket_bytes_for(parts.weights, config.distributed);
  if (parts.parts != nullptr)
    return make_sharded_gradients(parts, config.distributed.zero, bucket_bytes);
  if (parts.ranks != nullptr || config.phases.traits().runs_ahead_of_ranks)
    return make_tree_gradients(parts, bucket_bytes, nullptr);
  auto accumulated = make_accumulated_gradients(config, parts);
  const bool uses_rank_order =
      parts.stream.device().type == DeviceType::kCpu && config.memory.gradient_bits == 32;
  if (!uses_rank_order) return accumulated;
  return make_tree_gradients(parts, bucket_bytes, std::move(accumulated));
}

}  // namespace hybrid_trainer
