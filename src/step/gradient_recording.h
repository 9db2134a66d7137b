#pragma once

#include <functional>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/recording.h"
#include "hybrid_trainer/nn/parameter.h"
#include "src/sharding/step_retry.h"

namespace hybrid_trainer {

/// What one measurement of the gradient leaves on the device, for the host to read.
struct PendingGradient {
  std::vector<Tensor> losses;          // (1) f64 each, of the micro-batches
  std::vector<Tensor> squares;         // (1) f64 each: sums of squares of all gradients
  std::vector<Parameter*> written;     // parameters that got a gradient
  StepRetry retry = StepRetry::kNone;  // else nothing here counts
};

/// The forward and backward passes of a step as one recording. The first batch of a shape is just
/// enqueued, so that one-time initialization of kernels and libraries is done; the second is
/// recorded, and later ones replay it.
class GradientRecording {
 public:
  using Enqueue = std::function<PendingGradient(const Batch&, const Stream&)>;
  /// Enqueues the passes on the batch. The result is valid until the next call.
  const PendingGradient& run(const Batch& batch, const Enqueue& enqueue, const Stream& stream);
  /// Frees the recording and its memory. Then weights and gradients may move.
  void drop() { *this = {}; }

 private:
  bool first_ = true;  // of this shape
  Recording recording_;
  Batch batch_;  // the recorded one; each batch is copied here
  PendingGradient result_;
};

}  // namespace hybrid_trainer
