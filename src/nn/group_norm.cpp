#include "hybrid_trainer/nn/group_norm.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/initialization.h"

namespace hybrid_trainer {
namespace {

Shape in_places(const Tensor& x, std::int64_t channels) {
  return {x.size(0), x.elements() / (x.size(0) * channels), channels};
}

}  // namespace

GroupNorm::GroupNorm(const ModuleName& name, const Spec& spec, const Stream& stream)
    : spec_(spec),
      weight_(name / "weight", {spec.channels}, Role::kVector, stream),
      bias_(name / "bias", {spec.channels}, Role::kVector, stream) {
  if (spec.groups < 1 || spec.channels % spec.groups != 0) {
    throw ShapeMismatch(concat(name.here, " has ", spec.channels, " channels in ", spec.groups,
                               " groups; want groups that divide them"));
  }
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

Tensor GroupNorm::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  return normalized(source, Tensor{}, Tensor{}, stream);
}

Tensor GroupNorm::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  if (x.shape().rank() < 2 || x.size(x.shape().rank() - 1) != spec_.channels) {
    throw ShapeMismatch(concat(weight_.name(), ": its input is ", x.shape().text(),
                               ", want (batch, places, ", spec_.channels, " channels)"));
  }
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
  tape.can_rebuild(y, Rebuild::kNormalized, x, *this);
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

void GroupNorm::visit_parameters(const ParameterVisitor& visit) {
  visit(weight_);
  visit(bias_);
}

}  // namespace hybrid_trainer
