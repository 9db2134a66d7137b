#pragma once

#include "src/step/gradient_path.h"

namespace hybrid_trainer {

/// The gradient of a step whose micro-batches are all added to one gradient of each weight.
class AccumulatedGradients : public GradientPath {
 public:
  using GradientPath::GradientPath;
  void prepare(const Batch& batch) override;
  PendingGradient enqueue(const Batch& batch, const Stream& stream) override;
  double wait_for_norm(const PendingGradient& pending) override;
  void free() override;

  /// Where gradients are written.
  virtual GradientSink& sink() = 0;
  /// Whether a complete gradient leaves the device before the next one is complete.
  virtual bool is_consumed() const { return false; }
  /// Another path computes the attempt that begins, and writes its sum to sink() at most.
  virtual void begin_elsewhere() = 0;

 private:
  virtual void allocate() = 0;
  virtual void release() = 0;
  /// Begins an attempt at a step.
  virtual void begin() {}
};

/// Keeps them on the device, consumes them (memory.gradients), or rounds them (memory.gradient_bits).
std::unique_ptr<AccumulatedGradients> make_accumulated_gradients(const HybridTrainerConfig& config,
                                                                 const GradientParts& parts);

}  // namespace hybrid_trainer
