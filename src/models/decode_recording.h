#pragma once

#include "hybrid_trainer/nn/network.h"
#include "src/core/recording.h"

namespace hybrid_trainer {

/// Decodes one token for each of several texts as a CUDA graph, with one launch for all kernels.
/// Enqueues the kernels instead if they cannot be recorded: on the CPU, during profiling, if a
/// weight's address may change, and after a failed recording.
class DecodeRecording {
 public:
  using Enqueue = BatchRecording<Tensor>::Enqueue;

  /// Returns the logits after the last `last` tokens of each text, valid until the next call.
  /// Records again if the batch's shapes, `last`, or the addresses of the model's weights change.
  Tensor run(LossModel& model, std::int64_t last, const Batch& batch, const Enqueue& enqueue,
             const Stream& stream);
  /// Drops the recording. Call it before memory of the pass moves, except for weights.
  void drop() { recording_.drop(); }

 private:
  BatchRecording<Tensor> recording_;
  std::size_t recorded_ = 0;  // hash of the recording's inputs other than the batch
  bool has_failed_ = false;
};

}  // namespace hybrid_trainer
