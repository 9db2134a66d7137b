#include "hybrid_trainer/nn/patch_embedding.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

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
                               ", and patches of ", patch, " do not divide the ", size,
                               " places of dimension ", i + 1));
  }
  const Tensor y = projection_.forward(x, tape, stream);
  tape.save_shape(x.shape());
  return y.view({x.size(0), tokens(x.shape()), projection_.spec().outputs});
}

Tensor PatchEmbedding::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Shape windows = projection_.output_shape(tape.take_shape());
  return projection_.backward(dy.view(windows), tape, stream);
}

void PatchEmbedding::backward_parameters(const Tensor& dy, ActivationTape& tape,
                                         const Stream& stream) {
  const Shape windows = projection_.output_shape(tape.take_shape());
  projection_.backward_parameters(dy.view(windows), tape, stream);
}

}  // namespace hybrid_trainer
