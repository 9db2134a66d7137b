#include "kernels/generated/matmul.h"

#include "kernels/backend/dispatch.h"

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

/// Checks x (N, I) with I at least 1, w (O, I), y (N, O), of one dtype, and bias (O) f32.
void check_linear(const KernelCall& call, const NamedTensor& y, const Tensor& x, const Tensor& w,
                  const Tensor& bias) {
  check_rank(call, {"x", x}, 2);
  check_rank(call, {"w", w}, 2);
  check_real(call, {"x", x});
  if (x.size(1) == 0) throw_mismatch(call, "x is ", x.shape().text(), "; want at least one column");
  check_shape(call, {"w", w}, {w.size(0), x.size(1)});
  check_shape(call, y, {x.size(0), w.size(0)});
  check_optional_shape(call, {"bias", bias}, {w.size(0)});
  check_dtype(call, {"w", w}, x.dtype());
  check_dtype(call, y, x.dtype());
  if (bias) check_dtype(call, {"bias", bias}, DType::kF32);
}

}  // namespace

void matmul(const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, GradientMode mode, const Stream& stream) {
  const KernelCall call{"matmul", stream, Work::kProduct};
  check_rank(call, {"A", a}, 2);
  check_rank(call, {"B", b}, 2);
  check_real(call, {"A", a});
  check_dtype(call, {"B", b}, a.dtype());
  const MatrixSize left = size_after(transpose_a, a);
  const MatrixSize right = size_after(transpose_b, b);
  if (left.columns != right.rows)
    throw ShapeMismatch(concat("matmul: op(A) is (", left.rows, ", ", left.columns, "), op(B) is (",
                               right.rows, ", ", right.columns, "); inner sizes ", left.columns,
                               " and ", right.rows, " differ"));
  check_shape(call, {"C", c}, {left.rows, right.columns});
  if (c.dtype() != DType::kF32) check_dtype(call, {"C", c}, a.dtype());
  dispatch_with_workspace<cpu::matmul, cuda::matmul>(call, c, a, transpose_a, b, transpose_b, mode);
}

void linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual, const Stream& stream) {
  const KernelCall call{"linear_forward", stream, Work::kProduct};
  check_linear(call, {"y", y}, x, w, bias);
  check_optional_shape(call, {"residual", residual}, y.shape(), x.dtype());
  dispatch_with_workspace<cpu::linear_forward, cuda::linear_forward>(call, y, x, w, bias, residual);
}

void linear_gelu_forward(const Tensor& active, const Tensor& pre_activation, const Tensor& x,
                         const Tensor& w, const Tensor& bias, const Stream& stream) {
  const KernelCall call{"linear_gelu_forward", stream, Work::kProduct};
  check_linear(call, {"active", active}, x, w, bias);
  check_optional_shape(call, {"pre_activation", pre_activation}, active.shape(), x.dtype());
  dispatch_with_workspace<cpu::linear_gelu_forward, cuda::linear_gelu_forward>(
      call, active, pre_activation, x, w, bias);
}

void linear_gelu_backward_input(const Tensor& dpre_activation, const Tensor& dy, const Tensor& w,
                                const Tensor& pre_activation, const Stream& stream) {
  const KernelCall call{"linear_gelu_backward_input", stream, Work::kProduct};
  check_rank(call, {"dy", dy}, 2);
  check_rank(call, {"w", w}, 2);
  check_real(call, {"dy", dy});
  check_shape(call, {"w", w}, {dy.size(1), w.size(1)}, dy.dtype());
  check_shape(call, {"dpre_activation", dpre_activation}, {dy.size(0), w.size(1)}, dy.dtype());
  check_matching(call, {{"dpre_activation", dpre_activation}, {"pre_activation", pre_activation}});
  dispatch_with_workspace<cpu::linear_gelu_backward_input, cuda::linear_gelu_backward_input>(
      call, dpre_activation, dy, w, pre_activation);
}

void linear_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w,
                           const Stream& stream) {
  matmul(dx, dy, Transpose::kNo, w, Transpose::kNo, GradientMode::kOverwrite, stream);
}

void linear_backward_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, GradientMode mode,
                            const Stream& stream) {
  matmul(dw, dy, Transpose::kYes, x, Transpose::kNo, mode, stream);
}

void linear_backward_parameters(const Tensor& dw, const Tensor& dbias, const Tensor& dy,
                                const Tensor& x, GradientMode mode, const Stream& stream) {
  const KernelCall call{"linear_backward_parameters", stream, Work::kProduct};
  check_real(call, {"dy", dy}, 2);
  check_real(call, {"x", x}, 2);
  check_shape(call, {"x", x}, {dy.size(0), x.size(1)}, dy.dtype());
  check_shape(call, {"dw", dw}, {dy.size(1), x.size(1)});
  if (dw.dtype() != DType::kF32) check_dtype(call, {"dw", dw}, dy.dtype());
  check_shape(call, {"dbias", dbias}, {dy.size(1)}, DType::kF32);
  if (call.device.type == DeviceType::kCpu) {
    linear_backward_weight(dw, dy, x, mode, stream);
    return bias_backward(dbias, dy, mode, stream);
  }
  dispatch_to_cuda<cuda::linear_backward_parameters>(call, dw, dbias, dy, x, mode);
}

void bias_backward(const Tensor& dbias, const Tensor& dy, GradientMode mode, const Stream& stream) {
  const KernelCall call{"bias_backward", stream, Work::kElementwise};
  check_real(call, {"dy", dy}, 2);
  check_shape(call, {"dbias", dbias}, {dy.size(1)}, DType::kF32);
  dispatch_with_workspace<cpu::bias_backward, cuda::bias_backward>(call, dbias, dy, mode);
}

}  // namespace hybrid_trainer::kernels
