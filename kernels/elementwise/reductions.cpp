#include "kernels/generated/reductions.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

namespace {

void check_result(const KernelCall& call, const Tensor& result) {
  check_shape(call, {"result", result}, {1}, DType::kF64);
}

}  // namespace

void chunk_dots(const Tensor& results, const Tensor& x, const Tensor& y, const Stream& stream) {
  const KernelCall call{"chunk_dots", stream, Work::kReduction};
  check_dtype(call, {"results", results}, DType::kF64);
  check_shape(call, {"results", results}, {dot_chunks(x.elements())});
  check_matching_real(call, {{"x", x}, {"y", y}});
  dispatch<cpu::chunk_dots, cuda::chunk_dots>(call, results, x, y);
}

void dot(const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y,
         const Tensor& sums, const Stream& stream) {
  const KernelCall call{"dot", stream, Work::kReduction};
  check_result(call, result);
  require(x.size() == y.size(), "dot: x and y must have the same number of tensors");
  std::int64_t chunks = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    check_real(call, {"x", x[k]});
    check_matching(call, {{"x", x[k]}, {"y", y[k]}});
    chunks += dot_chunks(x[k].elements());
  }
  if (sums) check_shape(call, {"sums", sums}, {chunks}, DType::kF64);
  dispatch<cpu::dot, cuda::dot>(call, result, x, y, sums);
}

void sum_of_squares(const Tensor& result, std::span<const Tensor> x, const Stream& stream) {
  dot(result, x, x, {}, stream);
}

void quotient(const Tensor& result, const Tensor& x, double divisor, const Stream& stream) {
  const KernelCall call{"quotient", stream, Work::kReduction};
  check_result(call, result);
  check_dtype(call, {"x", x}, DType::kF32);
  require(x.elements() > 0, "quotient: x has no elements");
  dispatch<cpu::quotient, cuda::quotient>(call, result, x, divisor);
}

Tensor empty_result(const Stream& stream) {
  return Tensor::empty({1}, DType::kF64, MemoryKind::kWorkspace, stream);
}

double wait_for_value(const Tensor& result, const Stream& stream) {
  const KernelCall call{"wait_for_value", stream, Work::kElementwise};
  check_result(call, result);
  return *wait_for_host(result, stream).data<double>();
}

double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) {
  const Tensor result = empty_result(stream);
  dot(result, {&x, 1}, {&y, 1}, {}, stream);
  return wait_for_value(result, stream);
}

double wait_for_sum_of_squares(const Tensor& x, const Stream& stream) {
  return wait_for_dot(x, x, stream);
}

}  // namespace hybrid_trainer::kernels
