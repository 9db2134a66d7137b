#include "hybrid_trainer/nn/norm.h"

namespace hybrid_trainer {

LayerNorm::LayerNorm(const ModuleName& name, std::int64_t width, float epsilon, bool has_bias,
                     const Stream& stream)
    : weight_(name / "weight", {width}, Role::kVector, stream),
      bias_(name / "bias", {width}, Role::kVector, stream),
      epsilon_(epsilon),
      has_bias_(has_bias) {
  initialize_constant(weight_, 1.0f, stream);
  if (!has_bias) bias_.freeze();
}

Tensor LayerNorm::normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd,
                             const Stream& stream) {
  const Shape rows{x.elements() / weight_.elements(), weight_.elements()};
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const auto normalize = [&](const Tensor& bias) {
    kernels::layer_norm_forward(y.view(rows), mean, rstd, x.view(rows),
                                weight_.acquire_master(stream), bias, epsilon_, stream);
  };
  if (has_bias_) {
    normalize(bias_.acquire_master(stream));
  } else {  // zeros: a frozen network stores only its own parameters
    normalize(Tensor::zeros(bias_.shape(), DType::kF32, MemoryKind::kWorkspace, stream));
  }
  return y;
}

Tensor LayerNorm::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const std::int64_t rows = x.elements() / weight_.elements();
  Tensor mean, rstd;
  if (tape.keeps()) {
    mean = Tensor::empty({rows}, DType::kF32, MemoryKind::kActivations, stream);
    rstd = Tensor::empty({rows}, DType::kF32, MemoryKind::kActivations, stream);
  }
  Tensor y = normalized(x, mean, rstd, stream);
  tape.save({ActivationRole::kNormInput, x}, stream);
  tape.save({ActivationRole::kStatistics, mean}, stream);
  tape.save({ActivationRole::kStatistics, rstd}, stream);
  tape.declare_rebuildable(y, Rebuild::kNormalized, x, *this);
  return y;
}

void LayerNorm::write_backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                               ActivationTape& tape, const Stream& stream) {
  const Tensor rstd = tape.take(stream), mean = tape.take(stream), x = tape.take(stream);
  const Shape rows{mean.elements(), weight_.elements()};
  GradientContribution dweight(weight_, stream), dbias(bias_, stream);
  const auto parameter_mode = (dweight.wanted() ? dweight : dbias).next_mode();
  kernels::layer_norm_backward(dx.view(rows), mode, dweight.gradient_or_scratch(),
                               dbias.gradient_or_scratch(), parameter_mode, dy.view(rows),
                               x.view(rows), mean, rstd, weight_.acquire_master(stream), stream);
}

Parameter rms_norm_gain(const ModuleName& name, std::int64_t width, kernels::RmsNormSpec spec,
                        const Stream& stream) {
  Parameter weight(name / "weight", {width}, Role::kVector, stream);
  initialize_constant(weight, spec.one_plus ? 0.0f : 1.0f, stream);
  return weight;
}

RmsNorm::RmsNorm(const ModuleName& name, std::int64_t width, kernels::RmsNormSpec spec,
                 const Stream& stream)
    : weight_(rms_norm_gain(name, width, spec, stream)), spec_(spec) {}

Tensor RmsNorm::normalized(const Tensor& x, const Tensor& rstd, const Stream& stream) {
  const Shape rows{x.elements() / weight_.elements(), weight_.elements()};
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  kernels::rms_norm_forward(y.view(rows), rstd, x.view(rows), weight_.acquire_master(stream), spec_,
                            stream);
  return y;
}

Tensor RmsNorm::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  Tensor rstd;
  if (tape.keeps()) {
    rstd = Tensor::empty({x.elements() / weight_.elements()}, DType::kF32, MemoryKind::kActivations,
                         stream);
  }
  Tensor y = normalized(x, rstd, stream);
  tape.save({ActivationRole::kNormInput, x}, stream);
  tape.save({ActivationRole::kStatistics, rstd}, stream);
  tape.declare_rebuildable(y, Rebuild::kNormalized, x, *this);
  return y;
}

