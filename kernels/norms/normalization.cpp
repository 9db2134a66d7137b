#include "kernels/generated/normalization.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, float epsilon,
                        const Stream& stream) {
  const KernelCall call{"layer_norm_forward", stream, Work::kNormalization};
  check_rank(call, {"x", x}, 2);
  check_matching_real(call, {{"x", x}, {"y", y}});
  check_shape(call, {"weight", weight}, {x.size(1)});
  check_shape(call, {"bias", bias}, {x.size(1)});
  check_optional_shape(call, {"mean", mean}, {x.size(0)});
  check_optional_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch<cpu::layer_norm_forward, cuda::layer_norm_forward>(call, y, mean, rstd, x, weight, bias,
                                                              epsilon);
}

void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream) {
  const KernelCall call{"layer_norm_backward", stream, Work::kNormalization};
  check_rank(call, {"x", x}, 2);
  check_matching_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_shape(call, {"weight", weight}, {x.size(1)});
  check_shape(call, {"dweight", dweight}, {x.size(1)});
  check_shape(call, {"dbias", dbias}, {x.size(1)});
  check_shape(call, {"mean", mean}, {x.size(0)});
  check_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch_with_workspace<cpu::layer_norm_backward, cuda::layer_norm_backward>(
      call, dx, input_mode, dweight, dbias, parameter_mode, dy, x, mean, rstd, weight);
}

void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                      RmsNormSpec spec, const Stream& stream) {
  const KernelCall call{"rms_norm_forward", stream, Work::kNormalization};
  check_rank(call, {"x", x}, 2);
  check_matching_real(call, {{"x", x}, {"y", y}});
  check_shape(call, {"weight", weight}, {x.size(1)});
  check_optional_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch<cpu::rms_norm_forward, cuda::rms_norm_forward>(call, y, rstd, x, weight, spec);
}

void rms_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                       GradientMode parameter_mode, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, RmsNormSpec spec,
                       const Stream& stream) {
  const KernelCall call{"rms_norm_backward", stream, Work::kNormalization};
  check_rank(call, {"x", x}, 2);
  check_matching_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_shape(call, {"weight", weight}, {x.size(1)});
  check_shape(call, {"dweight", dweight}, {x.size(1)});
  check_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch_with_workspace<cpu::rms_norm_backward, cuda::rms_norm_backward>(
      call, dx, input_mode, dweight, parameter_mode, dy, x, rstd, weight, spec);
}

namespace {

void check_heads(const KernelCall& call, const Tensor& x, HeadRange heads, const Tensor& weight) {
  check_real(call, {"x", x}, 3);
  check_rank(call, {"weight", weight}, 1, DType::kF32);
  if (heads.first < 0 || heads.count < 0 ||
      (heads.first + heads.count) * weight.size(0) > x.size(2)) {
    throw_mismatch(call, "x is ", x.shape().text(), ", heads are ", heads.first, " to ",
                   heads.first + heads.count - 1, ", weight is ", weight.shape().text(),
                   "; want rows of x that contain all heads");
  }
}

void check_gate(const KernelCall& call, const Tensor& x, const Tensor& gate, std::int64_t first,
                const Tensor& weight, const GatedNormSpec& spec) {
  check_real(call, {"x", x}, 2);
  check_rank(call, {"gate", gate}, 2);
  check_shape(call, {"gate", gate}, {x.size(0), gate.size(1)}, x.dtype());
  check_rank(call, {"weight", weight}, 1, DType::kF32);
  const std::int64_t columns = x.size(1), gains = weight.size(0);
  if (first < 0 || first + columns > gate.size(1))
    throw_mismatch(call, "x is ", x.shape().text(), ", gate is ", gate.shape().text(),
                   ", from column ", first, "; want one gate per column of x");
  if (spec.groups < 1 || columns % spec.groups != 0 ||
      (gains != columns && gains != columns / spec.groups)) {
    throw_mismatch(call, "x is ", x.shape().text(), ", weight is ", weight.shape().text(),
                   ", groups are ", spec.groups,
                   "; want a number of groups that divides the columns, and one weight "
                   "per column of a row or of a group");
  }
}

void check_groups(const KernelCall& call, const Tensor& x, std::int64_t groups) {
  check_real(call, {"x", x}, 3);
  if (x.elements() == 0)
    throw_mismatch(call, "x is ", x.shape().text(), ", want at least one element");
  if (groups < 1 || x.size(2) % groups != 0)
    throw_mismatch(call, "x is ", x.shape().text(), ", with ", x.size(2), " channels in ", groups,
                   " groups; want a number of groups that divides the channels");
}

}  // namespace

