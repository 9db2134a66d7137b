#pragma once

#include "hybrid_trainer/nn/network.h"
#include "src/core/recording.h"

namespace hybrid_trainer {

/// The pass over one more token of each of some texts, as a CUDA graph: one launch for all kernels.
/// Where work cannot be recorded, it is enqueued each time: on a processor, while a profile counts,
/// where a weight has no fixed place, and after an attempt to record that failed.
class DecodeRecording {
 public:
  using Enqueue = BatchRecording<Tensor>::Enqueue;

  /// The logits of the batch's tokens, valid until the next call. `last`: logits of a text. It is
  /// recorded anew when the batch's shapes, `last`, or the places of the model's weights change.
  Tensor run(LossModel& model, std::int64_t last, const Batch& batch, const Enqueue& enqueue,
             const Stream& stream);
  /// Before memory that the pass reads or writes, other than weights, moves.
  void drop() { recording_.drop(); }

 private:
  BatchRecording<Tensor> recording_;
  std::size_t recorded_ = 0;  // what the recording depends on besides the batch
  bool has_failed_ = false;
};

}  // namespace hybrid_trainer
