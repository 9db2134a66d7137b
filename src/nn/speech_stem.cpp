#include "hybrid_trainer/nn/speech_stem.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {
namespace {

/// Over three frames.
Convolution::Spec three_frames(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  return {.rank = 1,
          .inputs = inputs,
          .outputs = outputs,
          .window = {.kernel = {3}, .stride = {stride}, .padding = {1}}};
}

}  // namespace

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

void SpeechStem::visit_parameters(const ParameterVisitor& visit) {
  first_.visit_parameters(visit);
  second_.visit_parameters(visit);
  visit(positions_);
}

void SpeechStem::initialize(const FirstDeviations& deviations, std::uint64_t seed,
                            const Stream& stream) {
  for (Convolution* convolution : {&first_, &second_})
    initialize_normal(convolution->weight(), deviations.matrix, seed, stream);
  initialize_sinusoids(positions_, stream);
}

TokenFlops SpeechStem::flops() const {
  TokenFlops first = first_.flops({1, 2 * places_, features_});
  first.backward -= first.forward;  // nobody asks for the gradient of sound
  return first + second_.flops({1, 2 * places_, first_.spec().outputs});
}

}  // namespace hybrid_trainer
