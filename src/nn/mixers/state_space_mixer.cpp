#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/nn/mixers.h"

namespace hybrid_trainer {

namespace {

std::int64_t product_rows(const kernels::StateSpaceSpec& scan) {
  return scan.values() + scan.columns() + scan.heads;
}

std::int64_t convolved_columns(const kernels::StateSpaceSpec& scan) {
  return 2 * scan.columns() - scan.values();
}

std::int64_t hydra_rows(const kernels::StateSpaceSpec& scan) {
  return scan.values() + convolved_columns(scan) + 2 * scan.heads;
}

Tensor rows_like(const Tensor& x, std::int64_t columns, const Stream& stream) {
  return Tensor::empty({x.size(0), x.size(1), columns}, x.dtype(), MemoryKind::kActivations,
                       stream);
}

[[noreturn]] void throw_looks_ahead() {
  throw Error(ExitCode::kConfig,
              "a Hydra mixer cannot generate text, because each of its tokens depends on later "
              "ones; use it in an encoder, as with objective masked");
}

}  // namespace

StateSpaceMixer::StateSpaceMixer(const ModuleName& name, const Spec& spec,
                                 std::int64_t rows_of_c_in,
                                 const TokenConvolution::Spec& convolution,
                                 const kernels::GatedNormSpec& norm, const Stream& stream)
    : RecurrentMixer(name, Linear(name / "c_in", spec.width, rows_of_c_in, stream, spec.biases),
                     Linear(name / "c_proj", spec.scan.values(), spec.width, stream, spec.biases),
                     convolution, norm, 0, spec.scan.values(), stream),
      scan_(spec.scan),
      log_rate_(name / "A_log", {spec.scan.heads}, Role::kVector, stream),
      skip_(name / "D", {spec.scan.heads}, Role::kVector, stream),
      step_bias_(name / "dt_bias", {spec.scan.heads}, Role::kVector, stream) {
  set_files(name, spec.files, {});
}

StateSpaceMixer::StateSpaceMixer(const ModuleName& name, const Spec& spec, const Stream& stream)
    : StateSpaceMixer(name, spec, product_rows(spec.scan),
                      {.first = spec.scan.values(),
                       .channels = spec.scan.columns(),
                       .taps = spec.taps,
                       .bias = spec.convolution_bias},
                      {.epsilon = spec.norm_epsilon, .groups = spec.scan.groups}, stream) {}

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

void StateSpaceMixer::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                                 const Stream& stream) {
  RecurrentMixer::initialize(deviations, seed, stream);
  initialize_log_rates(log_rate_, seed, stream);
  initialize_step_biases(step_bias_, seed, stream);
  initialize_constant(skip_, 1.0f, stream);
}

HydraMixer::HydraMixer(const ModuleName& name, const Spec& spec, const Stream& stream)
    : StateSpaceMixer(
          name, spec, hydra_rows(spec.scan),
          {.first = spec.scan.values(),
           .channels = convolved_columns(spec.scan),
           .taps = spec.taps,
           .bias = spec.convolution_bias,
           .sum = {.ahead = spec.taps / 2}},
          {.epsilon = spec.norm_epsilon, .groups = spec.scan.groups, .norm_first = true}, stream) {
  scan_.shifted = true;
}

HydraMixer::ScanInput HydraMixer::forwards(const Tensor& convolved, const Tensor& product,
                                           const Stream& stream) const {
  const Tensor values = rows_like(convolved, scan_.columns(), stream);
  kernels::copy_columns({values.as_rows(), 0}, {convolved.as_rows(), 0}, scan_.columns(), stream);
  return {scan_, values, product};
}

HydraMixer::ScanInput HydraMixer::backwards(const Tensor& convolved, const Tensor& product,
                                            const Stream& stream) const {
  const Tensor values = rows_like(convolved, scan_.columns(), stream),
               steps = rows_like(product, scan_.heads, stream);
  kernels::copy_columns({values.as_rows(), 0}, {convolved.as_rows(), 0}, scan_.values(), stream);
  kernels::copy_columns({values.as_rows(), scan_.values()}, {convolved.as_rows(), scan_.columns()},
                        keys(), stream);
  kernels::copy_columns({steps.as_rows(), 0},
                        {product.as_rows(), product.size(2) - 2 * scan_.heads}, scan_.heads,
                        stream);
  kernels::StateSpaceSpec spec = scan_;
  spec.reversed = true;
  return {spec, values, steps};
}

