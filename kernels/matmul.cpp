#include "hybrid_trainer/kernels/matmul.h"

#include "kernels/check.h"
#include "kernels/cpu/matmul.h"

namespace hybrid_trainer::kernels {
namespace {

struct MatrixSize {
  std::int64_t rows;
  std::int64_t columns;
};

MatrixSize size_after(Transpose transpose, const Tensor& x) {
  if (transpose == Transpose::kNo) return {x.size(0), x.size(1)};
  return {x.size(1), x.size(0)};
}

}  // namespace

void matmul(const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, GradientMode mode, const Stream& stream) {
  check_rank("matmul", {"A", a}, 2);
  check_rank("matmul", {"B", b}, 2);
  check_real("matmul", {"A", a});
  check_dtype("matmul", {"B", b}, a.dtype());
  const MatrixSize left = size_after(transpose_a, a);
  const MatrixSize right = size_after(transpose_b, b);
  if (left.columns != right.rows) {
    throw ShapeMismatch(concat("matmul: op(A) is (", left.rows, ", ", left.columns, "), op(B) is (",
                               right.rows, ", ", right.columns, "); inner sizes ", left.columns,
                               " and ", right.rows, " differ"));
  }
  check_shape("matmul", {"C", c}, {left.rows, right.columns});
  if (c.dtype() != DType::kF32) check_dtype("matmul", {"C", c}, a.dtype());
  visit_backend(stream,
                [&](auto backend) { matmul(backend, c, a, transpose_a, b, transpose_b, mode); });
}

void linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual, const Stream& stream) {
  constexpr auto kKernel = "linear_forward";
  check_rank(kKernel, {"x", x}, 2);
  check_rank(kKernel, {"w", w}, 2);
  check_real(kKernel, {"x", x});
  check_shape(kKernel, {"w", w}, {w.size(0), x.size(1)});
  check_shape(kKernel, {"y", y}, {x.size(0), w.size(0)});
  check_optional_shape(kKernel, {"residual", residual}, y.shape());
  check_optional_shape(kKernel, {"bias", bias}, {w.size(0)});
  check_dtype(kKernel, {"w", w}, x.dtype());
  check_dtype(kKernel, {"y", y}, x.dtype());
  if (residual) check_dtype(kKernel, {"residual", residual}, x.dtype());
  if (bias) check_dtype(kKernel, {"bias", bias}, DType::kF32);
  visit_backend(stream, [&](auto backend) { linear_forward(backend, y, x, w, bias, residual); });
}

void linear_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w,
                           const Stream& stream) {
  matmul(dx, dy, Transpose::kNo, w, Transpose::kNo, GradientMode::kOverwrite, stream);
}

void linear_backward_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, GradientMode mode,
                            const Stream& stream) {
  check_dtype("linear_backward_weight", {"dw", dw}, DType::kF32);
  matmul(dw, dy, Transpose::kYes, x, Transpose::kNo, mode, stream);
}

void bias_backward(const Tensor& dbias, const Tensor& dy, GradientMode mode, const Stream& stream) {
  check_rank("bias_backward", {"dy", dy}, 2);
  check_real("bias_backward", {"dy", dy});
  check_shape("bias_backward", {"dbias", dbias}, {dy.size(1)});
  check_dtype("bias_backward", {"dbias", dbias}, DType::kF32);
  visit_backend(stream, [&](auto backend) { bias_backward(backend, dbias, dy, mode); });
}

}  // namespace hybrid_trainer::kernels
