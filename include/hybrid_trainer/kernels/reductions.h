#pragma once

#include <span>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Sums in double, in an order that depends only on the sizes, and for `quotient` on the CPU also on
// the number of threads. `result`: (1) f64 on the stream's device; read it with wait_for_value.

inline constexpr std::int64_t kDotChunk = 4096;  // elements per chunk
constexpr std::int64_t dot_chunks(std::int64_t elements) {
  return (elements + kDotChunk - 1) / kDotChunk;
}

/// results[c] = sum of x[i]·y[i] over chunk c. results: (dot_chunks(elements)) f64; x, y: f32 or
/// bf16, of one shape and dtype.
void chunk_dots(const Tensor& results, const Tensor& x, const Tensor& y, const Stream& stream);
/// result = sum over all k and i of x[k][i]·y[k][i]. Each pair has one shape and dtype, f32 or
/// bf16. On the CPU the chunk sums of a pair (chunk_dots) are added in order, then the pairs.
/// `sums`: workspace of (dot_chunks of all x) f64; if it is undefined, allocates from the stream.
void dot(const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y,
         const Tensor& sums, const Stream& stream);
/// result = sum over all k and i of x[k][i]²; NaN or infinity if any element is not finite.
void sum_of_squares(const Tensor& result, std::span<const Tensor> x, const Stream& stream);
/// result = sum of x divided by `divisor`. x: f32.
void quotient(const Tensor& result, const Tensor& x, double divisor, const Stream& stream);

/// Allocates a (1) f64 result tensor of MemoryKind::kWorkspace.
Tensor empty_result(const Stream& stream);
/// Returns the number in a (1) f64 tensor. Blocks until the stream has computed it.
double wait_for_value(const Tensor& result, const Stream& stream);

/// Compute dot and sum_of_squares, block, and return the sum.
double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream);
double wait_for_sum_of_squares(const Tensor& x, const Stream& stream);

}  // namespace hybrid_trainer::kernels
