#pragma once

#include <functional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/stream.h"

struct CUgraphExec_st;

namespace hybrid_trainer {

/// Work of a CUDA stream that is recorded once and then enqueued again by one call (a CUDA graph),
/// together with the device memory that it uses. Move-only.
class Recording {
 public:
  Recording() = default;
  /// Records what `enqueue` enqueues on the stream it is given, without running it. `enqueue` is
  /// called twice, first on a simulated device to measure its memory, which becomes one block of
  /// MemoryKind::kActivations from the stream's pool. Tensors that it makes are in that block, and
  /// hold after each replay what that replay wrote. Must not block. Throws OutOfMemory,
  /// DeviceError.
  Recording(const Stream& stream, const std::function<void(const Stream&)>& enqueue);
  ~Recording();
  Recording(Recording&& other) noexcept;
  Recording& operator=(Recording&& other) noexcept;

  explicit operator bool() const { return graph_ != nullptr; }
  /// Enqueues the work on the stream that it was recorded on.
  void replay(const Stream& stream) const;

 private:
  std::shared_ptr<MemoryPool> pool_;  // of one block
  CUgraphExec_st* graph_ = nullptr;
};

/// Says that memory which recorded work may read has moved, or has other contents: each
/// BatchRecording records anew.
void outdate_recordings() noexcept;
/// How often that has been said.
std::uint64_t recordings_outdated() noexcept;

/// Work on batches as one recording, whose Result holds tensors. The first batch of a shape is just
/// enqueued, so that one-time initialization of kernels and libraries is done; the second is
/// recorded, and later ones replay it. So it is again after outdate_recordings.
template <class Result>
class BatchRecording {
 public:
  using Enqueue = std::function<Result(const Batch&, const Stream&)>;

  /// Enqueues the work on the batch. The result is valid until the next call.
  const Result& run(const Batch& batch, const Enqueue& enqueue, const Stream& stream) {
    if (!batch_.is_like(batch) || outdated_ != recordings_outdated()) {
      drop();
      batch_ = batch.with(
          [&](const Tensor& part) { return Tensor::empty_like(part, MemoryKind::kData, stream); });
    }
    if (first_) {
      first_ = false;
      result_ = enqueue(batch, stream);
      outdated_ = recordings_outdated();  // it may have made tables that it reads
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

  /// Frees the recording and its memory. Then what it reads and writes may move.
  void drop() { *this = {}; }

 private:
  bool first_ = true;  // of this shape
  std::uint64_t outdated_ = recordings_outdated();
  Recording recording_;
  Batch batch_;  // the recorded one; each batch is copied here
  Result result_{};
};

}  // namespace hybrid_trainer