void RmsNorm::write_backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                             ActivationTape& tape, const Stream& stream) {
  const Tensor rstd = tape.take(stream), x = tape.take(stream);
  const Shape rows{rstd.elements(), weight_.elements()};
  GradientContribution dweight(weight_, stream);
  kernels::rms_norm_backward(dx.view(rows), mode, dweight.gradient_or_scratch(),
                             dweight.next_mode(), dy.view(rows), x.view(rows), rstd,
                             weight_.acquire_master(stream), spec_, stream);
}

std::unique_ptr<Norm> make_norm(const ModuleName& name, std::int64_t width, const NormSpec& spec,
                                const Stream& stream) {
  if (spec.kind == NormKind::kLayer || spec.kind == NormKind::kLayerWithoutBias)
    return std::make_unique<LayerNorm>(name, width, spec.epsilon, spec.kind == NormKind::kLayer,
                                       stream);
  return std::make_unique<RmsNorm>(name, width, spec.of_root_mean_square(), stream);
}

namespace {

Shape in_places(const Tensor& x, std::int64_t channels) {
  return {x.size(0), x.elements() / (x.size(0) * channels), channels};
}

}  // namespace

GroupNorm::GroupNorm(const ModuleName& name, const Spec& spec, const Stream& stream)
    : spec_(spec),
      weight_(name / "weight", {spec.channels}, Role::kVector, stream),
      bias_(name / "bias", {spec.channels}, Role::kVector, stream) {
  if (spec.groups < 1 || spec.channels % spec.groups != 0)
    throw ShapeMismatch(concat(name.here, " has ", spec.channels, " channels in ", spec.groups,
                               " groups; want a number of groups that divides the channels"));
  initialize_constant(weight_, 1.0f, stream);
}

Tensor GroupNorm::normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd,
                             const Stream& stream) {
  const Shape shape = in_places(x, spec_.channels);
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  kernels::group_norm_forward(y.view(shape), mean, rstd, x.view(shape),
                              weight_.acquire_master(stream), bias_.acquire_master(stream),
                              spec_.groups, spec_.epsilon, stream);
  return y;
}

Tensor GroupNorm::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  if (x.shape().rank() < 2 || x.size(x.shape().rank() - 1) != spec_.channels)
    throw ShapeMismatch(concat(weight_.name(), ": its input is ", x.shape().text(),
                               ", want (batch, positions, ", spec_.channels, " channels)"));
  Tensor mean, rstd;
  if (tape.keeps()) {
    const Shape statistics{x.size(0), spec_.groups};
    mean = Tensor::empty(statistics, DType::kF32, MemoryKind::kActivations, stream);
    rstd = Tensor::empty(statistics, DType::kF32, MemoryKind::kActivations, stream);
  }
  Tensor y = normalized(x, mean, rstd, stream);
  tape.save({ActivationRole::kNormInput, x}, stream);
  tape.save({ActivationRole::kStatistics, mean}, stream);
  tape.save({ActivationRole::kStatistics, rstd}, stream);
  tape.declare_rebuildable(y, Rebuild::kNormalized, x, *this);
  return y;
}

Tensor GroupNorm::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor rstd = tape.take(stream), mean = tape.take(stream), x = tape.take(stream);
  const Shape shape = in_places(x, spec_.channels);
  Tensor dx = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  GradientContribution dweight(weight_, stream), dbias(bias_, stream);
  const auto mode = (dweight.wanted() ? dweight : dbias).next_mode();
  kernels::group_norm_backward(dx.view(shape), dweight.gradient_or_scratch(),
                               dbias.gradient_or_scratch(), mode, dy.view(shape), x.view(shape),
                               mean, rstd, weight_.acquire_master(stream), stream);
  return dx;
}

}  // namespace hybrid_trainer
