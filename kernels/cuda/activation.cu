// Activation functions, element by element. Bound by memory.

#include "hybrid_trainer/kernels/activation.h"

#include "kernels/cuda/for_packs.cuh"
#include "kernels/cuda/sigmoid.cuh"
#include "kernels/normal_distribution.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

__device__ float activation_value(float x, ActivationKind kind) {
  if (kind == ActivationKind::kRelu) return x > 0 ? x : x != x ? x : 0.0f;
  if (kind == ActivationKind::kSilu) return x * sigmoid(x);
  return x * share_below(x, expf(-0.5f * x * x));
}
__device__ float activation_slope(float x, ActivationKind kind) {
  if (kind == ActivationKind::kRelu) return x > 0 ? 1.0f : 0.0f;
  if (kind == ActivationKind::kSilu) return silu_derivative(x);
  return share_slope(x, expf(-0.5f * x * x));
}

template <class T>
struct ActivationForward {
  T* y;
  const T* x;
  ActivationKind kind;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    load_pack(values, x + i);
    for (int k = 0; k < N; ++k) values[k] = activation_value(values[k], kind);
    store_pack(y + i, values);
  }
};

template <class T>
struct ActivationBackward {
  T* dx;
  const T *dy, *x;
  ActivationKind kind;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N], gradients[N];
    load_pack(values, x + i);
    load_pack(gradients, dy + i);
    for (int k = 0; k < N; ++k) gradients[k] *= activation_slope(values[k], kind);
    store_pack(dx + i, gradients);
  }
};

}  // namespace

void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind,
                        const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const ActivationForward<T> body{y.data<T>(), x.data<T>(), kind};
    for_packs<kPackSize<T>>(stream, "activation_forward", x.elements(), body, body.y, body.x);
  });
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const ActivationBackward<T> body{dx.data<T>(), dy.data<T>(), x.data<T>(), kind};
    for_packs<kPackSize<T>>(stream, "activation_backward", x.elements(), body, body.dx, body.dy,
                            body.x);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
