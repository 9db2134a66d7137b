#include "hybrid_trainer/nn/convolution.h"

#include <cmath>

#include "hybrid_trainer/nn/product_rounding.h"

namespace hybrid_trainer {

Tensor ActivationFunction::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  Tensor y = Tensor::empty_like(source, MemoryKind::kActivations, stream);
  kernels::activation_forward(y, source, kind_, stream);
  return y;
}

Tensor ActivationFunction::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  Tensor y = rebuild(x, tape.pass(), stream);
  tape.save({ActivationRole::kPreActivation, x, true}, stream);
  tape.declare_rebuildable(y, Rebuild::kActivated, x, *this);
  return y;
}

Tensor ActivationFunction::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor x = tape.take(stream);
  Tensor dx = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  kernels::activation_backward(dx, dy, x, kind_, stream);
  return dx;
}

namespace {

Shape weight_shape(const ModuleName& name, const Convolution::Spec& spec) {
  if (spec.rank < 1 || spec.rank > 3)
    throw ShapeMismatch(
        concat(name.here, " has ", spec.rank, " spatial dimensions, want one to three"));
  if (spec.groups < 1 || spec.inputs < 1 || spec.outputs < 1 || spec.inputs % spec.groups != 0 ||
      spec.outputs % spec.groups != 0) {
    throw ShapeMismatch(concat(name.here, " has ", spec.inputs, " inputs and ", spec.outputs,
                               " outputs in ", spec.groups,
                               " groups; want a number of groups that divides both"));
  }
  const std::int64_t taps = spec.window.taps(spec.rank);
  if (taps < 1)
    throw ShapeMismatch(concat(name.here, " has a kernel of size ", taps, ", want at least 1"));
  return {spec.outputs, taps * (spec.inputs / spec.groups)};
}

Shape shape_in_files(const Convolution::Spec& spec) {
  Shape shape{spec.outputs, spec.inputs / spec.groups};
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.rank); ++i)
    shape.append(spec.window.kernel[i]);
  return shape;
}

/// All positions of an example as one dimension, and a window over all of them.
struct PooledShape {
  explicit PooledShape(const Shape& x)
      : batch(x[0]), channels(x[x.rank() - 1]), places(x.elements() / (batch * channels)) {
    window.kernel[0] = window.stride[0] = places;
  }
  Shape inputs() const { return {batch, places, channels}; }
  Shape outputs() const { return {batch, 1, channels}; }
  std::int64_t batch, channels, places;
  kernels::Window window{};
};

Convolution::Spec three_frames(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  return {.rank = 1,
          .inputs = inputs,
          .outputs = outputs,
          .window = {.kernel = {3}, .stride = {stride}, .padding = {1}}};
}

}  // namespace

Convolution::Convolution(const ModuleName& name, const Spec& spec, const Stream& stream)
    : spec_(spec), weight_(name / "weight", weight_shape(name, spec), Role::kMatrix, stream) {
  weight_.set_in_files({{.name = (name / "weight").in_files,
                         .shape = shape_in_files(spec),
                         .channels_first = true}});
  if (spec.bias) bias_.emplace(name / "bias", Shape{spec.outputs}, Role::kVector, stream);
}

void Convolution::check_input(const Tensor& x) const {
  const Shape& shape = x.shape();
  if (shape.rank() == spec_.rank + 2 && shape[shape.rank() - 1] == spec_.inputs) return;
  throw ShapeMismatch(concat(weight_.name(), ": its input is ", shape.text(), ", want (batch, ",
                             spec_.rank, " spatial dimensions, ", spec_.inputs, " channels)"));
}

Tensor Convolution::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  check_input(x);
  const Pass& pass = tape.pass();
  Tensor y = Tensor::empty(output_shape(x.shape()), x.dtype(), MemoryKind::kActivations, stream);
  {
    const Weight weight = weight_.acquire(x.dtype(), stream),
                 bias = bias_ ? bias_->acquire_master(stream) : Weight{};
    kernels::convolution_forward(y, product_operand(x, Operand::kInput, weight_, pass, stream),
                                 product_operand(weight, Operand::kWeight, weight_, pass, stream),
                                 bias, spec_.window, spec_.groups, stream);
  }
  if (pass.products != nullptr) pass.products->round_result(y, stream);
  tape.save_shape(x.shape());
  tape.save({ActivationRole::kProductInput, weight_.trainable() ? x : Tensor{}, true}, stream);
  return y;
}

