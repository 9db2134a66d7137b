#pragma once

#include <compare>

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend.h"

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

}  // namespace hybrid_trainer::kernels::cpu
