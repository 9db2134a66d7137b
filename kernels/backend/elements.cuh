// Converts f32 or bf16 elements from and to floats, and runs one thread per pack of elements.

#pragma once

#include "hybrid_trainer/core/dtype.h"
#include "kernels/backend/launch.cuh"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace hybrid_trainer::kernels::cuda {

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

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

/// Stores two adjacent elements, rounded by one instruction.
__device__ inline void store_pair(BFloat16* to, float first, float second) {
#ifdef __CUDA_ARCH__
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  to[0].bits = __bfloat16_as_ushort(pair.x);
  to[1].bits = __bfloat16_as_ushort(pair.y);
#else
  to[0] = to_bfloat16(first);
  to[1] = to_bfloat16(second);
#endif
}

/// N elements, read or written by accesses of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T values[N];
};

/// Number of elements in one 16-byte access.
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
  if constexpr (std::is_same_v<T, BFloat16> && N % 2 == 0) {
    for (int i = 0; i < N; i += 2) store_pair(&pack.values[i], from[i], from[i + 1]);
  } else {
    for (int i = 0; i < N; ++i) store(&pack.values[i], from[i]);
  }
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Returns true if packs can be read starting at each of `begins`.
template <class... Pointers>
bool packs_aligned(Pointers... begins) {
  return ((reinterpret_cast<std::uintptr_t>(begins) % 16 == 0) && ...);
}

/// Returns true if all rows of `columns` elements starting at `begins` can be read in packs.
template <class T, class... Pointers>
bool packs_fit(std::int64_t columns, Pointers... begins) {
  return columns % kPackSize<T> == 0 && packs_aligned(begins...);
}

/// Returns the sigmoid, accurate to about 1e-6. Memory-bound kernels have no time for a division
/// and an expf.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

__device__ inline float silu_derivative(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}

__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

template <int N, class Body>
__global__ void for_packs_kernel(Body body, std::int64_t elements) {
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i + N <= elements) {
    body.template at<N>(i);
    return;
  }
  for (; i < elements; ++i) body.template at<1>(i);
}

/// Enqueues body.at<N>(i) for each pack [i, i + N) of elements and body.at<1>(i) for each element
/// that belongs to no complete pack. `begins` are the arrays that the body uses. If one of them is
/// not aligned, enqueues body.at<1>(i) for all elements.
template <int N, class Body, class... Pointers>
void for_packs(const Stream& stream, const char* name, std::int64_t elements, const Body& body,
               Pointers... begins) {
  if (packs_aligned(begins...)) {
    launch(stream, name, for_packs_kernel<N, Body>, grid_for((elements + N - 1) / N), body,
           elements);
  } else {
    launch(stream, name, for_packs_kernel<1, Body>, grid_for(elements), body, elements);
  }
}

/// Like for_packs, but enqueues body.at<1>(i) for all elements if `fits` is false.
template <int N, class Body, class... Pointers>
void for_packs_if(bool fits, const Stream& stream, const char* name, std::int64_t elements,
                  const Body& body, Pointers... begins) {
  if (fits) return for_packs<N>(stream, name, elements, body, begins...);
  for_packs<1>(stream, name, elements, body);
}

}  // namespace hybrid_trainer::kernels::cuda
