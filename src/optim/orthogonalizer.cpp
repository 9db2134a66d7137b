#include "src/optim/orthogonalizer.h"

#include <algorithm>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {
namespace {

using kernels::GradientMode;
using kernels::Transpose;

constexpr int kSteps = 5;
constexpr float kA = 3.4445f;
constexpr float kB = -4.7750f;
constexpr float kC = 2.0315f;
constexpr double kNormFloor = 1e-7;

Tensor workspace(std::int64_t elements, const Stream& stream, DType dtype = DType::kF32) {
  return Tensor::empty({elements}, dtype, MemoryKind::kWorkspace, stream);
}

Tensor part(const Tensor& buffer, std::int64_t rows, std::int64_t columns) {
  return buffer.rows(0, rows * columns).view({rows, columns});
}

}  // namespace

Orthogonalizer::Orthogonalizer(std::int64_t max_elements, std::int64_t max_side,
                               const Stream& stream)
    : input_(workspace(max_elements, stream)),
      other_(workspace(max_elements, stream)),
      gram_(workspace(max_side * max_side, stream)),
      polynomial_(workspace(max_side * max_side, stream)) {}

Tensor Orthogonalizer::input(std::int64_t rows, std::int64_t columns) const {
  return part(input_, rows, columns);
}

/// The operand that products read for `matrix`: its rounded copy, or itself in f32.
Tensor Orthogonalizer::factor(const Tensor& matrix, const Tensor& rounded,
                              const Stream& stream) const {
  if (!rounded) return matrix;
  const Tensor copy = part(rounded, matrix.size(0), matrix.size(1));
  kernels::cast(copy, matrix, stream);
  return copy;
}

Tensor Orthogonalizer::orthogonal_blocks(const Tensor& matrix, std::int64_t block_rows,
                                         DType products, const Stream& stream) {
  const std::int64_t rows = matrix.size(0);
  const Tensor result = part(other_, rows, matrix.size(1));
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t end = std::min(rows, begin + block_rows);
    orthogonalize(result.rows(begin, end), matrix.rows(begin, end), products, stream);
  }
  return result;
}

bool Orthogonalizer::iterates_on_gram(const Shape& matrix, DType products) {
  const std::int64_t side = std::min(matrix[0], matrix[1]);
  return products == DType::kF32 && matrix.elements() >= 2 * side * side;
}

void Orthogonalizer::orthogonalize(const Tensor& result, const Tensor& matrix, DType products,
                                   const Stream& stream) {
  const Tensor squares = kernels::empty_result(stream);
  kernels::sum_of_squares(squares, {&matrix, 1}, stream);
  kernels::normalize(matrix, matrix, squares, kNormFloor, stream);
  if (iterates_on_gram(matrix.shape(), products)) {
    iterate_on_gram(result, matrix, stream);
  } else {
    iterate(result, matrix, products, stream);
  }
}