Tensor HydraMixer::scan(const Tensor& convolved, const Tensor& product, const States& states,
                        const Pass& pass, const Stream& stream) {
  if (states.last || states.first) throw_looks_ahead();
  const auto scanned = [&](const ScanInput& scan_input, const Tensor& skip) {
    Tensor y = rows_like(convolved, scan_.values(), stream);
    kernels::state_space_scan_forward(
        y, Tensor{}, {scan_input.values, scan_input.steps, skip, Tensor{}, pass.positions},
        {log_rate_.acquire_master(stream), step_bias_.acquire_master(stream)}, scan_input.spec,
        stream);
    return y;
  };
  Tensor y = scanned(forwards(convolved, product, stream), skip_.acquire_master(stream));
  kernels::add(y, y, scanned(backwards(convolved, product, stream), Tensor{}), stream);
  return y;
}

Tensor HydraMixer::scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                                 const Tensor& product, const StateGradients&, const Pass& pass,
                                 const Stream& stream) {
  GradientContribution dskip(skip_, stream), drate(log_rate_, stream), dbias(step_bias_, stream);
  const kernels::GradientMode mode = dskip.next_mode();
  const auto differentiate = [&](const ScanInput& scan_input, const Tensor& dsteps, bool is_first) {
    const Tensor dvalues = Tensor::empty_like(scan_input.values, MemoryKind::kActivations, stream);
    kernels::state_space_scan_backward(
        {.values = dvalues,
         .steps = dsteps,
         .skip = is_first ? dskip.gradient() : Tensor{},
         .log_rate = drate.gradient(),
         .step_bias = dbias.gradient(),
         .mode = is_first ? mode : kernels::GradientMode::kAccumulate},
        dy, Tensor{},
        {scan_input.values, scan_input.steps,
         is_first ? Tensor(skip_.acquire_master(stream)) : Tensor{}, Tensor{}, pass.positions},
        {log_rate_.acquire_master(stream), step_bias_.acquire_master(stream)}, scan_input.spec,
        stream);
    return dvalues;
  };
  const Tensor first = differentiate(forwards(convolved, product, stream), dproduct, true);
  const Tensor dsteps = rows_like(product, scan_.heads, stream);
  const Tensor second = differentiate(backwards(convolved, product, stream), dsteps, false);
  kernels::copy_columns({dproduct.as_rows(), product.size(2) - 2 * scan_.heads},
                        {dsteps.as_rows(), 0}, scan_.heads, stream);
  const Tensor dconvolved = Tensor::empty_like(convolved, MemoryKind::kActivations, stream);
  const Tensor x = rows_like(convolved, scan_.values(), stream),
               more = rows_like(convolved, scan_.values(), stream);
  const Tensor to = dconvolved.as_rows(), from = first.as_rows(), from_back = second.as_rows();
  kernels::copy_columns({x.as_rows(), 0}, {from, 0}, scan_.values(), stream);
  kernels::copy_columns({more.as_rows(), 0}, {from_back, 0}, scan_.values(), stream);
  kernels::add(x, x, more, stream);
  kernels::copy_columns({to, 0}, {x.as_rows(), 0}, scan_.values(), stream);
  kernels::copy_columns({to, scan_.values()}, {from, scan_.values()}, keys(), stream);
  kernels::copy_columns({to, scan_.columns()}, {from_back, scan_.values()}, keys(), stream);
  return dconvolved;
}

Tensor HydraMixer::scan_step(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                             const Stream&) {
  throw_looks_ahead();
}

/// Sets "A_log" to 0, so that all heads start with the same rate, as in Hydra.
void HydraMixer::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                            const Stream& stream) {
  StateSpaceMixer::initialize(deviations, seed, stream);
  initialize_constant(log_rate_, 0.0f, stream);
}

}  // namespace hybrid_trainer
