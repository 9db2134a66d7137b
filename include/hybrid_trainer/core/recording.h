#pragma once

#include <cstdint>
#include <functional>
#include <memory>

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

}  // namespace hybrid_trainer
