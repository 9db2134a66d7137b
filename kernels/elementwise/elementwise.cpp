#include "kernels/generated/elementwise.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

void add(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream) {
  const KernelCall call{"add", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}, {"z", z}});
  dispatch<cpu::add, cuda::add>(call, y, x, z);
}

void scale(const Tensor& y, const Tensor& x, float a, const Stream& stream) {
  const KernelCall call{"scale", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}});
  dispatch<cpu::scale, cuda::scale>(call, y, x, a);
}

void scale_by(const Tensor& y, const Tensor& x, const Tensor& a, const Stream& stream) {
  const KernelCall call{"scale_by", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}});
  check_shape(call, {"a", a}, {1}, DType::kF32);
  dispatch<cpu::scale_by, cuda::scale_by>(call, y, x, a);
}

void normalize(const Tensor& y, const Tensor& x, const Tensor& squares, double floor,
               const Stream& stream) {
  const KernelCall call{"normalize", stream, Work::kElementwise};
  check_dtype(call, {"y", y}, DType::kF32);
  check_matching(call, {{"y", y}, {"x", x}});
  check_shape(call, {"squares", squares}, {1}, DType::kF64);
  dispatch<cpu::normalize, cuda::normalize>(call, y, x, squares, floor);
}

void axpy(const Tensor& y, const Tensor& from, float a, const Tensor& direction,
          const Stream& stream) {
  const KernelCall call{"axpy", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"from", from}, {"direction", direction}});
  dispatch<cpu::axpy, cuda::axpy>(call, y, from, a, direction);
}

void cast(const Tensor& y, const Tensor& x, const Stream& stream) {
  const KernelCall call{"cast", stream, Work::kElementwise};
  check_real(call, {"y", y});
  check_real(call, {"x", x});
  check_shape(call, {"y", y}, x.shape());
  dispatch<cpu::cast, cuda::cast>(call, y, x);
}

void gelu_forward(const Tensor& y, const Tensor& x, const Stream& stream) {
  const KernelCall call{"gelu_forward", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}});
  dispatch<cpu::gelu_forward, cuda::gelu_forward>(call, y, x);
}

void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Stream& stream) {
  const KernelCall call{"gelu_backward", stream, Work::kElementwise};
  check_matching_real(call, {{"dx", dx}, {"dy", dy}, {"x", x}});
  dispatch<cpu::gelu_backward, cuda::gelu_backward>(call, dx, dy, x);
}

void gated_forward(const Tensor& y, const Tensor& x, Gate gate, const Stream& stream) {
  const KernelCall call{"gated_forward", stream, Work::kElementwise};
  check_real(call, {"y", y}, 2);
  check_shape(call, {"x", x}, {y.size(0), 2 * y.size(1)}, y.dtype());
  dispatch<cpu::gated_forward, cuda::gated_forward>(call, y, x, gate);
}

void gated_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, Gate gate,
                    const Stream& stream) {
  const KernelCall call{"gated_backward", stream, Work::kElementwise};
  check_real(call, {"dy", dy}, 2);
  check_shape(call, {"x", x}, {dy.size(0), 2 * dy.size(1)}, dy.dtype());
  check_matching(call, {{"x", x}, {"dx", dx}});
  dispatch<cpu::gated_backward, cuda::gated_backward>(call, dx, dy, x, gate);
}

void clip(const Tensor& y, const Tensor& x, float limit, const Stream& stream) {
  const KernelCall call{"clip", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}});
  dispatch<cpu::clip, cuda::clip>(call, y, x, limit);
}

void clip_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, float limit,
                   const Stream& stream) {
  const KernelCall call{"clip_backward", stream, Work::kElementwise};
  check_matching_real(call, {{"dx", dx}, {"dy", dy}, {"x", x}});
  dispatch<cpu::clip_backward, cuda::clip_backward>(call, dx, dy, x, limit);
}

void cap_forward(const Tensor& y, const Tensor& x, float cap, const Stream& stream) {
  const KernelCall call{"cap_forward", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}});
  dispatch<cpu::cap_forward, cuda::cap_forward>(call, y, x, cap);
}

void cap_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, float cap,
                  const Stream& stream) {
  const KernelCall call{"cap_backward", stream, Work::kElementwise};
  check_matching_real(call, {{"dx", dx}, {"dy", dy}, {"y", y}});
  dispatch<cpu::cap_backward, cuda::cap_backward>(call, dx, dy, y, cap);
}

void dropout(const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers,
             const Stream& stream) {
  const KernelCall call{"dropout", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}});
  require(p >= 0 && p < 1, "dropout: p must be in [0, 1)");
  check_optional_shape(call, {"step_words", numbers.step_words}, {2});
  if (numbers.rows || numbers.run > 0) check_rank(call, {"x", x}, 2);
  if (numbers.rows) check_shape(call, {"rows", numbers.rows}, {x.size(0)}, DType::kI32);
  dispatch<cpu::dropout, cuda::dropout>(call, y, x, p, numbers);
}

void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind,
                        const Stream& stream) {
  const KernelCall call{"activation_forward", stream, Work::kElementwise};
  check_matching_real(call, {{"x", x}, {"y", y}});
  dispatch<cpu::activation_forward, cuda::activation_forward>(call, y, x, kind);
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream& stream) {
  const KernelCall call{"activation_backward", stream, Work::kElementwise};
  check_matching_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  dispatch<cpu::activation_backward, cuda::activation_backward>(call, dx, dy, x, kind);
}

void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream& stream) {
  const KernelCall call{"clamped_gate_forward", stream, Work::kElementwise};
  check_real(call, {"y", y}, 2);
  check_shape(call, {"x", x}, {y.size(0), 2 * y.size(1)}, y.dtype());
  dispatch<cpu::clamped_gate_forward, cuda::clamped_gate_forward>(call, y, x, gate);
}

void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream& stream) {
  const KernelCall call{"clamped_gate_backward", stream, Work::kElementwise};
  check_real(call, {"dy", dy}, 2);
  check_shape(call, {"x", x}, {dy.size(0), 2 * dy.size(1)}, dy.dtype());
  check_matching(call, {{"x", x}, {"dx", dx}});
  dispatch<cpu::clamped_gate_backward, cuda::clamped_gate_backward>(call, dx, dy, x, gate);
}

}  // namespace hybrid_trainer::kernels
