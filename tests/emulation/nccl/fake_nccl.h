#pragma once

#include <atomic>
#include <functional>

#include "src/distributed/nccl_api.h"

namespace hybrid_trainer::emulation {

/// What a test tells the library that is opened in NCCL's place, and does to it.
struct FakeNccl {
  /// Enqueues on an emulated stream.
  void (*enqueue)(CUstream_st*, std::function<void()>) = nullptr;
  /// Of device memory.
  void (*copy)(void*, const void*, std::size_t) = nullptr;
  /// Of the calling thread.
  int (*current_device)() = nullptr;
  std::atomic<int> version = 22809;
  /// Whatever takes time is in progress for so many questions, and not on its stream before.
  std::atomic<int> questions = 2;
  /// Communicators of this rank meet this error.
  std::atomic<int> failing_rank = -1;
  std::atomic<int> error = nccl::kSuccess;
  /// The current device of the thread that called ncclCommAbort last.
  std::atomic<int> aborted_on = -1;
  /// ncclCommAbort does not come back.
  std::atomic<bool> abort_hangs = false;
};

/// The library's one function beside NCCL's.
using FakeNcclFunction = FakeNccl*();
inline constexpr const char* kFakeNcclFunction = "hybrid_trainer_fake_nccl";

}  // namespace hybrid_trainer::emulation