void rms_norm_heads_forward(const Tensor& x, HeadRange heads, const Tensor& weight,
                            RmsNormSpec spec, const Stream& stream) {
  const KernelCall call{"rms_norm_heads_forward", stream, Work::kNormalization};
  check_heads(call, x, heads, weight);
  dispatch<cpu::rms_norm_heads_forward, cuda::rms_norm_heads_forward>(call, x, heads, weight, spec);
}

void rms_norm_heads_backward(const Tensor& dx, const Tensor& dweight, GradientMode parameter_mode,
                             const Tensor& x, HeadRange heads, const Tensor& weight,
                             RmsNormSpec spec, const Stream& stream) {
  const KernelCall call{"rms_norm_heads_backward", stream, Work::kNormalization};
  check_heads(call, x, heads, weight);
  check_matching(call, {{"x", x}, {"dx", dx}});
  check_matching(call, {{"weight", weight}, {"dweight", dweight}});
  dispatch_with_workspace<cpu::rms_norm_heads_backward, cuda::rms_norm_heads_backward>(
      call, dx, dweight, parameter_mode, x, heads, weight, spec);
}

void gated_norm_forward(const Tensor& y, const Tensor& x, const Tensor& gate, std::int64_t first,
                        const Tensor& weight, GatedNormSpec spec, const Stream& stream) {
  const KernelCall call{"gated_norm_forward", stream, Work::kNormalization};
  check_gate(call, x, gate, first, weight, spec);
  check_matching(call, {{"x", x}, {"y", y}});
  dispatch<cpu::gated_norm_forward, cuda::gated_norm_forward>(call, y, x, gate, first, weight,
                                                              spec);
}

void gated_norm_backward(const Tensor& dx, const Tensor& dgate, const Tensor& dweight,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& gate,
                         std::int64_t first, const Tensor& weight, GatedNormSpec spec,
                         const Stream& stream) {
  const KernelCall call{"gated_norm_backward", stream, Work::kNormalization};
  check_gate(call, x, gate, first, weight, spec);
  check_matching(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_matching(call, {{"gate", gate}, {"dgate", dgate}});
  check_matching(call, {{"weight", weight}, {"dweight", dweight}});
  dispatch_with_workspace<cpu::gated_norm_backward, cuda::gated_norm_backward>(
      call, dx, dgate, dweight, mode, dy, x, gate, first, weight, spec);
}

void group_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, std::int64_t groups,
                        float epsilon, const Stream& stream) {
  const KernelCall call{"group_norm_forward", stream, Work::kNormalization};
  check_groups(call, x, groups);
  check_matching(call, {{"x", x}, {"y", y}});
  check_shape(call, {"weight", weight}, {x.size(2)}, DType::kF32);
  check_shape(call, {"bias", bias}, {x.size(2)}, DType::kF32);
  for (const NamedTensor& statistics : {NamedTensor{"mean", mean}, NamedTensor{"rstd", rstd}})
    if (statistics.tensor) check_shape(call, statistics, {x.size(0), groups}, DType::kF32);
  dispatch_with_workspace<cpu::group_norm_forward, cuda::group_norm_forward>(
      call, y, mean, rstd, x, weight, bias, groups, epsilon);
}

void group_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& weight, const Stream& stream) {
  const KernelCall call{"group_norm_backward", stream, Work::kNormalization};
  check_rank(call, {"mean", mean}, 2);
  check_groups(call, x, mean.size(1));
  check_matching(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_shape(call, {"mean", mean}, {x.size(0), mean.size(1)}, DType::kF32);
  check_matching(call, {{"mean", mean}, {"rstd", rstd}});
  check_shape(call, {"weight", weight}, {x.size(2)}, DType::kF32);
  check_matching(call, {{"weight", weight}, {"dweight", dweight}, {"dbias", dbias}});
  dispatch_with_workspace<cpu::group_norm_backward, cuda::group_norm_backward>(
      call, dx, dweight, dbias, mode, dy, x, mean, rstd, weight);
}

}  // namespace hybrid_trainer::kernels
