#pragma once

#include <unordered_map>

#include "hybrid_trainer/nn/gradient_sink.h"

namespace hybrid_trainer {

/// Gradients that are on the device only while backward adds to them: one that is complete goes to
/// the pool of `home`, where the update finds it once norm and finiteness of all are known.
class ConsumedGradients final : public GradientSink {
 public:
  /// Both must outlive it.
  ConsumedGradients(const Stream& home, const Stream& stream) : home_(home), stream_(stream) {}
  /// Forgets those of the last step.
  void begin() {
    gradients_.clear();
    away_.clear();
  }
  Tensor gradient(const Parameter& parameter) const override;
  /// Throws OutOfMemory where home has no room, which ready, told by a destructor, must not.
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  const Stream& home_;
  const Stream& stream_;
  /// On the device, then at home; made when it is first asked for.
  mutable std::unordered_map<const Parameter*, Tensor> gradients_;
  std::unordered_map<const Parameter*, Tensor> away_;  // for those on the device
};

}  // namespace hybrid_trainer
