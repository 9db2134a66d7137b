#include "kernels/generated/semiseparable.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

namespace {

void check_factor(const KernelCall& call, const NamedTensor& factor, const NamedTensor& scales,
                  const Shape& shape) {
  check_shape(call, factor, shape);
  const DType dtype = factor.tensor.dtype();
  const bool known =
      dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kU16 || dtype == DType::kI8;
  if (!known)
    throw Error(ExitCode::kInternal, concat(call.kernel, ": ", factor.name, " is ", name_of(dtype),
                                            ", want f32, bf16, u16 (half precision) or i8"));
  if (dtype == DType::kI8) check_shape(call, scales, {shape[0]}, DType::kF32);
}

void check_tridiagonal(const KernelCall& call, const NamedTensor& diagonal,
                       const NamedTensor& above, const NamedTensor& below, std::int64_t size) {
  check_optional_shape(call, diagonal, {size}, DType::kF32);
  check_optional_shape(call, above, {size - 1}, DType::kF32);
  check_optional_shape(call, below, {size - 1}, DType::kF32);
}

void check_semiseparable(const KernelCall& call, const NamedTensor& result, const Tensor& x,
                         const Semiseparable& h) {
  check_real(call, {"x", x}, 2);
  check_matching(call, {{"x", x}, result});
  const std::int64_t size = x.size(1);
  check_shape(call, {"diagonal", h.diagonal}, {size}, DType::kF32);
  check_shape(call, {"above", h.above}, {size - 1}, DType::kF32);
  check_shape(call, {"below", h.below}, {size - 1}, DType::kF32);
  check_rank(call, {"u", h.u}, 2);
  check_factor(call, {"u", h.u}, {"u_scales", h.u_scales}, {h.u.size(0), size});
  check_factor(call, {"v", h.v}, {"v_scales", h.v_scales}, {h.u.size(0), size});
  check_dtype(call, {"v", h.v}, h.u.dtype());
}

}  // namespace

void semiseparable_forward(const Tensor& y, const Tensor& x, const Semiseparable& h,
                           Transpose transpose, const Stream& stream) {
  const KernelCall call{"semiseparable_forward", stream, Work::kProduct};
  check_semiseparable(call, {"y", y}, x, h);
  dispatch_with_workspace<cpu::semiseparable_forward, cuda::semiseparable_forward>(call, y, x, h,
                                                                                   transpose);
}

void semiseparable_backward(const SemiseparableGradients& gradients, const Tensor& dy,
                            const Tensor& x, const Semiseparable& h, const Stream& stream) {
  const KernelCall call{"semiseparable_backward", stream, Work::kProduct};
  check_semiseparable(call, {"dy", dy}, x, h);
  if (gradients.x) check_matching(call, {{"x", x}, {"dx", gradients.x}});
  check_tridiagonal(call, {"ddiagonal", gradients.diagonal}, {"dabove", gradients.above},
                    {"dbelow", gradients.below}, h.size());
  for (const auto& [name, part] : {std::pair{"du", &gradients.u}, std::pair{"dv", &gradients.v}})
    check_optional_shape(call, {name, *part}, h.u.shape(), DType::kF32);
  dispatch_with_workspace<cpu::semiseparable_backward, cuda::semiseparable_backward>(
      call, gradients, dy, x, h);
}

}  // namespace hybrid_trainer::kernels
