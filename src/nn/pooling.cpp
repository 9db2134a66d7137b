#include "hybrid_trainer/nn/pooling.h"

namespace hybrid_trainer {
namespace {

/// All places of an example as those of one dimension, and the window that reads them all.
struct AllPlaces {
  explicit AllPlaces(const Shape& x)
      : batch(x[0]), channels(x[x.rank() - 1]), places(x.elements() / (batch * channels)) {
    window.kernel[0] = window.stride[0] = places;
  }
  Shape inputs() const { return {batch, places, channels}; }
  Shape outputs() const { return {batch, 1, channels}; }
  std::int64_t batch, channels, places;
  kernels::Window window{};
};

}  // namespace

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

Tensor MeanOfPlaces::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const AllPlaces all(x.shape());
  Tensor y = Tensor::empty({all.batch, all.channels}, x.dtype(), MemoryKind::kActivations, stream);
  kernels::mean_pooling_forward(y.view(all.outputs()), x.view(all.inputs()), all.window,
                                kernels::Divisor::kWindow, stream);
  tape.save_shape(x.shape());
  return y;
}

Tensor MeanOfPlaces::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Shape shape = tape.take_shape();
  const AllPlaces all(shape);
  Tensor dx = Tensor::empty(shape, dy.dtype(), MemoryKind::kActivations, stream);
  kernels::mean_pooling_backward(dx.view(all.inputs()), dy.view(all.outputs()), all.window,
                                 kernels::Divisor::kWindow, stream);
  return dx;
}

}  // namespace hybrid_trainer
