#include "hybrid_trainer/nn/state_space_mixer.h"
#include "src/nn/scan_flops.h"

namespace hybrid_trainer {
namespace {

std::int64_t product_rows(const kernels::StateSpaceSpec& scan) {
  return scan.values() + scan.columns() + scan.heads;
}

}  // namespace

StateSpaceMixer::StateSpaceMixer(const ModuleName& name, const Spec& spec, const Stream& stream)
    : RecurrentMixer(
          name, Linear(name / "c_in", spec.width, product_rows(spec.scan), stream, spec.biases),
          Linear(name / "c_proj", spec.scan.values(), spec.width, stream, spec.biases),
          {.first = spec.scan.values(),
           .channels = spec.scan.columns(),
           .taps = spec.taps,
           .bias = spec.convolution_bias},
          {.epsilon = spec.norm_epsilon, .groups = spec.scan.groups}, 0, spec.scan.values(),
          stream),
      scan_(spec.scan),
      log_rate_(name / "A_log", {spec.scan.heads}, Role::kVector, stream),
      skip_(name / "D", {spec.scan.heads}, Role::kVector, stream),
      step_bias_(name / "dt_bias", {spec.scan.heads}, Role::kVector, stream) {
  set_files(name, spec.files, {});
}

Tensor StateSpaceMixer::scan(const Tensor& convolved, const Tensor& product, const States& states,
                             const Pass& pass, const Stream& stream) {
  Tensor y = Tensor::empty({convolved.size(0), convolved.size(1), scan_.values()},
                           convolved.dtype(), MemoryKind::kActivations, stream);
  kernels::state_space_scan_forward(
      y, states.last,
      {convolved, product, skip_.acquire_master(stream), states.first, pass.positions},
      {log_rate_.acquire_master(stream), step_bias_.acquire_master(stream)}, scan_, stream);
  return y;
}

Tensor StateSpaceMixer::scan_backward(const Tensor& dproduct, const Tensor& dy,
                                      const Tensor& convolved, const Tensor& product,
                                      const StateGradients& states, const Pass& pass,
                                      const Stream& stream) {
  const Tensor dconvolved = Tensor::empty_like(convolved, MemoryKind::kActivations, stream);
  GradientContribution dskip(skip_, stream), drate(log_rate_, stream), dbias(step_bias_, stream);
  const kernels::GradientMode mode = dskip.next_mode();
  kernels::state_space_scan_backward(
      {.values = dconvolved,
       .steps = dproduct,
       .skip = dskip.gradient(),
       .log_rate = drate.gradient(),
       .step_bias = dbias.gradient(),
       .first_state = states.dfirst,
       .mode = mode},
      dy, states.dlast,
      {convolved, product, skip_.acquire_master(stream), states.first, pass.positions},
      {log_rate_.acquire_master(stream), step_bias_.acquire_master(stream)}, scan_, stream);
  return dconvolved;
}

Tensor StateSpaceMixer::scan_step(const Tensor& states, const Tensor& convolved,
                                  const Tensor& product, const Tensor& texts,
                                  const Stream& stream) {
  Tensor y = Tensor::empty({convolved.size(0), scan_.values()}, convolved.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::state_space_scan_step(
      y, states, convolved, product, skip_.acquire_master(stream),
      {log_rate_.acquire_master(stream), step_bias_.acquire_master(stream)}, texts, scan_, stream);
  return y;
}

Shape StateSpaceMixer::scan_state(std::int64_t texts) const {
  return {texts, scan_.heads, scan_.head_size, scan_.state_size};
}

double StateSpaceMixer::scan_flops() const { return scan_flops_of(scan_); }

void StateSpaceMixer::initialize(const FirstDeviations& deviations, std::uint64_t seed,
                                 const Stream& stream) {
  RecurrentMixer::initialize(deviations, seed, stream);
  initialize_log_rates(log_rate_, seed, stream);
  initialize_step_biases(step_bias_, seed, stream);
  initialize_constant(skip_, 1.0f, stream);
}

void StateSpaceMixer::visit_parameters(const ParameterVisitor& visit) {
  RecurrentMixer::visit_parameters(visit);
  for (Parameter* vector : {&log_rate_, &skip_, &step_bias_}) visit(*vector);
}

}  // namespace hybrid_trainer
