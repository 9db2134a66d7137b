#include "kernels/backend/dispatch.h"
#include "kernels/generated/scans.h"

namespace hybrid_trainer::kernels {

namespace {

void check_spec(const KernelCall& call, const StateSpaceSpec& spec) {
  if (spec.heads < 1 || spec.head_size < 1 || spec.groups < 1 || spec.state_size < 1 ||
      spec.heads % spec.groups != 0) {
    throw_mismatch(call, "got ", spec.heads, " heads of size ", spec.head_size, " in ", spec.groups,
                   " groups of state size ", spec.state_size,
                   "; want a number of groups that divides the heads, and sizes of at least 1");
  }
  if (!(spec.least_step >= 0) || !(spec.most_step >= spec.least_step))
    throw_mismatch(call, "the step limits are ", spec.least_step, " and ", spec.most_step,
                   "; want 0 <= least <= most");
}

/// Checks steps and their decay parameters. Either all of them must be defined, or none.
void check_decay(const KernelCall& call, const Tensor& steps, const Tensor& values,
                 const StateSpaceDecay& decay, const StateSpaceSpec& spec) {
  if (steps.defined() != decay.log_rate.defined() || steps.defined() != decay.step_bias.defined())
    throw Error(
        ExitCode::kInternal,
        concat(
            call.kernel,
            ": only some of steps, log_rate and step_bias are defined; want all or none of them"));
  if (!steps) return;
  check_shape(call, {"log_rate", decay.log_rate}, {spec.heads}, DType::kF32);
  check_shape(call, {"step_bias", decay.step_bias}, {spec.heads}, DType::kF32);
  const int rank = values.shape().rank();
  check_rank(call, {"steps", steps}, rank);
  const std::int64_t width = std::max(steps.size(rank - 1), spec.heads);
  check_shape(
      call, {"steps", steps},
      rank == 2 ? Shape{values.size(0), width} : Shape{values.size(0), values.size(1), width},
      values.dtype());
}

void check_state(const KernelCall& call, const NamedTensor& state, const Tensor& values,
                 const StateSpaceSpec& spec) {
  check_optional_shape(call, state, {values.size(0), spec.heads, spec.head_size, spec.state_size},
                       DType::kF32);
}

/// Checks the input, and y or dy.
void check_input(const KernelCall& call, const NamedTensor& y, const StateSpaceInput& input,
                 const StateSpaceDecay& decay, const StateSpaceSpec& spec) {
  check_spec(call, spec);
  const Tensor& values = input.values;
  check_real(call, {"values", values}, 3);
  check_shape(call, {"values", values}, {values.size(0), values.size(1), spec.columns()});
  check_decay(call, input.steps, values, decay, spec);
  check_optional_shape(call, {"skip", input.skip}, {spec.heads}, DType::kF32);
  check_optional_shape(call, {"positions", input.positions}, {values.size(0), values.size(1)},
                       DType::kI32);
  check_shape(call, y, {values.size(0), values.size(1), spec.values()}, values.dtype());
  check_state(call, {"first_state", input.first_state}, values, spec);
}

void check_gradients(const KernelCall& call, const StateSpaceGradients& gradients,
                     const StateSpaceInput& input, const StateSpaceSpec& spec) {
  if (gradients.values)
    check_matching(call, {{"values", input.values}, {"dvalues", gradients.values}});
  if (gradients.steps) check_matching(call, {{"steps", input.steps}, {"dsteps", gradients.steps}});
  check_optional_shape(call, {"dskip", gradients.skip}, {spec.heads}, DType::kF32);
  check_optional_shape(call, {"dlog_rate", gradients.log_rate}, {spec.heads}, DType::kF32);
  check_optional_shape(call, {"dstep_bias", gradients.step_bias}, {spec.heads}, DType::kF32);
  check_state(call, {"dfirst_state", gradients.first_state}, input.values, spec);
}

}  // namespace

void state_space_scan_forward(const Tensor& y, const Tensor& last_state,
                              const StateSpaceInput& input, const StateSpaceDecay& decay,
                              const StateSpaceSpec& spec, const Stream& stream) {
  const KernelCall call{"state_space_scan_forward", stream, Work::kAttention};
  check_input(call, {"y", y}, input, decay, spec);
  check_state(call, {"last_state", last_state}, input.values, spec);
  dispatch_with_workspace<cpu::state_space_scan_forward, cuda::state_space_scan_forward>(
      call, y, last_state, input, decay, spec);
}

void state_space_scan_backward(const StateSpaceGradients& gradients, const Tensor& dy,
                               const Tensor& dlast_state, const StateSpaceInput& input,
                               const StateSpaceDecay& decay, const StateSpaceSpec& spec,
                               const Stream& stream) {
  const KernelCall call{"state_space_scan_backward", stream, Work::kAttention};
  check_input(call, {"dy", dy}, input, decay, spec);
  check_state(call, {"dlast_state", dlast_state}, input.values, spec);
  check_gradients(call, gradients, input, spec);
  dispatch_with_workspace<cpu::state_space_scan_backward, cuda::state_space_scan_backward>(
      call, gradients, dy, dlast_state, input, decay, spec);
}

void state_space_scan_step(const Tensor& y, const Tensor& state, const Tensor& values,
                           const Tensor& steps, const Tensor& skip, const StateSpaceDecay& decay,
                           const Tensor& texts, const StateSpaceSpec& spec, const Stream& stream) {
  const KernelCall call{"state_space_scan_step", stream, Work::kAttention};
  check_spec(call, spec);
  require(!spec.reversed,
          "state_space_scan_step: cannot generate text in reverse; want reversed false");
  check_real(call, {"values", values}, 2);
  check_shape(call, {"values", values}, {values.size(0), spec.columns()});
  check_decay(call, steps, values, decay, spec);
  if (skip) check_shape(call, {"skip", skip}, {spec.heads}, DType::kF32);
  check_shape(call, {"y", y}, {values.size(0), spec.values()}, values.dtype());
  check_rank(call, {"state", state}, 4);
  check_shape(call, {"state", state}, {state.size(0), spec.heads, spec.head_size, spec.state_size},
              DType::kF32);
  check_shape(call, {"texts", texts}, {values.size(0)}, DType::kI32);
  dispatch<cpu::state_space_scan_step, cuda::state_space_scan_step>(call, y, state, values, steps,
                                                                    skip, decay, texts, spec);
}

}  // namespace hybrid_trainer::kernels
