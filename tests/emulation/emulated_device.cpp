#include "tests/emulation/emulated_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "src/core/cuda_runtime.h"
#ifdef HT_POISONED_DEVICE
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace hybrid_trainer::emulation {
namespace {

constexpr std::size_t kGuard = 512;
constexpr int kNobodys = 0xFF;
constexpr std::size_t kUnit = 256;                    // bytes, the alignment of blocks
constexpr std::size_t kLarge = std::size_t{1} << 20;  // larger blocks return pages to the system

void* reserve(std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return data;
}

/// Address range of all device memory, and each unit's number of bytes that belong to a block.
struct Addresses {
  unsigned char* const begin = static_cast<unsigned char*>(reserve(kDeviceAddresses));
  std::uint16_t* const valid =
      static_cast<std::uint16_t*>(reserve(kDeviceAddresses / kUnit * sizeof(std::uint16_t)));
};
const Addresses& addresses() {
  static const Addresses all;
  return all;
}

/// Size of a block including its guard bytes.
std::size_t whole(std::size_t bytes) { return (bytes + kGuard + kUnit - 1) / kUnit * kUnit; }

void set_valid(std::size_t begin, std::size_t bytes, std::size_t valid) {
  for (std::size_t at = 0; at < bytes; at += kUnit) {
    addresses().valid[(begin + at) / kUnit] =
        static_cast<std::uint16_t>(at < valid ? std::min(kUnit, valid - at) : 0);
  }
}

bool is_valid(std::size_t begin, std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t in_unit = begin % kUnit, here = std::min(bytes, kUnit - in_unit);
    if (in_unit + here > addresses().valid[begin / kUnit]) return false;
    begin += here;
    bytes -= here;
  }
  return true;
}

/// Makes the address sanitizer reject accesses by the host.
void poison([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef HT_POISONED_DEVICE
  __asan_poison_memory_region(data, bytes);
#endif
}

}  // namespace

#ifdef HT_POISONED_DEVICE

// The compiler must not use memcpy and memset: the sanitizer's versions report device memory.
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, in + at, 8);
    __builtin_memcpy(out + at, &word, 8);
    asm volatile("" ::: "memory");
  }
  for (; at < bytes; ++at) {
    out[at] = in[at];
    asm volatile("" ::: "memory");
  }
}

void fill_bytes(void* to, int value, std::size_t bytes) {
  auto* const out = static_cast<unsigned char*>(to);
  std::uint64_t word = static_cast<unsigned char>(value);
  word *= 0x0101010101010101u;
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    __builtin_memcpy(out + at, &word, 8);
    asm volatile("" ::: "memory");
  }
  for (; at < bytes; ++at) {
    out[at] = static_cast<unsigned char>(value);
    asm volatile("" ::: "memory");
  }
}

#else

void copy_bytes(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void fill_bytes(void* to, int value, std::size_t bytes) { std::memset(to, value, bytes); }

#endif

const char*& running_kernel() {
  static thread_local const char* name = nullptr;
  return name;
}

void check_access(const void* at, std::size_t bytes, const char* does) {
  const std::size_t begin = reinterpret_cast<std::uintptr_t>(at) - first_device_address;
  const char* const kernel = running_kernel();
  if (kernel != nullptr && is_valid(begin, bytes)) return;
  std::fprintf(stderr, "emulation: %s %s %zu bytes of device memory at %p%s\n",
               kernel == nullptr ? "the host" : kernel, does, bytes, at,
               kernel == nullptr ? "" : ", outside of every block");
#ifdef HT_POISONED_DEVICE
  __sanitizer_print_stack_trace();
#endif
  std::abort();
}

EmulatedDevice& device() {
  static EmulatedDevice one;
  return one;
}

int current_device() { return CudaRuntime::current_device(); }

void* EmulatedDevice::take(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (taken_bytes + bytes > memory_bytes) return nullptr;
  std::size_t at = 0;  // start of the first gap
  for (const auto& [begin, taken] : blocks_) {
    if (begin - at >= whole(bytes)) break;
    at = begin + whole(taken);
  }
  if (at + whole(bytes) > kDeviceAddresses) return nullptr;
  unsigned char* const data = addresses().begin + at;
  first_device_address = reinterpret_cast<std::uintptr_t>(addresses().begin);
  // NaN in every float type, to reveal uninitialized reads; filling more would only cost time.
  fill_bytes(data, kNobodys, std::min(bytes, std::size_t{4} << 20));
  fill_bytes(data + bytes, kNobodys, kGuard);
  set_valid(at, whole(bytes), bytes);
  poison(data, whole(bytes));
  taken_bytes += bytes;
  blocks_[at] = bytes;
  return data;
}

void EmulatedDevice::give(void* data) {
  std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(static_cast<unsigned char*>(data) - addresses().begin);
  const std::size_t bytes = blocks_.at(at);
  const unsigned char* const guard = addresses().begin + at + bytes;
  overruns += std::any_of(guard, guard + kGuard, [](int byte) { return byte != kNobodys; }) ? 1 : 0;
  set_valid(at, whole(bytes), 0);
  if (bytes >= kLarge) {
    const std::size_t begin = (at + 4095) / 4096 * 4096, end = (at + bytes) / 4096 * 4096;
    madvise(addresses().begin + begin, end - begin, MADV_DONTNEED);
  }
  taken_bytes -= bytes;
  blocks_.erase(at);
}

void* EmulatedDevice::take_pinned(std::size_t bytes) {
  void* const data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::lock_guard lock(mutex_);
  if (data != nullptr) pinned_[reinterpret_cast<std::uintptr_t>(data)] = bytes;
  return data;
}

void EmulatedDevice::give_pinned(void* data) {
  {
    std::lock_guard lock(mutex_);
    pinned_.erase(reinterpret_cast<std::uintptr_t>(data));
  }
  std::free(data);
}

bool EmulatedDevice::reaches(const void* data, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto holds = [&](const std::map<std::uintptr_t, std::size_t>& blocks, std::uintptr_t at) {
    const auto after = blocks.upper_bound(at);
    if (after == blocks.begin()) return false;
    const auto& [begin, block_bytes] = *std::prev(after);
    return at + bytes <= begin + block_bytes;
  };
  std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(addresses().begin);
  return holds(pinned_, address) || (address >= begin && holds(blocks_, address - begin));
}

bool EmulatedDevice::load_library() {
  std::lock_guard lock(mutex_);
  if (loaded_bytes_ == library_bytes) return true;
  if (taken_bytes + library_bytes > memory_bytes) return false;
  taken_bytes += library_bytes;
  loaded_bytes_ = library_bytes;
  return true;
}

void EmulatedDevice::unload_library() {
  std::lock_guard lock(mutex_);
  taken_bytes -= std::exchange(loaded_bytes_, 0);
}

bool EmulatedDevice::is_used() noexcept {
  if (current_device() >= 0) return true;
  ++strays;
  return false;
}

void EmulatedDevice::fail(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
}

std::string EmulatedDevice::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void EmulatedDevice::restart() {
  std::lock_guard lock(mutex_);
  failure_.clear();
}

}  // namespace hybrid_trainer::emulation
