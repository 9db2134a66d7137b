#pragma once

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// Brings batches to the device that a stream works on.
class BatchUpload {
 public:
  /// The batch itself where it is there already, else a copy that is valid until the next call.
  /// From pinned memory the copy is enqueued: the batch must stay as it is until something enqueued
  /// later is done. From other memory the call blocks.
  Batch to_device(const Batch& batch, const Stream& stream);

 private:
  static void copy_part(Tensor& uploaded, const Tensor& part, const Stream& stream);
  Batch uploaded_;
};

}  // namespace hybrid_trainer
