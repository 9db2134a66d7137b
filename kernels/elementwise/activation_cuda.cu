// Activation functions, element by element. Bound by memory.

#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/backend/elements.cuh"
#include "kernels/elementwise/normal_distribution.h"

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

namespace {

__device__ inline float below(float x, float limit) { return x > limit ? limit : x; }
__device__ inline float within(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

/// Element i is of y.
template <class T>
struct ClampedGates {
  T* y;
  const T* x;
  std::int64_t columns;
  ClampedGate gate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const T* const from = x + i + i / columns * columns;
    float g[N], u[N];
    load_pack(g, from);
    load_pack(u, from + columns);
    for (int j = 0; j < N; ++j) {
      const float cut = below(g[j], gate.limit);
      g[j] = (within(u[j], gate.limit) + 1.0f) * cut * sigmoid(gate.sharpness * cut);
    }
    store_pack(y + i, g);
  }
};

template <class T>
struct ClampedGateGradient {
  T* dx;
  const T* dy;
  const T* x;
  std::int64_t columns;
  ClampedGate gate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t first = i + i / columns * columns;
    float dh[N], g[N], u[N];
    load_pack(dh, dy + i);
    load_pack(g, x + first);
    load_pack(u, x + first + columns);
    for (int j = 0; j < N; ++j) {
      const float cut = below(g[j], gate.limit), share = sigmoid(gate.sharpness * cut);
      const float slope = share * (1.0f + gate.sharpness * cut * (1.0f - share));
      const float dgate = dh[j] * (within(u[j], gate.limit) + 1.0f) * slope;
      g[j] = g[j] > gate.limit ? 0.0f : dgate;
      u[j] = fabsf(u[j]) > gate.limit ? 0.0f : dh[j] * cut * share;
    }
    store_pack(dx + first, g);
    store_pack(dx + first + columns, u);
  }
};

/// Packs where no row of y begins within one.
template <class T, class Body, class... Pointers>
void for_gates(const Stream& stream, const char* name, const Tensor& y, const Body& body,
               Pointers... begins) {
  if (packs_fit<T>(y.size(1), begins...)) {
    for_packs<kPackSize<T>>(stream, name, y.elements(), body);
  } else {
    for_packs<1>(stream, name, y.elements(), body);
  }
}

}  // namespace

void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream& stream) {
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const ClampedGates<T> body{y.data<T>(), x.data<T>(), y.size(1), gate};
    for_gates<T>(stream, "clamped_gate_forward", y, body, body.y, body.x);
  });
}

void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream& stream) {
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    const ClampedGateGradient<T> body{dx.data<T>(), dy.data<T>(), x.data<T>(), dy.size(1), gate};
    for_gates<T>(stream, "clamped_gate_backward", dy, body, body.dx, body.dy, body.x);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
