#pragma once

#include <functional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/stream.h"

struct CUgraphExec_st;

namespace hybrid_trainer {

/// A CUDA graph and the device memory that it uses. Move-only.
class Recording {
 public:
  Recording() = default;
  /// Records the work that `enqueue` enqueues on the stream passed to it, without running it. Calls
  /// `enqueue`, which must not block, twice: first on a simulated device to measure its memory,
  /// which becomes one block from the pool of `stream`. Tensors created by `enqueue` contain the
  /// results of the last replay. Throws OutOfMemory, DeviceError.
  Recording(const Stream& stream, const std::function<void(const Stream&)>& enqueue);
  ~Recording();
  Recording(Recording&& other) noexcept;
  Recording& operator=(Recording&& other) noexcept;

  explicit operator bool() const { return graph_ != nullptr; }
  void replay(const Stream& stream) const;

 private:
  std::shared_ptr<MemoryPool> pool_;  // pool that consists of the block
  CUgraphExec_st* graph_ = nullptr;
};

/// Makes every BatchRecording record again, after memory that it reads has moved or changed.
void invalidate_recordings() noexcept;
std::uint64_t recording_generation() noexcept;

/// Records work on batches, whose Result contains tensors. The first batch of a shape runs
/// unrecorded, which initializes kernels and libraries. The second batch is recorded, and the
/// recording is replayed for the second and all later batches. invalidate_recordings restarts this
/// sequence.
template <class Result>
class BatchRecording {
 public:
  using Enqueue = std::function<Result(const Batch&, const Stream&)>;

  /// Enqueues the work on a batch. The result is valid until the next call.
  const Result& run(const Batch& batch, const Enqueue& enqueue, const Stream& stream) {
    if (!batch_.is_like(batch) || generation_ != recording_generation()) {
      drop();
      batch_ = batch.with(
          [&](const Tensor& part) { return Tensor::empty_like(part, MemoryKind::kData, stream); });
    }
    if (first_) {
      first_ = false;
      result_ = enqueue(batch, stream);
      generation_ = recording_generation();  // the work itself may invalidate recordings
      return result_;
    }
    if (!recording_) {
      result_ = {};
      recording_ =
          Recording(stream, [&](const Stream& recorded) { result_ = enqueue(batch_, recorded); });
    }
    for (std::size_t i = 0; i < batch.tensors().size(); ++i)
      copy(batch_.tensors()[i].tensor, batch.tensors()[i].tensor, stream);
    recording_.replay(stream);
    return result_;
  }

  /// Frees the recording and its memory, so that tensors it accesses may move.
  void drop() { *this = {}; }

 private:
  bool first_ = true;  // whether the next batch is the first of its shape
  std::uint64_t generation_ = recording_generation();
  Recording recording_;
  Batch batch_;  // input of the recording; batches are copied into it
  Result result_{};
};

}  // namespace hybrid_trainer
