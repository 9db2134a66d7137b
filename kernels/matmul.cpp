#include "hybrid_trainer/kernels/matmul.h"

#include "kernels/check.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cuda/matmul.h"

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

/// Checks x (N, I), I at least 1, w (O, I), an f32 bias (O) or none, and output (N, O), otherwise of one dtype.
void check_linear(const char* kernel, const NamedTensor& y, const Tensor& x, const Tensor& w,
                  const Tensor& bias) {
  check_rank(kernel, {"x", x}, 2);
  check_rank(kernel, {"w", w}, 2);
  check_real(kernel, {"x", x});
  if (x.size(1) == 0)
    throw ShapeMismatch(concat(kernel, ": x is ", x.shape().text(), "; want at least one column"));
  check_shape(kernel, {"w", w}, {w.size(0), x.size(1)});
  check_shape(kernel, y, {x.size(0), w.size(0)});
  check_optional_shape(kernel, {"bias", bias}, {w.size(0)});
  check_dtype(kernel, {"w", w}, x.dtype());
  check_dtype(kernel, y, x.dtype());
  if (bias) check_dtype(kernel, {"bias", bias}, DType::kF32);
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
  visit_backend(stream, Work::kProduct,
                [&](auto backend) { matmul(backend, c, a, transpose_a, b, transpose_b, mode); });
}

void linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual, const Stream& stream) {
  constexpr auto kKernel = "linear_forward";
  check_linear(kKernel, {"y", y}, x, w, bias);
  check_optional_shape(kKernel, {"residual", residual}, y.shape());
  if (residual) check_dtype(kKernel, {"residual", residual}, x.dtype());
  visit_backend(stream, Work::kProduct,
                [&](auto backend) { linear_forward(backend, y, x, w, bias, residual); });
}

void linear_gelu_forward(const Tensor& active, const Tensor& wide, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Stream& stream) {
  constexpr auto kKernel = "linear_gelu_forward";
  check_linear(kKernel, {"active", active}, x, w, bias);
  check_optional_shape(kKernel, {"wide", wide}, active.shape());
  if (wide) check_dtype(kKernel, {"wide", wide}, x.dtype());
  visit_backend(stream, Work::kProduct,
                [&](auto backend) { linear_gelu_forward(backend, active, wide, x, w, bias); });
}

void linear_gelu_backward_input(const Tensor& dwide, const Tensor& dy, const Tensor& w,
                                const Tensor& wide, const Stream& stream) {
  constexpr auto kKernel = "linear_gelu_backward_input";
  check_rank(kKernel, {"dy", dy}, 2);
  check_rank(kKernel, {"w", w}, 2);
  check_real(kKernel, {"dy", dy});
  check_shape(kKernel, {"w", w}, {dy.size(1), w.size(1)});
  check_dtype(kKernel, {"w", w}, dy.dtype());
  check_shape(kKernel, {"dwide", dwide}, {dy.size(0), w.size(1)});
  check_dtype(kKernel, {"dwide", dwide}, dy.dtype());
  check_alike(kKernel, {{"dwide", dwide}, {"wide", wide}});
  visit_backend(stream, Work::kProduct,
                [&](auto backend) { linear_gelu_backward_input(backend, dwide, dy, w, wide); });
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
  visit_backend(stream, Work::kElementwise,
                [&](auto backend) { bias_backward(backend, dbias, dy, mode); });
}

}  // namespace hybrid_trainer::kernels
