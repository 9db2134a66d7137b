#include <numeric>

#include "hybrid_trainer/nn/mixers.h"

namespace hybrid_trainer {

namespace {

std::vector<std::int64_t> parts_of(const kernels::DeltaRuleSpec& scan) {
  return {scan.columns(), scan.values(), scan.value_heads, scan.value_heads};
}

std::int64_t sum_of(const std::vector<std::int64_t>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
}

}  // namespace

DeltaRuleMixer::DeltaRuleMixer(const ModuleName& name, const Spec& spec, const Stream& stream)
    : RecurrentMixer(
          name, Linear(name / "c_in", spec.width, sum_of(parts_of(spec.scan)), stream, false),
          Linear(name / "c_proj", spec.scan.values(), spec.width, stream, false),
          {.channels = spec.scan.columns(), .taps = spec.taps},
          {.epsilon = spec.norm_epsilon, .groups = spec.scan.value_heads, .norm_first = true},
          spec.scan.columns(), spec.scan.value_size, stream),
      scan_(spec.scan),
      log_rate_(name / "A_log", {spec.scan.value_heads}, Role::kVector, stream),
      step_bias_(name / "dt_bias", {spec.scan.value_heads}, Role::kVector, stream) {
  set_files(name, spec.files, parts_of(spec.scan));
}

Tensor DeltaRuleMixer::scan(const Tensor& convolved, const Tensor& product, const States& states,
                            const Pass& pass, const Stream& stream) {
  Tensor y = Tensor::empty({convolved.size(0), convolved.size(1), scan_.values()},
                           convolved.dtype(), MemoryKind::kActivations, stream);
  kernels::delta_rule_scan_forward(
      y, states.last,
      {convolved, product, log_rate_.acquire_master(stream), step_bias_.acquire_master(stream),
       states.first, pass.positions},
      scan_, stream);
  return y;
}

Tensor DeltaRuleMixer::scan_backward(const Tensor& dproduct, const Tensor& dy,
                                     const Tensor& convolved, const Tensor& product,
                                     const StateGradients& states, const Pass& pass,
                                     const Stream& stream) {
  const Tensor dconvolved = Tensor::empty_like(convolved, MemoryKind::kActivations, stream);
  GradientContribution drate(log_rate_, stream), dbias(step_bias_, stream);
  const kernels::GradientMode mode = drate.next_mode();
  kernels::delta_rule_scan_backward(
      {.qkv = dconvolved,
       .gates = dproduct,
       .log_rate = drate.gradient(),
       .step_bias = dbias.gradient(),
       .first_state = states.dfirst,
       .mode = mode},
      dy, states.dlast,
      {convolved, product, log_rate_.acquire_master(stream), step_bias_.acquire_master(stream),
       states.first, pass.positions},
      scan_, stream);
  return dconvolved;
}

Tensor DeltaRuleMixer::scan_step(const Tensor& states, const Tensor& convolved,
                                 const Tensor& product, const Tensor& texts, const Stream& stream) {
  Tensor y = Tensor::empty({convolved.size(0), scan_.values()}, convolved.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::delta_rule_scan_step(y, states, convolved, product, log_rate_.acquire_master(stream),
                                step_bias_.acquire_master(stream), texts, scan_, stream);
  return y;
}

/// Counts for chunks of Q = 64 tokens: K·Kᵀ, Q·Kᵀ and the products with a chunk's triangles, all
/// half used; the inverse; and three products with the state.
double DeltaRuleMixer::scan_flops() const {
  constexpr double kChunk = 64;
  const auto keys = static_cast<double>(scan_.key_size),
             values = static_cast<double>(scan_.value_size);
  const double head = 6 * keys * values + kChunk * (3 * keys + 2 * values) + kChunk * kChunk / 3;
  return static_cast<double>(scan_.value_heads) * head;
}

void DeltaRuleMixer::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                                const Stream& stream) {
  RecurrentMixer::initialize(deviations, seed, stream);
  initialize_log_rates(log_rate_, seed, stream);
  initialize_step_biases(step_bias_, seed, stream);
}

}  // namespace hybrid_trainer