void Convolution::write_parameter_gradients(GradientContribution& dweight,
                                            GradientContribution& dbias, const Tensor& dy,
                                            const Tensor& product_dy, const Tensor& x,
                                            const Pass& pass, const Stream& stream) {
  if (dweight.wanted())
    kernels::convolution_backward_weight(dweight.gradient(), product_dy,
                                         product_operand(x, Operand::kInput, weight_, pass, stream),
                                         spec_.window, spec_.groups, dweight.next_mode(), stream);
  if (dbias.wanted())
    kernels::bias_backward(dbias.gradient(), dy.as_rows(), dbias.next_mode(), stream);
}

Tensor Convolution::backward(const Tensor& dy, bool wants_input, ActivationTape& tape,
                             const Stream& stream) {
  const Tensor x = tape.take(stream);
  const Shape shape = tape.take_shape();
  const Pass& pass = tape.pass();
  // Declared before the weight is read below, so that the gradients are complete only afterwards.
  GradientContribution dweight(weight_, stream),
      dbias(bias_ ? *bias_ : weight_, stream, bias_.has_value());
  const Tensor product_dy = product_operand(dy, Operand::kGradient, weight_, pass, stream);
  write_parameter_gradients(dweight, dbias, dy, product_dy, x, pass, stream);
  if (!wants_input) return {};
  Tensor dx = Tensor::empty(shape, dy.dtype(), MemoryKind::kActivations, stream);
  const Weight weight = weight_.acquire(dy.dtype(), stream);
  kernels::convolution_backward_input(
      dx, product_dy, product_operand(weight, Operand::kWeight, weight_, pass, stream),
      spec_.window, spec_.groups, stream);
  if (pass.products != nullptr) pass.products->round_result(dx, stream);
  return dx;
}

void Convolution::initialize(std::uint64_t seed, const Stream& stream) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight_.shape()[1]));
  initialize_uniform(weight_, bound, seed, stream);
  if (bias_) initialize_uniform(*bias_, bound, seed, stream);
}

TokenFlops Convolution::flops(const Shape& x) const {
  const double product = 2.0 * static_cast<double>(output_shape(x).elements() * weight_.shape()[1]);
  return {product, weight_.trainable() ? 2 * product : product};
}

Tensor MeanPooling::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const Shape shape = kernels::window_outputs(x.shape(), window_, x.size(x.shape().rank() - 1));
  Tensor y = Tensor::empty(shape, x.dtype(), MemoryKind::kActivations, stream);
  kernels::mean_pooling_forward(y, x, window_, divisor_, stream);
  tape.save_shape(x.shape());
  return y;
}

Tensor MeanPooling::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  Tensor dx = Tensor::empty(tape.take_shape(), dy.dtype(), MemoryKind::kActivations, stream);
  kernels::mean_pooling_backward(dx, dy, window_, divisor_, stream);
  return dx;
}

Tensor MaxPooling::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const Shape shape = kernels::window_outputs(x.shape(), window_, x.size(x.shape().rank() - 1));
  Tensor y = Tensor::empty(shape, x.dtype(), MemoryKind::kActivations, stream);
  const Tensor places = Tensor::empty(shape, DType::kI32, MemoryKind::kActivations, stream);
  kernels::max_pooling_forward(y, places, x, window_, stream);
  tape.save_shape(x.shape());
  tape.save({ActivationRole::kStatistics, places}, stream);
  return y;
}

Tensor MaxPooling::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor places = tape.take(stream);
  Tensor dx = Tensor::empty(tape.take_shape(), dy.dtype(), MemoryKind::kActivations, stream);
  kernels::max_pooling_backward(dx, dy, places, window_, stream);
  return dx;
}

Tensor GlobalMeanPooling::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const PooledShape all(x.shape());
  Tensor y = Tensor::empty({all.batch, all.channels}, x.dtype(), MemoryKind::kActivations, stream);
  kernels::mean_pooling_forward(y.view(all.outputs()), x.view(all.inputs()), all.window,
                                kernels::Divisor::kWindow, stream);
  tape.save_shape(x.shape());
  return y;
}

Tensor GlobalMeanPooling::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Shape shape = tape.take_shape();
  const PooledShape all(shape);
  Tensor dx = Tensor::empty(shape, dy.dtype(), MemoryKind::kActivations, stream);
  kernels::mean_pooling_backward(dx.view(all.inputs()), dy.view(all.outputs()), all.window,
                                 kernels::Divisor::kWindow, stream);
  return dx;
}

