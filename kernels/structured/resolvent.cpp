#include "kernels/backend/dispatch.h"
#include "kernels/generated/structured.h"

namespace hybrid_trainer::kernels {

namespace {

Shape off_diagonal_of(const Tensor& g) {
  return {std::max<std::int64_t>(g.size(1) - 1, 0), g.size(2) / 2};
}

void check_off_diagonals(const KernelCall& call, const NamedTensor& above, const NamedTensor& below,
                         const Tensor& g, DType real) {
  if (above.tensor.defined() != below.tensor.defined())
    throw Error(ExitCode::kInternal, concat(call.kernel, ": got only one of ", above.name, " and ",
                                            below.name, "; want both or neither"));
  if (!above.tensor) return;
  check_shape(call, above, off_diagonal_of(g), real);
  check_shape(call, below, off_diagonal_of(g), real);
}

/// Checks the arguments. Returns the dtype of sums.
DType check_resolvent(const KernelCall& call, const NamedTensor& result,
                      const ResolventInput& input, const ResolventSpec& spec) {
  const Tensor& g = result.tensor;
  const Tensor& values = input.values;
  check_rank(call, {"values", values}, 3);
  if (values.dtype() != DType::kF64) check_real(call, {"values", values});
  check_rank(call, result, 3);
  check_shape(call, result, {values.size(0), values.size(1), g.size(2) / 2 * 2}, values.dtype());
  if (input.first < 0 || input.first + g.size(2) / 2 > values.size(2))
    throw_mismatch(call, "v has the columns [", input.first, ", ", input.first + g.size(2) / 2,
                   "), but the number of columns is ", values.size(2));
  const DType real = values.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  check_off_diagonals(call, {"above", input.above}, {"below", input.below}, g, real);
  if (input.positions)
    check_shape(call, {"positions", input.positions}, {values.size(0), values.size(1)},
                DType::kI32);
  if (!(spec.z.imag() != 0))
    throw Error(ExitCode::kConfig,
                concat(call.kernel, ": z = ", spec.z.real(), " + ", spec.z.imag(),
                       "i has no imaginary part, so T − z·I may be singular; want a nonzero "
                       "imaginary part, such as z = 1i"));
  return real;
}

}  // namespace

void resolvent_forward(const Tensor& g, const ResolventInput& input, const ResolventSpec& spec,
                       const Stream& stream) {
  const KernelCall call{"resolvent_forward", stream, Work::kElementwise};
  check_resolvent(call, {"g", g}, input, spec);
  dispatch_with_workspace<cpu::resolvent_forward, cuda::resolvent_forward>(call, g, input, spec);
}

void resolvent_backward(const ResolventGradients& gradients, const Tensor& dg,
                        const ResolventInput& input, const ResolventSpec& spec,
                        const Stream& stream) {
  const KernelCall call{"resolvent_backward", stream, Work::kElementwise};
  const DType real = check_resolvent(call, {"dg", dg}, input, spec);
  check_off_diagonals(call, {"dabove", gradients.above}, {"dbelow", gradients.below}, dg, real);
  if (gradients.values)
    check_matching(call, {{"values", input.values}, {"dvalues", gradients.values}});
  if (gradients.z) check_shape(call, {"dz", gradients.z}, {2}, real);
  dispatch_with_workspace<cpu::resolvent_backward, cuda::resolvent_backward>(call, gradients, dg,
                                                                             input, spec);
}

}  // namespace hybrid_trainer::kernels
