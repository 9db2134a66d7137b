#pragma once

#include <span>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Sums in double, each in an order that depends only on the sizes and, of quotient and mean on a
// processor, the number of threads. `result` is (1) f64 on the stream's device, for wait_for_value
// to read.

/// Elements that are added up by themselves, from the first of each tensor on, before their sums
/// are.
inline constexpr std::int64_t kDotChunk = 4096;
constexpr std::int64_t dot_chunks(std::int64_t elements) {
  return (elements + kDotChunk - 1) / kDotChunk;
}

/// results[c] = sum of x[i]·y[i] over chunk c. results: (dot_chunks(elements)) f64; x, y: of one
/// shape and dtype, f32 or bf16.
void chunk_dots(const Tensor& results, const Tensor& x, const Tensor& y, const Stream& stream);
/// result = sum over all k and i of x[k][i]·y[k][i]. Pairs of one shape and dtype, f32 or bf16. On a
/// processor a pair's sums of chunks (chunk_dots) are added in their order, then the pairs'. `sums`:
/// (dot_chunks of all x) f64 for the chunks; if undefined, the kernel takes it from the stream.
void dot(const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y,
         const Tensor& sums, const Stream& stream);
/// result = sum over all k and i of x[k][i]²; NaN or infinity where any element is not finite.
void sum_of_squares(const Tensor& result, std::span<const Tensor> x, const Stream& stream);
/// result = sum of x, f32, over `divisor`.
void quotient(const Tensor& result, const Tensor& x, double divisor, const Stream& stream);

/// A (1) f64 tensor of MemoryKind::kWorkspace for a result.
Tensor empty_result(const Stream& stream);
/// The number in a (1) f64 tensor. Blocks until the stream has computed it.
double wait_for_value(const Tensor& result, const Stream& stream);

/// These sums as host values. Each call blocks.
double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream);
double wait_for_sum_of_squares(const Tensor& x, const Stream& stream);

}  // namespace hybrid_trainer::kernels
