#pragma once

#include <functional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/recording.h"

namespace hybrid_trainer {

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
