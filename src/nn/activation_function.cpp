#include "hybrid_trainer/nn/activation_function.h"

namespace hybrid_trainer {

Tensor ActivationFunction::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  Tensor y = Tensor::empty_like(source, MemoryKind::kActivations, stream);
  kernels::activation_forward(y, source, kind_, stream);
  return y;
}

Tensor ActivationFunction::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  Tensor y = rebuild(x, tape.pass(), stream);
  tape.save({ActivationRole::kPreActivation, x, true}, stream);
  tape.can_rebuild(y, Rebuild::kActivated, x, *this);
  return y;
}

Tensor ActivationFunction::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor x = tape.take(stream);
  Tensor dx = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  kernels::activation_backward(dx, dy, x, kind_, stream);
  return dx;
}

}  // namespace hybrid_trainer
