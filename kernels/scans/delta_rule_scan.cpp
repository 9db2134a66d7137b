#include "kernels/backend/dispatch.h"
#include "kernels/generated/scans.h"

namespace hybrid_trainer::kernels {

namespace {

void check_delta_rule_spec(const KernelCall& call, const DeltaRuleSpec& spec) {
  if (spec.key_heads >= 1 && spec.value_heads >= 1 && spec.value_heads % spec.key_heads == 0 &&
      spec.key_size >= 1 && spec.value_size >= 1)
    return;
  throw_mismatch(
      call, "got ", spec.key_heads, " key heads of size ", spec.key_size, " and ", spec.value_heads,
      " value heads of size ", spec.value_size,
      "; want sizes of at least 1, and value heads that are a multiple of the key heads");
}

void check_delta_rule_gates(const KernelCall& call, const NamedTensor& gates, const Tensor& qkv,
                            const DeltaRuleSpec& spec) {
  const int last = qkv.shape().rank() - 1;
  check_rank(call, gates, last + 1);
  const std::int64_t columns = gates.tensor.size(last);
  if (columns < 2 * spec.value_heads)
    throw_mismatch(call, gates.name, " is ", gates.tensor.shape().text(),
                   ", want a last dimension of ", 2 * spec.value_heads, " or more");
  const Shape wanted =
      last == 1 ? Shape{qkv.size(0), columns} : Shape{qkv.size(0), qkv.size(1), columns};
  check_shape(call, gates, wanted, qkv.dtype());
}

/// Checks qkv, which must have rank `rank`, the gates, and the parameters of each value head.
void check_delta_rule_tokens(const KernelCall& call, const Tensor& qkv, int rank,
                             const Tensor& gates, const Tensor& log_rate, const Tensor& step_bias,
                             const DeltaRuleSpec& spec) {
  check_delta_rule_spec(call, spec);
  check_real(call, {"qkv", qkv}, rank);
  const Shape wanted = rank == 2 ? Shape{qkv.size(0), spec.columns()}
                                 : Shape{qkv.size(0), qkv.size(1), spec.columns()};
  check_shape(call, {"qkv", qkv}, wanted);
  check_delta_rule_gates(call, {"gates", gates}, qkv, spec);
  check_shape(call, {"log_rate", log_rate}, {spec.value_heads}, DType::kF32);
  check_shape(call, {"step_bias", step_bias}, {spec.value_heads}, DType::kF32);
}

void check_delta_rule_state(const KernelCall& call, const NamedTensor& state, std::int64_t batch,
                            const DeltaRuleSpec& spec) {
  check_optional_shape(call, state, {batch, spec.value_heads, spec.key_size, spec.value_size},
                       DType::kF32);
}

/// Checks the input, and y or dy.
void check_delta_rule_input(const KernelCall& call, const NamedTensor& y,
                            const DeltaRuleInput& input, const DeltaRuleSpec& spec) {
  const Tensor& qkv = input.qkv;
  check_delta_rule_tokens(call, qkv, 3, input.gates, input.log_rate, input.step_bias, spec);
  check_delta_rule_state(call, {"first_state", input.first_state}, qkv.size(0), spec);
  check_optional_shape(call, {"positions", input.positions}, {qkv.size(0), qkv.size(1)},
                       DType::kI32);
  check_shape(call, y, {qkv.size(0), qkv.size(1), spec.values()}, qkv.dtype());
}

}  // namespace

void delta_rule_scan_forward(const Tensor& y, const Tensor& last_state, const DeltaRuleInput& input,
                             const DeltaRuleSpec& spec, const Stream& stream) {
  const KernelCall call{"delta_rule_scan_forward", stream, Work::kAttention};
  check_delta_rule_input(call, {"y", y}, input, spec);
  check_delta_rule_state(call, {"last_state", last_state}, input.qkv.size(0), spec);
  dispatch_with_workspace<cpu::delta_rule_scan_forward, cuda::delta_rule_scan_forward>(
      call, y, last_state, input, spec);
}

void delta_rule_scan_backward(const DeltaRuleGradients& gradients, const Tensor& dy,
                              const Tensor& dlast_state, const DeltaRuleInput& input,
                              const DeltaRuleSpec& spec, const Stream& stream) {
  const KernelCall call{"delta_rule_scan_backward", stream, Work::kAttention};
  check_delta_rule_input(call, {"dy", dy}, input, spec);
  check_delta_rule_state(call, {"dlast_state", dlast_state}, input.qkv.size(0), spec);
  check_delta_rule_state(call, {"gradients.first_state", gradients.first_state}, input.qkv.size(0),
                         spec);
  if (gradients.qkv) check_matching(call, {{"qkv", input.qkv}, {"gradients.qkv", gradients.qkv}});
  if (gradients.gates)
    check_matching(call, {{"gates", input.gates}, {"gradients.gates", gradients.gates}});
  const Shape heads{spec.value_heads};
  check_optional_shape(call, {"gradients.log_rate", gradients.log_rate}, heads, DType::kF32);
  check_optional_shape(call, {"gradients.step_bias", gradients.step_bias}, heads, DType::kF32);
  dispatch_with_workspace<cpu::delta_rule_scan_backward, cuda::delta_rule_scan_backward>(
      call, gradients, dy, dlast_state, input, spec);
}

void delta_rule_scan_step(const Tensor& y, const Tensor& state, const Tensor& qkv,
                          const Tensor& gates, const Tensor& log_rate, const Tensor& step_bias,
                          const Tensor& texts, const DeltaRuleSpec& spec, const Stream& stream) {
  const KernelCall call{"delta_rule_scan_step", stream, Work::kAttention};
  check_delta_rule_tokens(call, qkv, 2, gates, log_rate, step_bias, spec);
  check_shape(call, {"y", y}, {qkv.size(0), spec.values()}, qkv.dtype());
  check_rank(call, {"state", state}, 4);
  check_delta_rule_state(call, {"state", state}, state.size(0), spec);
  check_shape(call, {"texts", texts}, {qkv.size(0)}, DType::kI32);
  dispatch_with_workspace<cpu::delta_rule_scan_step, cuda::delta_rule_scan_step>(
      call, y, state, qkv, gates, log_rate, step_bias, texts, spec);
}

}  // namespace hybrid_trainer::kernels
