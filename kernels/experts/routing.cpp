#include "kernels/backend/dispatch.h"
#include "kernels/generated/experts.h"

namespace hybrid_trainer::kernels {

namespace {

/// Checks that the tensors of a routing agree on N tokens, k pairs per token, and E experts.
void check_routing(const KernelCall& call, const Routing& routing) {
  check_rank(call, {"experts", routing.experts}, 2);
  check_rank(call, {"offsets", routing.offsets}, 1);
  const Shape& pairs = routing.experts.shape();
  check_shape(call, {"experts", routing.experts}, pairs, DType::kI32);
  check_shape(call, {"weights", routing.weights}, pairs, DType::kF32);
  check_shape(call, {"places", routing.places}, pairs, DType::kI32);
  check_shape(call, {"pairs", routing.pairs}, {pairs.elements()}, DType::kI32);
  check_dtype(call, {"offsets", routing.offsets}, DType::kI32);
  if (routing.is_token) check_shape(call, {"is_token", routing.is_token}, {pairs[0]}, DType::kI32);
}

void check_logits(const KernelCall& call, const NamedTensor& logits, const Routing& routing) {
  check_routing(call, routing);
  check_shape(call, logits, {routing.experts.size(0), routing.offsets.size(0) - 1});
  check_real(call, logits);
}

void check_spec(const KernelCall& call, const Routing& routing, const RoutingSpec& spec) {
  const Shape wanted{routing.experts.size(0), spec.chosen};
  check_shape(call, {"experts", routing.experts}, wanted);
  check_shape(call, {"offsets", routing.offsets}, {spec.experts + 1});
  const bool are_groups = spec.groups >= 1 && spec.experts % spec.groups == 0 &&
                          spec.chosen_groups >= 1 && spec.chosen_groups <= spec.groups;
  if (!are_groups || spec.chosen < 1 ||
      spec.chosen > spec.experts / spec.groups * spec.chosen_groups) {
    throw_mismatch(call, "got ", spec.chosen, " of ", spec.experts, " experts in ",
                   spec.chosen_groups, " of ", spec.groups,
                   " groups; want groups of equal size, and at least as many experts "
                   "in the chosen groups as are chosen");
  }
}

void check_rows(const KernelCall& call, const NamedTensor& rows, const Routing& routing) {
  check_real(call, rows, 2);
  check_shape(call, rows, {routing.pairs.size(0), rows.tensor.size(1)});
}

}  // namespace

Routing Routing::empty(std::int64_t tokens, const RoutingSpec& spec, const Stream& stream) {
  const auto make = [&](const Shape& shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryKind::kActivations, stream);
  };
  const Shape pairs{tokens, spec.chosen};
  return {.experts = make(pairs, DType::kI32),
          .weights = make(pairs, DType::kF32),
          .places = make(pairs, DType::kI32),
          .pairs = make({pairs.elements()}, DType::kI32),
          .offsets = make({spec.experts + 1}, DType::kI32)};
}

void route(const Routing& routing, const Tensor& logits, const Tensor& selection_bias,
           const RoutingSpec& spec, const Stream& stream) {
  const KernelCall call{"route", stream, Work::kElementwise};
  check_logits(call, {"logits", logits}, routing);
  check_spec(call, routing, spec);
  check_optional_shape(call, {"selection_bias", selection_bias}, {spec.experts}, DType::kF32);
  dispatch<cpu::route, cuda::route>(call, routing, logits, selection_bias, spec);
}

void route_backward(const Tensor& dlogits, const Tensor& logits, const Routing& routing,
                    const Tensor& dweights, const RoutingSpec& spec, const RoutingLosses& losses,
                    const Stream& stream) {
  const KernelCall call{"route_backward", stream, Work::kElementwise};
  check_logits(call, {"logits", logits}, routing);
  check_spec(call, routing, spec);
  check_matching(call, {{"logits", logits}, {"dlogits", dlogits}});
  check_matching(call, {{"weights", routing.weights}, {"dweights", dweights}});
  dispatch<cpu::route_backward, cuda::route_backward>(call, dlogits, logits, routing, dweights,
                                                      spec, losses);
}

