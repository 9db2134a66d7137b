#include "hybrid_trainer/kernels/gated_norm.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::gated_norm_forward) gated_norm_forward;
decltype(kernels::gated_norm_backward) gated_norm_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::gated_norm_forward) gated_norm_forward;
decltype(kernels::gated_norm_backward) gated_norm_backward;
}  // namespace cuda

namespace {

void check_gate(const KernelCall& call, const Tensor& x, const Tensor& gate, std::int64_t first,
                const Tensor& weight, const GatedNormSpec& spec) {
  check_real(call, {"x", x}, 2);
  check_rank(call, {"gate", gate}, 2);
  check_shape(call, {"gate", gate}, {x.size(0), gate.size(1)}, x.dtype());
  check_rank(call, {"weight", weight}, 1);
  check_dtype(call, {"weight", weight}, DType::kF32);
  const std::int64_t columns = x.size(1), gains = weight.size(0);
  if (first < 0 || first + columns > gate.size(1)) {
    throw ShapeMismatch(concat(call.kernel, ": x is ", x.shape().text(), ", gate is ",
                               gate.shape().text(), " from column ", first,
                               " on; want a gate for each column of x"));
  }
  if (spec.groups < 1 || columns % spec.groups != 0 ||
      (gains != columns && gains != columns / spec.groups)) {
    throw ShapeMismatch(concat(call.kernel, ": x is ", x.shape().text(), ", weight is ",
                               weight.shape().text(), ", groups are ", spec.groups,
                               "; want groups that divide the columns, and a weight for each "
                               "column of a row or of a group"));
  }
}

}  // namespace

void gated_norm_forward(const Tensor& y, const Tensor& x, const Tensor& gate, std::int64_t first,
                        const Tensor& weight, GatedNormSpec spec, const Stream& stream) {
  const KernelCall call{"gated_norm_forward", stream};
  check_gate(call, x, gate, first, weight, spec);
  check_alike(call, {{"x", x}, {"y", y}});
  dispatch<cpu::gated_norm_forward, cuda::gated_norm_forward>(call, Work::kNormalization, y, x,
                                                              gate, first, weight, spec);
}

void gated_norm_backward(const Tensor& dx, const Tensor& dgate, const Tensor& dweight,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& gate,
                         std::int64_t first, const Tensor& weight, GatedNormSpec spec,
                         const Stream& stream) {
  const KernelCall call{"gated_norm_backward", stream};
  check_gate(call, x, gate, first, weight, spec);
  check_alike(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_alike(call, {{"gate", gate}, {"dgate", dgate}});
  check_alike(call, {{"weight", weight}, {"dweight", dweight}});
  dispatch_with_workspace<cpu::gated_norm_backward, cuda::gated_norm_backward>(
      call, Work::kNormalization, dx, dgate, dweight, mode, dy, x, gate, first, weight, spec);
}

}  // namespace hybrid_trainer::kernels
