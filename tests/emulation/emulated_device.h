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

/// cuda:0 to cuda:3 are identical, share their memory and fail together.
inline constexpr int kDevices = 4;
/// Current device of the calling thread.
int current_device();

/// Configures the emulated devices for tests. Each block is followed by guard bytes: NaN when read,
/// and checked for writes when the block is freed. With the address sanitizer, device memory is
/// poisoned: the host may not access it, and kernels may access only blocks.
struct EmulatedDevice {
  std::size_t memory_bytes = std::size_t{4} << 30;
  std::atomic<std::size_t> taken_bytes = 0;
  std::size_t shared_bytes = std::size_t{227} << 10;  // most per block, as on Hopper
  /// Called at each launch with the kernel's name, if set.
  std::function<void(const std::string&, const kernels::cuda::Grid&)> sees_launch;
  int replays = 0;                // number of replayed recordings
  std::atomic<int> overruns = 0;  // blocks with writes past their end
  /// Kernel whose launch fails; "epilogue": all products with an epilogue; "product": all products.
  std::string refuses;
  std::string fails;            // name of a kernel that fails while it runs
  std::atomic<int> strays = 0;  // calls by threads that had not used a device
  /// Time of each algorithm of a product; negative if it does not run. Each algorithm adds in a
  /// different order. Empty: there is only one, and nothing is chosen.
  std::vector<double> algorithm_seconds;
  std::size_t library_bytes = 0;  // memory that the first product of a process takes
  double row_sums_seconds = 0;    // extra time of a product that also writes sums of rows

  /// Allocates library_bytes. Returns false if there is no room.
  bool load_library();
  void unload_library();
  void* take(std::size_t bytes);
  void give(void* data);
  void* take_pinned(std::size_t bytes);
  void give_pinned(void* data);
  /// Whether the range is inside one block of the device or of pinned memory.
  bool reaches(const void* data, std::size_t bytes) const;

  /// Whether the calling thread has used a device, as required before this CUDA call.
  bool is_used() noexcept;
  /// Records failed work: streams stop, and every later call reports the failure.
  void fail(const std::string& why);
  /// Returns "" if nothing has failed.
  std::string failure() const;
  /// Forgets the failure, like a new process.
  void restart();

 private:
  mutable std::mutex mutex_;
  std::string failure_;
  std::map<std::uintptr_t, std::size_t> blocks_;  // keyed by the offset in device memory
  std::map<std::uintptr_t, std::size_t> pinned_;
  std::size_t loaded_bytes_ = 0;
};
EmulatedDevice& device();

/// memcpy and memset for ranges that may include device memory.
void copy_bytes(void* to, const void* from, std::size_t bytes);
void fill_bytes(void* to, int value, std::size_t bytes);

/// Kernel that runs in the calling thread, or nullptr.
const char*& running_kernel();
/// Start of the device memory, once there is some, and its maximum size.
inline std::uintptr_t first_device_address = ~std::uintptr_t{0};
inline constexpr std::size_t kDeviceAddresses = std::size_t{16} << 30;
/// Ends the process with an explanation if the calling thread may not access this range: only
/// kernels may access device memory, and only inside blocks. `does`: "reads" or "writes".
void check_access(const void* at, std::size_t bytes, const char* does);

void enqueue(CUstream_st* stream, std::function<void()> work);
/// Advances the stream's clock, which its events report.
void spend(CUstream_st* stream, double seconds);

/// Forgets the algorithms of products and the loaded library, like a new process.
void restart_products();

}  // namespace hybrid_trainer::emulation