void routing_statistics(const Tensor& sums, const Tensor& logits, const Routing& routing,
                        const Stream& stream) {
  const KernelCall call{"routing_statistics", stream, Work::kReduction};
  check_logits(call, {"logits", logits}, routing);
  check_shape(call, {"sums", sums}, {routing_numbers(logits.size(1))}, DType::kF64);
  dispatch_with_workspace<cpu::routing_statistics, cuda::routing_statistics>(call, sums, logits,
                                                                             routing);
}

void move_selection_bias(const Tensor& bias, const Tensor& counts, float rate,
                         const Stream& stream) {
  const KernelCall call{"move_selection_bias", stream, Work::kElementwise};
  check_shape(call, {"bias", bias}, {bias.elements()}, DType::kF32);
  check_shape(call, {"counts", counts}, {counts.size(0), counts.size(1)}, DType::kF64);
  if (counts.size(1) < bias.elements())
    throw ShapeMismatch(concat("move_selection_bias: counts is ", counts.shape().text(),
                               ", want at least ", bias.elements(), " columns"));
  dispatch<cpu::move_selection_bias, cuda::move_selection_bias>(call, bias, counts, rate);
}

void routing_flips(const Tensor& sums, const Routing& routing, const Routing& before,
                   const Stream& stream) {
  const KernelCall call{"routing_flips", stream, Work::kElementwise};
  check_routing(call, routing);
  check_shape(call, {"before", before.experts}, routing.experts.shape(), DType::kI32);
  check_shape(call, {"sums", sums}, {2}, DType::kF64);
  dispatch<cpu::routing_flips, cuda::routing_flips>(call, sums, routing, before);
}

void gather_tokens(const Tensor& rows, const Tensor& x, const Routing& routing,
                   const Stream& stream) {
  const KernelCall call{"gather_tokens", stream, Work::kElementwise};
  check_routing(call, routing);
  check_rows(call, {"rows", rows}, routing);
  check_shape(call, {"x", x}, {routing.experts.size(0), rows.size(1)}, rows.dtype());
  dispatch<cpu::gather_tokens, cuda::gather_tokens>(call, rows, x, routing);
}

void combine_rows(const Tensor& y, const Tensor& rows, const Tensor& weights,
                  const Tensor& residual, const Routing& routing, const Stream& stream) {
  const KernelCall call{"combine_rows", stream, Work::kElementwise};
  check_routing(call, routing);
  check_rows(call, {"rows", rows}, routing);
  check_shape(call, {"y", y}, {routing.experts.size(0), rows.size(1)}, rows.dtype());
  if (weights) check_shape(call, {"weights", weights}, routing.experts.shape(), DType::kF32);
  if (residual) check_matching(call, {{"y", y}, {"residual", residual}});
  dispatch<cpu::combine_rows, cuda::combine_rows>(call, y, rows, weights, residual, routing);
}

void weigh_rows(const Tensor& dweights, const Tensor& more, const Tensor& rows, const Tensor& drows,
                const Routing& routing, const Stream& stream) {
  const KernelCall call{"weigh_rows", stream, Work::kElementwise};
  check_routing(call, routing);
  check_rows(call, {"rows", rows}, routing);
  check_matching(call, {{"rows", rows}, {"drows", drows}});
  check_shape(call, {"dweights", dweights}, routing.experts.shape(), DType::kF32);
  if (more) check_shape(call, {"more", more}, {rows.size(0)}, DType::kF32);
  dispatch<cpu::weigh_rows, cuda::weigh_rows>(call, dweights, more, rows, drows, routing);
}

}  // namespace hybrid_trainer::kernels
