#include "kernels/backend/dispatch.h"
#include "kernels/generated/experts.h"

namespace hybrid_trainer::kernels {

namespace {

void check_groups(const KernelCall& call, const GroupedRows& rows, std::size_t count) {
  check_rank(call, {"offsets", rows.offsets}, 1, DType::kI32);
  const std::int64_t groups = rows.offsets.size(0) - 1;
  if (rows.first >= 0 && rows.first + static_cast<std::int64_t>(count) <= groups) return;
  throw_mismatch(call, "got matrices for the groups ", rows.first, " to ",
                 rows.first + static_cast<std::int64_t>(count) - 1, ", but offsets for ", groups,
                 " groups");
}

void check_all(const KernelCall& call, const char* name, std::span<const Tensor> tensors,
               const Shape& shape, DType dtype) {
  for (const Tensor& tensor : tensors) check_shape(call, {name, tensor}, shape, dtype);
}

/// Checks x or dx (R, I), y or dy (R, O), and all w (O, I). All must have one dtype.
void check_products(const KernelCall& call, const NamedTensor& inputs, const NamedTensor& outputs,
                    const GroupedRows& rows, std::span<const Tensor> w) {
  check_groups(call, rows, w.size());
  check_real(call, inputs, 2);
  check_rank(call, outputs, 2);
  check_shape(call, outputs, {inputs.tensor.size(0), outputs.tensor.size(1)},
              inputs.tensor.dtype());
  check_all(call, "w", w, {outputs.tensor.size(1), inputs.tensor.size(1)}, inputs.tensor.dtype());
}

}  // namespace

void grouped_forward(const Tensor& y, const Tensor& x, const GroupedRows& rows,
                     std::span<const Tensor> w, std::span<const Tensor> biases, GradientMode mode,
                     const Stream& stream) {
  const KernelCall call{"grouped_forward", stream, Work::kProduct};
  check_products(call, {"x", x}, {"y", y}, rows, w);
  check_all(call, "bias", biases, {y.size(1)}, DType::kF32);
  if (!biases.empty() && biases.size() != w.size())
    throw_mismatch(call, "got ", biases.size(), " biases for ", w.size(),
                   " matrices; want one for each, or none");
  dispatch_with_workspace<cpu::grouped_forward, cuda::grouped_forward>(call, y, x, rows, w, biases,
                                                                       mode);
}

void grouped_backward_input(const Tensor& dx, const Tensor& dy, const GroupedRows& rows,
                            std::span<const Tensor> w, GradientMode mode, const Stream& stream) {
  const KernelCall call{"grouped_backward_input", stream, Work::kProduct};
  check_products(call, {"dx", dx}, {"dy", dy}, rows, w);
  dispatch_with_workspace<cpu::grouped_backward_input, cuda::grouped_backward_input>(call, dx, dy,
                                                                                     rows, w, mode);
}

void grouped_backward_weight(std::span<const Tensor> dw, const Tensor& dy, const Tensor& x,
                             const GroupedRows& rows, GradientMode mode, const Stream& stream) {
  const KernelCall call{"grouped_backward_weight", stream, Work::kProduct};
  if (dw.empty()) return;
  check_groups(call, rows, dw.size());
  check_real(call, {"x", x}, 2);
  check_rank(call, {"dy", dy}, 2);
  check_shape(call, {"dy", dy}, {x.size(0), dy.size(1)}, x.dtype());
  const DType dtype = dw.front().dtype();
  if (dtype != DType::kF32) check_dtype(call, {"dw", dw.front()}, x.dtype());
  check_all(call, "dw", dw, {dy.size(1), x.size(1)}, dtype);
  dispatch_with_workspace<cpu::grouped_backward_weight, cuda::grouped_backward_weight>(
      call, dw, dy, x, rows, mode);
}

void grouped_bias_backward(std::span<const Tensor> dbiases, const Tensor& dy, const Tensor& factors,
                           const GroupedRows& rows, GradientMode mode, const Stream& stream) {
  const KernelCall call{"grouped_bias_backward", stream, Work::kElementwise};
  check_groups(call, rows, dbiases.size());
  check_real(call, {"dy", dy}, 2);
  if (factors) check_shape(call, {"factors", factors}, {dy.size(0)}, DType::kF32);
  check_all(call, "dbias", dbiases, {dy.size(1)}, DType::kF32);
  dispatch<cpu::grouped_bias_backward, cuda::grouped_bias_backward>(call, dbiases, dy, factors,
                                                                    rows, mode);
}

void grouped_dots(const Tensor& sums, const Tensor& x, const GroupedRows& rows,
                  std::span<const Tensor> vectors, const Stream& stream) {
  const KernelCall call{"grouped_dots", stream, Work::kElementwise};
  check_groups(call, rows, vectors.size());
  check_real(call, {"x", x}, 2);
  check_shape(call, {"sums", sums}, {x.size(0)}, DType::kF32);
  check_all(call, "vector", vectors, {x.size(1)}, DType::kF32);
  dispatch<cpu::grouped_dots, cuda::grouped_dots>(call, sums, x, rows, vectors);
}

}  // namespace hybrid_trainer::kernels
