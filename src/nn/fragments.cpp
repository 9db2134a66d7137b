#include "src/nn/fragments.h"

namespace hybrid_trainer::graph {

Tensor Fragments::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const Tensor y = module_->forward(cut(x), tape, stream);
  tape.save_shape(y.shape());
  const std::int64_t width = y.size(y.shape().rank() - 1);
  return y.view({x.size(0), y.elements() / x.size(0) / width, width});
}

Tensor Fragments::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const std::int64_t videos = dy.size(0);
  const Tensor dx = module_->backward(dy.view(tape.take_shape()), tape, stream);
  const Shape cut = dx.shape();
  return dx.view({videos, cut[0] * cut[1] / videos, cut[2], cut[3], cut[4]});
}

void Fragments::backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  module_->backward_parameters(dy.view(tape.take_shape()), tape, stream);
}

Tensor Fragments::cut(const Tensor& x) const {
  const Shape whole = x.shape();
  return x.view({whole[0] * whole[1] / frames_, frames_, whole[2], whole[3], whole[4]});
}

}  // namespace hybrid_trainer::graph
