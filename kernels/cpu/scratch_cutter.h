#pragma once

#include <cstdint>

namespace hybrid_trainer::kernels::cpu {

/// Cuts arrays, each at the start of a cache line, from one worker's scratch; without scratch it
/// only counts.
class ScratchCutter {
 public:
  explicit ScratchCutter(float* base) : base_(base) {}
  template <class T>
  T* take(std::int64_t elements) {
    T* const cut = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + taken_);
    taken_ += (elements * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 16;
    return cut;
  }
  std::int64_t floats() const { return taken_; }

 private:
  float* base_;
  std::int64_t taken_ = 0;
};

}  // namespace hybrid_trainer::kernels::cpu
