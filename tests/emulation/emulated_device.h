#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct CUstream_st;

namespace hybrid_trainer::emulation {

/// What the tests set on the emulated device. Behind each block lie bytes that are nobody's: NaN
/// where they are read, and looked at when the block is given back.
struct EmulatedDevice {
  std::size_t memory_bytes = std::size_t{4} << 30;
  std::size_t taken_bytes = 0;
  int replays = 0;                // of recordings
  std::atomic<int> overruns = 0;  // blocks behind whose end something was written
  std::string refuses;            // the name of a kernel whose launch fails
  /// What each algorithm of a product takes, negative for one that does not run; each adds in an
  /// order of its own. Empty: there is one, and none is chosen.
  std::vector<double> algorithm_seconds;

  void* take(std::size_t bytes);
  void give(void* data);

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> blocks_;
};
EmulatedDevice& device();

/// Enqueues work on an emulated stream.
void enqueue(CUstream_st* stream, std::function<void()> work);
/// Makes the stream's clock, which its events show, go on by so much.
void spend(CUstream_st* stream, double seconds);

/// Forgets which algorithms products have, as a new process has.
void restart_products();

}  // namespace hybrid_trainer::emulation
