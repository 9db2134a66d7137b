#include <atomic>
#include <cstdint>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_source.h"
#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {
namespace {

class PinnedMemory final : public MemorySource {
 public:
  PinnedMemory(CudaRuntime& runtime, std::size_t limit_bytes)
      : runtime_(runtime), limit_bytes_(limit_bytes) {}

  void* take(std::size_t bytes) noexcept override {
    if (taken_bytes_ + bytes > limit_bytes_) return nullptr;
    void* data = runtime_.allocate_pinned(bytes);
    if (data != nullptr) taken_bytes_ += bytes;
    return data;
  }

  void give(void* data, std::size_t bytes) noexcept override {
    runtime_.release_pinned(data);
    taken_bytes_ -= bytes;
  }

  Device device() const override { return {}; }
  bool pinned() const override { return true; }
  bool prefers_slabs() const override { return true; }

 private:
  CudaRuntime& runtime_;
  std::size_t limit_bytes_;
  std::atomic<std::size_t> taken_bytes_ = 0;
};

class CudaMemory final : public MemorySource {
 public:
  CudaMemory(CudaRuntime& runtime, Device device) : runtime_(runtime), device_(device) {}
  void* take(std::size_t bytes) noexcept override {
    return runtime_.allocate(device_.index, bytes);
  }
  void give(void* data, std::size_t) noexcept override { runtime_.release(device_.index, data); }
  Device device() const override { return device_; }
  bool prefers_slabs() const override { return true; }

 private:
  CudaRuntime& runtime_;
  Device device_;
};

class SimulatedMemory final : public MemorySource {
 public:
  SimulatedMemory(Device device, bool pinned)
      : device_{device.type, device.index, true}, pinned_(pinned) {}
  void* take(std::size_t bytes) noexcept override {
    const std::uintptr_t begin = next_;
    next_ += (bytes + kGap) / kGap * kGap;
    return reinterpret_cast<void*>(begin);
  }
  void give(void*, std::size_t) noexcept override {}
  Device device() const override { return device_; }
  bool pinned() const override { return pinned_; }
  bool prefers_slabs() const override { return pinned_ || device_.type == DeviceType::kCuda; }

 private:
  static constexpr std::size_t kGap = std::size_t{1} << 20;
  Device device_;
  bool pinned_;
  std::uintptr_t next_ = kGap;
};

}  // namespace

std::unique_ptr<MemorySource> simulated_memory(Device device, bool pinned) {
  return std::make_unique<SimulatedMemory>(device, pinned);
}

std::unique_ptr<MemorySource> pinned_memory(std::size_t limit_bytes) {
  return std::make_unique<PinnedMemory>(cuda_runtime(), limit_bytes);
}

bool is_short_of_device_memory(int device) noexcept {
  constexpr std::size_t kScarce = std::size_t{256} << 20;
  try {
    return cuda_runtime().properties(device).free_bytes < kScarce;
  } catch (const std::exception&) {  // after a kernel's fault no call answers
    return false;
  }
}

void throw_out_of_device_memory(const std::string& what, int device) {
  const std::size_t free = cuda_runtime().properties(device).free_bytes;
  throw OutOfMemory(
      concat(what, ": ", name_of(Device{DeviceType::kCuda, device}), " has ", units::bytes(free),
             " free beside what this program holds, where CUDA and its libraries put their kernels",
             "; leave them about 1 GiB: lower memory.device_budget or data.batch_size, set ",
             "memory.plan=auto, or end other programs on the device (`nvidia-smi` lists them)"),
      0, free);
}

std::unique_ptr<MemorySource> cuda_memory(Device device) {
  return std::make_unique<CudaMemory>(cuda_runtime(), device);
}

}  // namespace hybrid_trainer
