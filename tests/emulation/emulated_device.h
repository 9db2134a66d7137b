#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/backend/launch.h"

struct CUstream_st;

namespace hybrid_trainer::emulation {

/// cuda:0 to cuda:3, which are alike, take their memory together and fail together.
inline constexpr int kDevices = 4;
/// Of the calling thread.
int current_device();

/// What tests configure on the emulated devices. Each block is followed by guard bytes: NaN when
/// read, and checked for writes when the block is freed. Under the address sanitizer device memory is
/// poisoned: the host may not access it, and kernels nothing of it but blocks.
struct EmulatedDevice {
  std::size_t memory_bytes = std::size_t{4} << 30;
  std::atomic<std::size_t> taken_bytes = 0;
  std::size_t shared_bytes = std::size_t{227} << 10;  // that a block may have; of Hopper
  /// Called at each launch, with the kernel's name, if set.
  std::function<void(const std::string&, const kernels::cuda::Grid&)> sees_launch;
  int replays = 0;                // of recordings
  std::atomic<int> overruns = 0;  // blocks past whose end something was written
  /// The name of a kernel whose launch fails; "epilogue": of products all that have one; "product":
  /// all.
  std::string refuses;
  std::string fails;            // the name of a kernel that fails while it runs
  std::atomic<int> strays = 0;  // calls by threads that had used no device
  /// The time that each algorithm of a product takes, negative for one that does not run; each adds
  /// in its own order. Empty: there is only one, and none is chosen.
  std::vector<double> algorithm_seconds;
  std::size_t library_bytes = 0;  // that the first product of a process takes of the memory
  double row_sums_seconds = 0;    // that a product takes longer if it writes sums of rows, too

  /// Takes them. False if there is no room.
  bool load_library();
  void unload_library();
  void* take(std::size_t bytes);
  void give(void* data);
  void* take_pinned(std::size_t bytes);
  void give_pinned(void* data);
  /// Whether all of it lies in one block of the device or of pinned memory.
  bool reaches(const void* data, std::size_t bytes) const;

  /// Whether the calling thread has used a device, as it must before this call of CUDA.
  bool is_used() noexcept;
  /// Work has failed: streams do no more, and every call answers that.
  void fail(const std::string& why);
  /// "" for none.
  std::string failure() const;
  /// Forgets the failure, as a new process does.
  void restart();

 private:
  mutable std::mutex mutex_;
  std::string failure_;
  std::map<std::uintptr_t, std::size_t> blocks_;  // by their place in the device's addresses
  std::map<std::uintptr_t, std::size_t> pinned_;
  std::size_t loaded_bytes_ = 0;
};
EmulatedDevice& device();

/// memcpy and memset that may touch device memory.
void copy_bytes(void* to, const void* from, std::size_t bytes);
void fill_bytes(void* to, int value, std::size_t bytes);

/// The kernel that runs in the calling thread; nullptr for none.
const char*& running_kernel();
/// Where device memory begins, once there is some, and how far it may reach.
inline std::uintptr_t first_device_address = ~std::uintptr_t{0};
inline constexpr std::size_t kDeviceAddresses = std::size_t{16} << 30;
/// Ends the process, with a line that says why, if the calling thread may not access this part of
/// them: device memory belongs to kernels, and of that the blocks. `does`: "reads" or "writes".
void check_access(const void* at, std::size_t bytes, const char* does);

/// Enqueues work on an emulated stream.
void enqueue(CUstream_st* stream, std::function<void()> work);
/// Advances the stream's clock, which its events report.
void spend(CUstream_st* stream, double seconds);

/// Forgets the algorithms of products and what they loaded, as in a new process.
void restart_products();

}  // namespace hybrid_trainer::emulation