Tensor Upsampling::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  Tensor y = Tensor::empty(kernels::upsampled_shape(x.shape(), factors_), x.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::upsampling_forward(y, x, factors_, interpolation_, stream);
  tape.save_shape(x.shape());
  return y;
}

Tensor Upsampling::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  Tensor dx = Tensor::empty(tape.take_shape(), dy.dtype(), MemoryKind::kActivations, stream);
  kernels::upsampling_backward(dx, dy, factors_, interpolation_, stream);
  return dx;
}

PatchEmbedding::PatchEmbedding(const ModuleName& name, const Spec& spec, const Stream& stream)
    : patch_(spec.patch),
      projection_(name,
                  {.rank = spec.rank,
                   .inputs = spec.channels,
                   .outputs = spec.width,
                   .window = {.kernel = spec.patch, .stride = spec.patch},
                   .bias = spec.bias},
                  stream) {}

std::int64_t PatchEmbedding::tokens(const Shape& x) const {
  std::int64_t tokens = 1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(projection_.spec().rank); ++i)
    tokens *= x[static_cast<int>(i) + 1] / patch_[i];
  return tokens;
}

Tensor PatchEmbedding::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const int rank = projection_.spec().rank;
  for (int i = 0; i < rank && x.shape().rank() == rank + 2; ++i) {
    const std::int64_t size = x.size(i + 1), patch = patch_[static_cast<std::size_t>(i)];
    if (size % patch == 0) continue;
    throw ShapeMismatch(concat(projection_.weight().name(), ": its input is ", x.shape().text(),
                               ", but the patch size ", patch, " does not divide dimension ", i + 1,
                               " of size ", size));
  }
  const Tensor y = projection_.forward(x, tape, stream);
  tape.save_shape(x.shape());
  return y.view({x.size(0), tokens(x.shape()), projection_.spec().outputs});
}

SpeechStem::SpeechStem(std::int64_t features, std::int64_t places, std::int64_t width,
                       const Stream& stream)
    : features_(features),
      places_(places),
      first_("encoder.conv1", three_frames(features, width, 1), stream),
      second_("encoder.conv2", three_frames(width, width, 2), stream),
      positions_({"encoder.wpe.weight", "encoder.embed_positions.weight"}, {places, width},
                 Role::kEmbedding, stream) {
  positions_.freeze();
}

Tensor SpeechStem::forward(const Tensor& features, ActivationTape& tape, const Stream& stream) {
  if (features.size(1) != 2 * places_ || features.size(2) != features_)
    throw ShapeMismatch(concat("encoder: features are ", features.shape().text(), ", want (",
                               features.size(0), ", ", 2 * places_, ", ", features_, ")"));
  Tensor x = features;
  if (tape.pass().dtype != DType::kF32) {
    x = Tensor::empty(features.shape(), tape.pass().dtype, MemoryKind::kActivations, stream);
    kernels::cast(x, features, stream);
  }
  x = gelu_.forward(first_.forward(x, tape, stream), tape, stream);
  x = gelu_.forward(second_.forward(x, tape, stream), tape, stream);
  add_positions(x, tape.pass(), stream);
  return x;
}

Tensor SpeechStem::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dx = second_.backward(gelu_.backward(dy, tape, stream), tape, stream);
  first_.backward_parameters(gelu_.backward(dx, tape, stream), tape, stream);
  return {};
}

void SpeechStem::add_positions(const Tensor& x, const Pass& pass, const Stream& stream) const {
  const Weight positions = positions_.acquire(pass.dtype, stream);
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    const Tensor one = x.rows(i, i + 1).view({places_, x.size(2)});
    kernels::add(one, one, positions, stream);
  }
}

void SpeechStem::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                            const Stream& stream) {
  for (Convolution* convolution : {&first_, &second_})
    initialize_normal(convolution->weight(), deviations.matrix, seed, stream);
  initialize_sinusoids(positions_, stream);
}

TokenFlops SpeechStem::flops() const {
  TokenFlops first = first_.flops({1, 2 * places_, features_});
  first.backward -= first.forward;  // audio needs no gradient
  return first + second_.flops({1, 2 * places_, first_.spec().outputs});
}

}  // namespace hybrid_trainer
