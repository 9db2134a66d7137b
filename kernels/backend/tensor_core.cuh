// Tensor core instructions used by the kernels. Fragments are laid out as in the PTX ISA (9.7.14,
// mma.m16n8k16 with .bf16). With g = lane / 4 and t = lane % 4, each register of a lane contains
// two elements, the lower one in the lower half: left (16, 16): rows g and g + 8 of columns 2t, 2t
// + 1, then of columns 2t + 8, 2t + 9; right (16, 8): rows 2t, 2t + 1 of column g, then rows 2t +
// 8, 2t + 9; sums (16, 8): columns 2t, 2t + 1 of row g, then of row g + 8, one element per
// register. All lanes of a warp must call each of these functions together. Without nvcc, another
// header of this name comes earlier on the include path, as for kernels/backend/launch.cuh.

#pragma once

#include <cstdint>

#include "kernels/backend/elements.cuh"

namespace hybrid_trainer::kernels::cuda {

/// Address in shared memory, in bytes.
using SharedAddress = std::uint32_t;
__device__ inline SharedAddress shared_address(const void* at) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(at));
}

/// sums (16, 8) f32 += left (16, 16) · right (16, 8), both bf16.
__device__ inline void multiply_add(float (&sums)[4], const std::uint32_t (&left)[4],
                                    std::uint32_t right_low, std::uint32_t right_high) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
}

/// Reads four 8x8 matrices of 2-byte elements from shared memory. Lanes 8i to 8i + 7 pass the
/// addresses of matrix i's rows, 16-byte aligned. to[i] receives elements 2t, 2t + 1 of its row g.
__device__ inline void load_matrices(std::uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

/// Reads transposed matrices (see load_matrices): to[i] receives element g of rows 2t and 2t + 1.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

/// Starts to copy 16 bytes from global to shared memory, both 16-byte aligned. If `valid` is false,
/// writes zeros and does not read `from`. The copy is complete when wait_for_copies has returned
/// for its group.
__device__ inline void copy_async(SharedAddress to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
               : "memory");
}

/// Combines the thread's copies since the previous commit into a group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

/// Waits for all groups of this thread except the newest `kGroups`. Other threads may read the data
/// only after a __syncthreads.
template <int kGroups>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
}

/// Returns 2^x within 2 ulp. Results below 2^-126 are 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Returns x, but hides its value from the compiler, so that the compiler does not hoist
/// expressions of x out of a loop and keep them in registers.
__device__ inline int hidden(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ inline std::uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16 |
         __bfloat16_as_ushort(pair.x);
}

}  // namespace hybrid_trainer::kernels::cuda