/// With P = a + M, M = b·A + c·A²: A ← P·A·P, and Q = q + N ← P·Q, in the end Q·X. All are
/// polynomials of the first A, so that their order is free. An eigenvalue that rounding made −δ, δ
/// near 1e-7, grows to a⁸·δ = 0.002 in the four steps, of no account beside a. `result` is scratch
/// until the end.
void Orthogonalizer::iterate_on_gram(const Tensor& result, const Tensor& x, const Stream& stream) {
  const std::int64_t rows = x.size(0), columns = x.size(1), side = std::min(rows, columns);
  const bool wide = rows <= columns;
  const Tensor scratch = result.view({result.elements()}),
               polynomial = part(polynomial_, side, side);
  const Tensor gram = part(scratch, side, side);
  Tensor q = part(gram_, side, side),
         next = part(scratch.rows(side * side, result.elements()), side, side);
  const auto multiply = [&](const Tensor& c, const Tensor& a, const Tensor& b, GradientMode mode) {
    kernels::matmul(c, a, Transpose::kNo, b, Transpose::kNo, mode, stream);
  };
  kernels::matmul(gram, x, wide ? Transpose::kNo : Transpose::kYes, x,
                  wide ? Transpose::kYes : Transpose::kNo, GradientMode::kOverwrite, stream);
  static_assert(kSteps % 2 == 1);  // after which q lies in gram_ again
  float identity = 1;              // q's part of it
  for (int step = 0; step < kSteps; ++step) {
    const Tensor m = step == 0 ? q : polynomial;
    multiply(m, gram, gram, GradientMode::kOverwrite);
    kernels::scale(m, m, kC, stream);
    kernels::axpy(m, m, kB, gram, stream);
    if (step > 0) {
      kernels::scale(next, q, kA, stream);
      kernels::axpy(next, next, identity, m, stream);
      multiply(next, m, q, GradientMode::kAccumulate);
      std::swap(q, next);
    }
    identity *= kA;
    if (step + 1 == kSteps) break;
    kernels::scale(next, gram, kA, stream);
    multiply(next, m, gram, GradientMode::kAccumulate);
    kernels::scale(gram, next, kA, stream);
    multiply(gram, next, m, GradientMode::kAccumulate);
  }
  kernels::scale(result, x, identity, stream);
  multiply(result, wide ? q : x, wide ? x : q, GradientMode::kAccumulate);
}

/// Each step leaves X where the one before it was not: after an odd number that is `result`.
void Orthogonalizer::iterate(const Tensor& result, const Tensor& matrix, DType products,
                             const Stream& stream) {
  static_assert(kSteps % 2 == 1);
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  const std::int64_t side = std::min(rows, columns);
  const bool wide = rows <= columns;  // works with the smaller of X·Xᵀ and Xᵀ·X
  const bool rounds = products == DType::kBF16;
  if (rounds && !rounded_input_) {
    rounded_input_ = workspace(input_.elements(), stream, DType::kBF16);
    rounded_gram_ = workspace(gram_.elements(), stream, DType::kBF16);
  }
  const Tensor rounded_x = rounds ? rounded_input_ : Tensor{};
  const Tensor rounded_square = rounds ? rounded_gram_ : Tensor{};
  const Tensor gram = part(gram_, side, side), polynomial = part(polynomial_, side, side);
  Tensor x = matrix, next = result;

  for (int step = 0; step < kSteps; ++step) {
    const Tensor x_factor = factor(x, rounded_x, stream);
    kernels::matmul(gram, x_factor, wide ? Transpose::kNo : Transpose::kYes, x_factor,
                    wide ? Transpose::kYes : Transpose::kNo, GradientMode::kOverwrite, stream);
    const Tensor gram_factor = factor(gram, rounded_square, stream);
    kernels::matmul(polynomial, gram_factor, Transpose::kNo, gram_factor, Transpose::kNo,
                    GradientMode::kOverwrite, stream);
    kernels::scale(polynomial, polynomial, kC, stream);
    kernels::axpy(polynomial, polynomial, kB, gram, stream);
    kernels::scale(next, x, kA, stream);
    const Tensor polynomial_factor = factor(polynomial, rounded_square, stream);
    kernels::matmul(next, wide ? polynomial_factor : x_factor, Transpose::kNo,
                    wide ? x_factor : polynomial_factor, Transpose::kNo, GradientMode::kAccumulate,
                    stream);
    std::swap(x, next);
  }
}

double Orthogonalizer::flops(const Shape& matrix, std::int64_t block_rows, DType products) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < matrix[0]; begin += block_rows) {
    const Shape block{std::min(block_rows, matrix[0] - begin), matrix[1]};
    const auto side = static_cast<double>(std::min(block[0], block[1])),
               long_product = 2 * side * static_cast<double>(block.elements()),
               short_product = 2 * side * side * side;
    sum += iterates_on_gram(block, products) ? 2 * long_product + (4 * kSteps - 3) * short_product
                                             : kSteps * (2 * long_product + short_product);
  }
  return sum;
}

}  // namespace hybrid_trainer
