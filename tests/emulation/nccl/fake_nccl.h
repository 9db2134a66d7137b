#pragma once

#include <atomic>
#include <functional>

#include "src/distributed/nccl_api.h"

namespace hybrid_trainer::emulation {

/// Test settings of the library that replaces NCCL.
struct FakeNccl {
  /// Enqueues work on an emulated stream.
  void (*enqueue)(CUstream_st*, std::function<void()>) = nullptr;
  /// Copies device memory.
  void (*copy)(void*, const void*, std::size_t) = nullptr;
  /// Returns the current device of the calling thread.
  int (*current_device)() = nullptr;
  std::atomic<int> version = 22809;
  /// Number of queries during which a slow call is in progress and not yet on its stream.
  std::atomic<int> questions = 2;
  /// Rank whose communicators report this error.
  std::atomic<int> failing_rank = -1;
  std::atomic<int> error = nccl::kSuccess;
  /// Current device of the thread that last called ncclCommAbort.
  std::atomic<int> aborted_on = -1;
  /// Whether ncclCommAbort never returns.
  std::atomic<bool> abort_hangs = false;
};

/// The library's only function that NCCL does not have.
using FakeNcclFunction = FakeNccl*();
inline constexpr const char* kFakeNcclFunction = "hybrid_trainer_fake_nccl";

}  // namespace hybrid_trainer::emulation
