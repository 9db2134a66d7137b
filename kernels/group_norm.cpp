#include "hybrid_trainer/kernels/group_norm.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::group_norm_forward) group_norm_forward;
decltype(kernels::group_norm_backward) group_norm_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::group_norm_forward) group_norm_forward;
decltype(kernels::group_norm_backward) group_norm_backward;
}  // namespace cuda

namespace {

void check_groups(const KernelCall& call, const Tensor& x, std::int64_t groups) {
  check_real(call, {"x", x}, 3);
  if (x.elements() == 0)
    throw ShapeMismatch(
        concat(call.kernel, ": x is ", x.shape().text(), ", which has no elements"));
  if (groups < 1 || x.size(2) % groups != 0)
    throw ShapeMismatch(concat(call.kernel, ": x is ", x.shape().text(), ", whose ", x.size(2),
                               " channels are in ", groups,
                               " groups; want groups that divide them"));
}

}  // namespace

void group_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, std::int64_t groups,
                        float epsilon, const Stream& stream) {
  const KernelCall call{"group_norm_forward", stream};
  check_groups(call, x, groups);
  check_alike(call, {{"x", x}, {"y", y}});
  check_shape(call, {"weight", weight}, {x.size(2)}, DType::kF32);
  check_shape(call, {"bias", bias}, {x.size(2)}, DType::kF32);
  for (const NamedTensor& statistics : {NamedTensor{"mean", mean}, NamedTensor{"rstd", rstd}})
    if (statistics.tensor) check_shape(call, statistics, {x.size(0), groups}, DType::kF32);
  dispatch_with_workspace<cpu::group_norm_forward, cuda::group_norm_forward>(
      call, Work::kNormalization, y, mean, rstd, x, weight, bias, groups, epsilon);
}

void group_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& weight, const Stream& stream) {
  const KernelCall call{"group_norm_backward", stream};
  check_rank(call, {"mean", mean}, 2);
  check_groups(call, x, mean.size(1));
  check_alike(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_shape(call, {"mean", mean}, {x.size(0), mean.size(1)}, DType::kF32);
  check_alike(call, {{"mean", mean}, {"rstd", rstd}});
  check_shape(call, {"weight", weight}, {x.size(2)}, DType::kF32);
  check_alike(call, {{"weight", weight}, {"dweight", dweight}, {"dbias", dbias}});
  dispatch_with_workspace<cpu::group_norm_backward, cuda::group_norm_backward>(
      call, Work::kNormalization, dx, dweight, dbias, mode, dy, x, mean, rstd, weight);
}

}  // namespace hybrid_trainer::kernels
