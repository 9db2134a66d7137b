#include "hybrid_trainer/nn/upsampling.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
