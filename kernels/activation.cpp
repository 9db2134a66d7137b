#include "hybrid_trainer/kernels/activation.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::activation_forward) activation_forward;
decltype(kernels::activation_backward) activation_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::activation_forward) activation_forward;
decltype(kernels::activation_backward) activation_backward;
}  // namespace cuda

void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind,
                        const Stream& stream) {
  const KernelCall call{"activation_forward", stream};
  check_alike_real(call, {{"x", x}, {"y", y}});
  dispatch<cpu::activation_forward, cuda::activation_forward>(call, Work::kElementwise, y, x, kind);
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream& stream) {
  const KernelCall call{"activation_backward", stream};
  check_alike_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  dispatch<cpu::activation_backward, cuda::activation_backward>(call, Work::kElementwise, dx, dy, x,
                                                                kind);
}

}  // namespace hybrid_trainer::kernels
