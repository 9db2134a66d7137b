#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

enum class Rotation { kForward, kBackward };  // by the angle, or back

/// The first heads of a row.
struct RotatedHeads {
  RotatedHeads(std::int64_t count_, std::int64_t size_ = 0) : count(count_), size(size_) {}
  std::int64_t count;
  std::int64_t size;  // channels of each, of which the table's first ones turn; 0: all turn
  std::int64_t size_or(std::int64_t turned) const { return size > 0 ? size : turned; }
};

/// Rotates the first R channels of the first heads of each row of x in place. u is in the first half of
/// the R, and v at its place in the second. With c and s of the row's position, (u, v) becomes (u·c −
/// v·s, v·c + u·s). kBackward, which is also the gradient, takes −s. x: (B, T, any) f32 or bf16, at
/// `positions` (B, T) i32, or where that is undefined first_position…; table: (max T, R) f32, cosines
/// in the first half of a row, sines in the second. In f32, rounded once. Source: Su et al. 2021, in
/// transformers' pairing.
void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream);

}  // namespace hybrid_trainer::kernels
