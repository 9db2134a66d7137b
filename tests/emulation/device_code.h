#pragma once

// CUDA C++ names that the kernels use, implemented on a CPU. The threads of a block are fibers of
// one operating system thread, so a block's shared memory is thread-local.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
  unsigned int x = 0, y = 0, z = 0;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};

namespace hybrid_trainer::emulation {

/// Indices of the current thread, set before each of its turns.
struct Place {
  uint3 thread, block, threads, blocks;
};
Place& place();

/// Barrier of all threads of the block.
void synchronize_block();
/// Copies `bytes` of the lane's value to its slot and waits for the lanes of the mask. Returns the
/// 32 slots, valid until the lane's next exchange.
const char* exchange(unsigned int mask, const void* mine, std::size_t bytes);
/// Dynamic shared memory of the block.
void* shared_memory();

constexpr int kLanes = 32;
constexpr std::size_t kSlotBytes = 64;

/// The values of all lanes in one warp operation, valid until the lane's next one.
template <class T>
struct Exchanged {
  const char* slots;
  unsigned int mask;

  /// Zero if the lane is not in the mask.
  T of(int lane) const {
    T value{};
    if ((mask >> lane) & 1u)
      std::memcpy(&value, slots + static_cast<std::size_t>(lane) * kSlotBytes, sizeof(T));
    return value;
  }
};

template <class T>
Exchanged<T> exchange(unsigned int mask, const T& mine) {
  static_assert(sizeof(T) <= kSlotBytes);
  return {exchange(mask, &mine, sizeof(T)), mask};
}

inline int lane() { return static_cast<int>(place().thread.x) % kLanes; }

}  // namespace hybrid_trainer::emulation

#define threadIdx (::hybrid_trainer::emulation::place().thread)
#define blockIdx (::hybrid_trainer::emulation::place().block)
#define blockDim (::hybrid_trainer::emulation::place().threads)
#define gridDim (::hybrid_trainer::emulation::place().blocks)

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }

inline void __syncthreads() { hybrid_trainer::emulation::synchronize_block(); }
inline void __syncwarp(unsigned int mask = 0xFFFFFFFFu) {
  hybrid_trainer::emulation::exchange(mask, char{});
}
template <class T>
T __shfl_sync(unsigned int mask, T value, int from) {
  return hybrid_trainer::emulation::exchange(mask, value).of(from & 31);
}
template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int distance) {
  return hybrid_trainer::emulation::exchange(mask, value)
      .of(hybrid_trainer::emulation::lane() ^ distance);
}
template <class T>
T __shfl_down_sync(unsigned int mask, T value, int distance) {
  const int from = hybrid_trainer::emulation::lane() + distance;
  const auto all = hybrid_trainer::emulation::exchange(mask, value);
  return from < 32 ? all.of(from) : value;
}
template <class T>
T __shfl_up_sync(unsigned int mask, T value, int distance) {
  const int from = hybrid_trainer::emulation::lane() - distance;
  const auto all = hybrid_trainer::emulation::exchange(mask, value);
  return from >= 0 ? all.of(from) : value;
}
inline unsigned int __ballot_sync(unsigned int mask, bool vote) {
  const auto all = hybrid_trainer::emulation::exchange(mask, vote);
  unsigned int votes = 0;
  for (int i = 0; i < 32; ++i) votes |= all.of(i) ? 1u << i : 0u;
  return votes;
}
inline unsigned int __reduce_max_sync(unsigned int mask, unsigned int value) {
  const auto all = hybrid_trainer::emulation::exchange(mask, value);
  unsigned int largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, all.of(i));
  return largest;
}
inline bool __any_sync(unsigned int mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
inline bool __all_sync(unsigned int mask, bool vote) { return !__any_sync(mask, !vote); }
inline int __popc(unsigned int bits) { return __builtin_popcount(bits); }

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcg(T* to, T value) {
  *to = value;
}
/// The blocks of a launch run one after another, so a plain addition is atomic.
inline int atomicAdd(int* to, int value) {
  const int before = *to;
  *to += value;
  return before;
}
inline void __threadfence() {}
