#include "hybrid_trainer/kernels/clamped_gate.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::clamped_gate_forward) clamped_gate_forward;
decltype(kernels::clamped_gate_backward) clamped_gate_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::clamped_gate_forward) clamped_gate_forward;
decltype(kernels::clamped_gate_backward) clamped_gate_backward;
}  // namespace cuda

void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream& stream) {
  const KernelCall call{"clamped_gate_forward", stream};
  check_real(call, {"y", y}, 2);
  check_shape(call, {"x", x}, {y.size(0), 2 * y.size(1)}, y.dtype());
  dispatch<cpu::clamped_gate_forward, cuda::clamped_gate_forward>(call, Work::kElementwise, y, x,
                                                                  gate);
}

void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream& stream) {
  const KernelCall call{"clamped_gate_backward", stream};
  check_real(call, {"dy", dy}, 2);
  check_shape(call, {"x", x}, {dy.size(0), 2 * dy.size(1)}, dy.dtype());
  check_alike(call, {{"x", x}, {"dx", dx}});
  dispatch<cpu::clamped_gate_backward, cuda::clamped_gate_backward>(call, Work::kElementwise, dx,
                                                                    dy, x, gate);
}

}  // namespace hybrid_trainer::kernels
