#include "orthogonalizer.h"

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

/// Each step leaves X where the one before it was not: after an odd number that is `result`.
void Orthogonalizer::orthogonalize(const Tensor& result, const Tensor& matrix, DType products,
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

  const Tensor squares = kernels::empty_result(stream);
  kernels::sum_of_squares(squares, {&x, 1}, stream);
  kernels::normalize(x, x, squares, kNormFloor, stream);
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

double Orthogonalizer::flops(const Shape& matrix, std::int64_t block_rows) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < matrix[0]; begin += block_rows) {
    const auto rows = static_cast<double>(std::min(block_rows, matrix[0] - begin)),
               columns = static_cast<double>(matrix[1]);
    const double side = std::min(rows, columns);
    sum += kSteps * (4 * side * rows * columns + 2 * side * side * side);
  }
  return sum;
}

}  // namespace hybrid_trainer
