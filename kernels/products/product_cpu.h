#pragma once

#include <compare>

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/backend.h"

namespace hybrid_trainer::kernels::cpu {

/// C (m, n) = scale · op(A) (m, k) · op(B) (k, n) [+ C] on row-major f32 arrays, with strides
/// before transposition. In a task of the thread team, runs on the calling thread only. Throws
/// OutOfMemory.
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
/// Multiplies on the calling thread, in a task. The bits do not depend on the thread.
void multiply_alone(const StridedProduct& product);

struct ProductKind {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  DType inputs = DType::kF32;
  DType output = DType::kF32;
  bool accumulate = false;
  bool bias = false;      // adds an f32 row of n numbers to each row
  bool residual = false;  // adds an array of C's shape to C
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

/// Multiplies contiguous arrays with a oneDNN primitive, which is created once per kind and cached.
void multiply_prepared(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream);

/// y = x·wᵀ [+ y] [+ bias] [+ residual] for at most kFewRows rows. Reads each row of w from memory
/// once. The bits of a row of y do not depend on other rows. x: (N, I) and w: (O, I) have one
/// dtype; y: (N, O) has this dtype or f32. bias and residual may be undefined.
void skinny_gemm(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const Tensor& residual, bool accumulate, const Stream& stream);

struct SkinnyRows {
  Tensor y, x, w, bias{}, residual{};
  bool accumulate = false;
};

/// Computes outputs [begin, end) of skinny_gemm on the calling thread. The outputs are
/// bit-identical to the outputs of skinny_gemm. `scratch` has one float per element of x.
void skinny_rows(const SkinnyRows& of, std::int64_t begin, std::int64_t end, float* scratch);

/// Returns whether multiply_by_tiles supports the product: bf16 on a CPU with matrix tiles, n and k
/// multiples of 32, and m too if A is transposed.
bool fits_tiles(const ProductKind& kind);

/// Multiplies contiguous arrays on the CPU's matrix tiles (AMX). A free thread takes the next block
/// of C; the bits do not depend on the thread.
void multiply_by_tiles(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream);

/// A block of a product: C (m, n) = op(A) (m, k) · op(B) (k, n) [+ bias] [+ C], on row-major arrays
/// with strides. Sums are f32. All arrays have one dtype, but C may be f32 if operands are bf16.
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
  const float* bias = nullptr;  // n biases, or null
  DType inputs = DType::kF32;
  DType output = DType::kF32;
  bool accumulate = false;
  /// B of this thread's next block, of the same size, to prefetch; or null.
  const void* next_b = nullptr;
  bool streams = false;  // writes C past the caches if possible, because C is not read soon
};

/// Maximum number of rows, and of columns, of C in a block.
inline constexpr std::int64_t kMaxBlockSide = 256;

/// Returns the number of floats of scratch that each thread needs to compute blocks.
std::int64_t block_scratch_elements(DType inputs);

/// Computes a block on the calling thread, in a task, with AVX-512 or oneDNN. bf16 uses matrix
/// tiles, AVX-512 BF16 or f32. The bits depend only on the block.
void multiply_block(const ProductBlock& block, float* scratch);

}  // namespace hybrid_trainer::kernels::cpu
