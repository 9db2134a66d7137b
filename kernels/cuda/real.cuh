#pragma once

// Elements in f32 or bf16 as floats, one or several at a time.

#include "hybrid_trainer/core/dtype.h"
#include "kernels/cuda/launch.cuh"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace hybrid_trainer::kernels::cuda {

__device__ inline float load(const float* from) { return *from; }
__device__ inline float load(const BFloat16* from) { return to_float(*from); }
__device__ inline void store(float* to, float value) { *to = value; }
__device__ inline void store(BFloat16* to, float value) {
#ifdef __CUDA_ARCH__
  to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  *to = to_bfloat16(value);
#endif
}

/// N elements that are read or written by accesses of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T values[N];
};

/// Elements in one 16-byte access.
template <class T>
constexpr int kPackSize = 16 / sizeof(T);

template <int N, class T>
__device__ inline void load_pack(float (&to)[N], const T* from) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
  for (int i = 0; i < N; ++i) to[i] = load(&pack.values[i]);
}

template <int N, class T>
__device__ inline void store_pack(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) store(&pack.values[i], from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// True if packs can be read starting at each of these.
template <class... Pointers>
bool packs_aligned(Pointers... begins) {
  return ((reinterpret_cast<std::uintptr_t>(begins) % 16 == 0) && ...);
}

/// True if all rows of `columns` elements starting at these can be read in packs.
template <class T, class... Pointers>
bool packs_fit(std::int64_t columns, Pointers... begins) {
  return columns % kPackSize<T> == 0 && packs_aligned(begins...);
}

}  // namespace hybrid_trainer::kernels::cuda
