#pragma once

#include "hybrid_trainer/nn/network.h"
#include "src/core/recording.h"

namespace hybrid_trainer {

/// Decoding of one more token for each of some texts as a CUDA graph: one launch for all kernels.
/// Enqueues the work each time if it cannot be recorded: on the CPU, while a profiler counts, if a
/// weight has no fixed address, and after recording failed.
class DecodeRecording {
 public:
  using Enqueue = BatchRecording<Tensor>::Enqueue;

  /// Returns the logits of the batch's tokens, valid until the next call. `last`: logits per text.
  /// Records again if the batch's shapes, `last`, or the addresses of the model's weights change.
  Tensor run(LossModel& model, std::int64_t last, const Batch& batch, const Enqueue& enqueue,
             const Stream& stream);
  /// Must be called before memory that the pass uses, other than weights, moves.
  void drop() { recording_.drop(); }

 private:
  BatchRecording<Tensor> recording_;
  std::size_t recorded_ = 0;  // hash of the recording's inputs besides the batch
  bool has_failed_ = false;
};

}  // namespace hybrid_trainer
