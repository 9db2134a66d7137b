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

Tensor workspace(std::int64_t elements, const Stream& stream) {
  return Tensor::empty({elements}, DType::kF32, MemoryKind::kWorkspace, stream);
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

Tensor Orthogonalizer::orthogonal(const Tensor& matrix, const Stream& stream) const {
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  const std::int64_t side = std::min(rows, columns);
  const bool wide = rows <= columns;  // the smaller of X·Xᵀ and Xᵀ·X is worked with
  const Tensor gram = part(gram_, side, side), polynomial = part(polynomial_, side, side);
  Tensor x = matrix, next = part(other_, rows, columns);

  const Tensor squares = kernels::empty_result(stream);
  kernels::sum_of_squares(squares, {&x, 1}, stream);
  kernels::normalize(x, x, squares, kNormFloor, stream);
  for (int step = 0; step < kSteps; ++step) {
    kernels::matmul(gram, x, wide ? Transpose::kNo : Transpose::kYes, x,
                    wide ? Transpose::kYes : Transpose::kNo, GradientMode::kOverwrite, stream);
    kernels::matmul(polynomial, gram, Transpose::kNo, gram, Transpose::kNo,
                    GradientMode::kOverwrite, stream);
    kernels::scale(polynomial, polynomial, kC, stream);
    kernels::axpy(polynomial, kB, gram, stream);
    kernels::scale(next, x, kA, stream);
    kernels::matmul(next, wide ? polynomial : x, Transpose::kNo, wide ? x : polynomial,
                    Transpose::kNo, GradientMode::kAccumulate, stream);
    std::swap(x, next);
  }
  return x;
}

}  // namespace hybrid_trainer
