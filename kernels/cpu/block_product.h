#pragma once

#include "kernels/cpu/product.h"

namespace hybrid_trainer::kernels::cpu {

/// A block of a product, C (m, n) = op(A) (m, k) · op(B) (k, n) [+ bias] [+ C], of row-major arrays
/// with strides, whose sums are in f32. Of one dtype, but for a C in f32 of bf16.
struct ProductBlock {
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const void* a = nullptr;
  std::int64_t stride_a = 0;
  const void* b = nullptr;
  std::int64_t stride_b = 0;
  void* c = nullptr;
  std::int64_t stride_c = 0;
  const float* bias = nullptr;  // n
  DType inputs = DType::kF32;
  DType output = DType::kF32;
  bool accumulate = false;
  /// The B of the block that this thread computes next, of the same size; or null. Its first lines come
  /// to the cache meanwhile.
  const void* next_b = nullptr;
  bool streams = false;  // nobody reads C soon: it is written past the caches where it can be
};

/// Most rows and columns of C in a block.
inline constexpr std::int64_t kMostBlockSide = 256;

/// Floats that each thread needs to compute blocks.
std::int64_t block_scratch_elements(DType inputs);

/// Computes a block on the calling thread, which must be one of a task's: by AVX-512; bf16 on matrix
/// tiles, by AVX-512 BF16, or converted to f32; else by oneDNN. A block's bits depend on the block
/// alone.
void multiply_block(const ProductBlock& block, float* scratch);

}  // namespace hybrid_trainer::kernels::cpu
