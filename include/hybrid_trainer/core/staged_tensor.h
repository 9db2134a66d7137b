#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

class Prefetcher;

/// Use of a tensor by a computation.
enum class Use { kRead, kWrite, kChange };

/// A tensor in the memory of the stream's pool for the time of one computation: itself, or a copy
/// of one that lies elsewhere, of the same kind, whose changes are copied back at the end. Copies
/// are in stream order; from and to memory that is not pinned they block on CUDA. An undefined tensor
/// stays undefined. Throws IoError, also at the end.
class StagedTensor {
 public:
  /// Stages what the stream's device does not compute on: host memory beside a CUDA device.
  StagedTensor(const Tensor& tensor, Use use, const Stream& stream)
      : StagedTensor(tensor, use, stream, tensor.device().type != stream.device().type) {}
  /// Stages what lies `elsewhere`; through the prefetcher, if there is one, which then keeps what
  /// goes wrong at the end.
  StagedTensor(const Tensor& tensor, Use use, const Stream& stream, bool elsewhere,
               Prefetcher* prefetcher = nullptr);
  ~StagedTensor() noexcept(false);
  StagedTensor(const StagedTensor&) = delete;
  StagedTensor& operator=(const StagedTensor&) = delete;
  operator const Tensor&() const { return here_; }

 private:
  Tensor tensor_, here_;
  const Stream& stream_;
  Prefetcher* prefetcher_ = nullptr;  // that holds `here_`
  bool goes_back_ = false;
  int exceptions_;
};

}  // namespace hybrid_trainer
