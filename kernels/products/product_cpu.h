#pragma once

#include <compare>

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/backend.h"

namespace hybrid_trainer::kernels::cpu {

/// C (m, n) = scale · op(A) (m, k) · op(B) (k, n) [+ C] on row-major f32 arrays; the strides are
/// those of the arrays in memory. Inside a task of the team it runs on the calling thread alone.
/// Throws OutOfMemory where oneDNN finds no memory to pack its operands in.
struct StridedProduct {
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const float* a = nullptr;
  std::int64_t stride_a = 0;
  const float* b = nullptr;
  std::int64_t stride_b = 0;
  float* c = nullptr;
  std::int64_t stride_c = 0;
  float scale = 1;
  bool accumulate = false;
};
void multiply(const StridedProduct& product);
/// On the calling thread alone, which must be one of a task's: to the same bits wherever it runs.
void multiply_alone(const StridedProduct& product);

/// What distinguishes one prepared product from another.
struct ProductKind {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  DType inputs = DType::kF32;
  DType output = DType::kF32;
  bool accumulate = false;
  bool bias = false;      // an f32 row of n added to each row
  bool residual = false;  // an array like C added to C
  int threads = 1;
  auto operator<=>(const ProductKind&) const = default;
};

struct ProductArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const float* bias = nullptr;
  const void* residual = nullptr;
};

/// The product of contiguous arrays by a primitive that is prepared once per kind and cached.
void multiply_prepared(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream);

/// y = x·wᵀ [+ y] [+ bias] [+ residual] for at most kFewRows rows: each row of w is read from memory
/// once. Each row of y has the same bits whatever rows are beside it.
/// x: (N, I), w: (O, I) of one dtype, y: (N, O) of that dtype or f32. bias, residual may be
/// undefined.
void skinny_gemm(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const Tensor& residual, bool accumulate, const Stream& stream);

/// The operands of such a product.
struct SkinnyRows {
  Tensor y, x, w, bias{}, residual{};
  bool accumulate = false;
};

/// Outputs [begin, end) of it, on the calling thread and to the same bits. scratch: as many floats as
/// x has elements.
void skinny_rows(const SkinnyRows& of, std::int64_t begin, std::int64_t end, float* scratch);

/// Whether multiply_by_tiles takes the product: bf16 on a processor with matrix tiles, n and k
/// multiples of 32, and m too where A is transposed.
bool fits_tiles(const ProductKind& kind);

/// The product of contiguous arrays on the processor's matrix tiles (AMX). Blocks of C go to
/// whichever thread is free; each element is summed in the order of k, so that equal calls give
/// equal bits.
void multiply_by_tiles(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream);

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
