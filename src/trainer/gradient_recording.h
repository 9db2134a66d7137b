#pragma once

#include <functional>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/recording.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// What one measurement of the gradient leaves on the device, for the host to read.
struct PendingGradient {
  std::vector<Tensor> losses;       // (1) f64 each, of the micro-batches
  Tensor squares;                   // (1) f64: sum of squares of all gradients
  std::vector<Parameter*> written;  // those that got a gradient
};

/// The forward and backward passes of a step as one recording. The first batch of a shape is simply
/// enqueued, so that what kernels and libraries do once is done; the second is recorded, and those
/// that follow replay it.
class GradientRecording {
 public:
  using Enqueue = std::function<PendingGradient(const Batch&, const Stream&)>;
  /// Enqueues the passes on the batch. Their result holds until the next call.
  const PendingGradient& run(const Batch& batch, const Enqueue& enqueue, const Stream& stream);
  /// Gives the recording and its memory back. Weights or gradients may lie elsewhere then.
  void drop() { *this = {}; }

 private:
  bool first_ = true;  // of this shape
  Recording recording_;
  Batch batch_;  // that was recorded; each batch is copied here
  PendingGradient result_;
};

}  // namespace hybrid_trainer
