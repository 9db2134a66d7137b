#pragma once

#include <vector>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// Uploads batches to a stream's device.
class BatchUpload {
 public:
  /// The batch itself if it is already there, else a copy that is valid until the next call. From
  /// pinned memory the copy is enqueued: the batch must stay unchanged until something enqueued
  /// later is done. From other memory the call blocks.
  Batch to_device(const Batch& batch, const Stream& stream);

 private:
  static void copy_part(Tensor& uploaded, const Tensor& part, const Stream& stream);
  std::vector<Tensor> uploaded_;
};

}  // namespace hybrid_trainer
