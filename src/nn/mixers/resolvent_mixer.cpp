#include "hybrid_trainer/nn/mixers.h"
#include "hybrid_trainer/nn/norm.h"

namespace hybrid_trainer {

ResolventMixer::ResolventMixer(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "c_in", spec.width, 3 * spec.potentials, stream, spec.biases),
                       Linear(name / "c_proj", 2 * spec.potentials, spec.width, stream,
                              spec.biases)},
      potentials_(spec.potentials),
      resolvent_{.z = {0, spec.imaginary}, .limit = spec.limit},
      norm_{.epsilon = spec.norm_epsilon},
      gain_(rms_norm_gain(name / "norm", 2 * spec.potentials, {spec.norm_epsilon}, stream)) {
  if (!(spec.imaginary > 0))
    throw Error(ExitCode::kConfig,
                concat("resolvent mixer: the imaginary part of z is ", spec.imaginary,
                       ", so T − z·I may be singular; want a value above 0, such as 1"));
  set_files(name, spec.files, {spec.potentials, 2 * spec.potentials});
}

Tensor ResolventMixer::rebuild(const Tensor& source, const Pass& pass, const Stream& stream) {
  Tensor diagonals = Tensor::empty({source.size(0), source.size(1), 2 * potentials_},
                                   source.dtype(), MemoryKind::kActivations, stream);
  kernels::resolvent_forward(diagonals, {.values = source, .positions = pass.positions}, resolvent_,
                             stream);
  return diagonals;
}

Tensor ResolventMixer::normed(const Tensor& diagonals, const Tensor& product,
                              const Stream& stream) {
  Tensor normal = Tensor::empty_like(diagonals, MemoryKind::kActivations, stream);
  kernels::gated_norm_forward(normal.as_rows(), diagonals.as_rows(), product.as_rows(), potentials_,
                              gain_.acquire_master(stream), norm_, stream);
  return normal;
}

Tensor ResolventMixer::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                               const Stream& stream) {
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor diagonals = rebuild(product, tape.pass(), stream);
  tape.save({ActivationRole::kPreActivation, product, true}, stream);
  tape.declare_rebuildable(diagonals, Rebuild::kAttended, product, *this);
  tape.save({ActivationRole::kAttentionOutput, diagonals, true}, stream);
  return projection_.product(normed(diagonals, product, stream), residual, tape.pass(), stream);
}

Tensor ResolventMixer::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor diagonals = tape.take(stream), product = tape.take(stream);
  const Tensor dproduct = Tensor::empty_like(product, MemoryKind::kActivations, stream),
               ddiagonals = Tensor::empty_like(diagonals, MemoryKind::kActivations, stream);
  {
    const LinearGradients gradients(projection_, dy.as_rows(),
                                    normed(diagonals, product, stream).as_rows(), tape.pass(),
                                    stream);
    gradients.write_input_gradient(ddiagonals.as_rows());
  }
  {
    GradientContribution dgain(gain_, stream);
    kernels::gated_norm_backward(ddiagonals.as_rows(), dproduct.as_rows(),
                                 dgain.gradient_or_scratch(), dgain.next_mode(),
                                 ddiagonals.as_rows(), diagonals.as_rows(), product.as_rows(),
                                 potentials_, gain_.acquire_master(stream), norm_, stream);
  }
  kernels::resolvent_backward({.values = dproduct}, ddiagonals,
                              {.values = product, .positions = tape.pass().positions}, resolvent_,
                              stream);
  return first_.backward(dproduct, tape, stream);
}

Tensor ResolventMixer::decode(const Tensor&, const Tensor&, const DecodeTexts&, BranchState*,
                              const Pass&, const Stream&) {
  throw Error(ExitCode::kConfig,
              "a BK mixer cannot generate text, because each of its tokens depends on later ones; "
              "use it in an encoder, as with objective masked");
}

}  // namespace hybrid_trainer
