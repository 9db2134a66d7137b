#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/elementwise/map.cuh"
#include "kernels/elementwise/normal_distribution.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

struct Add {
  __device__ float operator()(float x, float z) const { return x + z; }
};

struct Axpy {
  float a;
  __device__ float operator()(float from, float direction) const { return from + a * direction; }
};

struct Scale {
  float a;
  __device__ float operator()(float x) const { return a * x; }
};

struct ScaleBy {
  const float* a;
  __device__ float operator()(float x) const { return *a * x; }
};

struct Normalize {
  const double* squares;
  double floor;
  __device__ float operator()(float x) const {
    return static_cast<float>(1 / (sqrt(*squares) + floor)) * x;
  }
};

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

/// Returns GELU(x) / x = (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), u = √(2/π)·(x + 0.044715·x³).
__device__ inline float gelu_gate(float x) {
  return __fdividef(1.0f, 1.0f + expf(x * (-1.5957691216f - 0.0713548163f * (x * x))));
}

struct Gelu {
  __device__ float operator()(float x) const { return x * gelu_gate(x); }
};

/// dx = dy·(gate + x·gate·(1 − gate)·d(2u)/dx).
struct GeluGradient {
  __device__ float operator()(float dy, float x) const {
    const float gate = gelu_gate(x);
    const float two_u_slope = 1.5957691216f + 0.2140644488f * (x * x);
    return dy * (gate + x * gate * (1.0f - gate) * two_u_slope);
  }
};

template <Gate kGate>
__device__ inline float gate_value(float g) {
  if constexpr (kGate == Gate::kExactGelu) return g * share_below(g, expf(-0.5f * g * g));
  return g * (kGate == Gate::kSilu ? sigmoid(g) : gelu_gate(g));
}
template <Gate kGate>
__device__ inline float gate_slope(float g) {
  if constexpr (kGate == Gate::kGelu) return GeluGradient{}(1.0f, g);
  if constexpr (kGate == Gate::kExactGelu) return share_slope(g, expf(-0.5f * g * g));
  const float share = sigmoid(g);
  return share * (1.0f + g * (1.0f - share));
}

template <Gate kGate>
struct PlainGate {
  __device__ float operator()(float g, float u) const { return gate_value<kGate>(g) * u; }
  /// Replaces gate g and up u by their gradients. `dh`: gradient of the result.
  __device__ void differentiate(float dh, float& g, float& u) const {
    const float dgate = dh * u * gate_slope<kGate>(g);
    u = dh * gate_value<kGate>(g);
    g = dgate;
  }
};

__device__ inline float below(float x, float limit) { return x > limit ? limit : x; }
__device__ inline float within(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

struct LimitedGate {
  ClampedGate of;
  __device__ float operator()(float g, float u) const {
    const float cut = below(g, of.limit);
    return (within(u, of.limit) + 1.0f) * cut * sigmoid(of.sharpness * cut);
  }
  __device__ void differentiate(float dh, float& g, float& u) const {
    const float cut = below(g, of.limit), share = sigmoid(of.sharpness * cut);
    const float slope = share * (1.0f + of.sharpness * cut * (1.0f - share));
    const float dgate = dh * (within(u, of.limit) + 1.0f) * slope;
    g = g > of.limit ? 0.0f : dgate;
    u = fabsf(u) > of.limit ? 0.0f : dh * cut * share;
  }
};

template <class T, class Function>
struct Gated {
  T* y;
  const T* x;
  std::int64_t columns;
  Function gate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const T* const from = x + i + i / columns * columns;
    float g[N], u[N];
    load_pack(g, from);
    load_pack(u, from + columns);
    for (int j = 0; j < N; ++j) g[j] = gate(g[j], u[j]);
    store_pack(y + i, g);
  }
};

template <class T, class Function>
struct GatedGradient {
  T* dx;
  const T* dy;
  const T* x;
  std::int64_t columns;
  Function gate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t first = i + i / columns * columns;
    float dh[N], g[N], u[N];
    load_pack(dh, dy + i);
    load_pack(g, x + first);
    load_pack(u, x + first + columns);
    for (int j = 0; j < N; ++j) gate.differentiate(dh[j], g[j], u[j]);
    store_pack(dx + first, g);
    store_pack(dx + first + columns, u);
  }
};

template <class Function>
void visit_gate(Gate gate, Function&& function) {
  switch (gate) {
    case Gate::kSilu: return function(std::integral_constant<Gate, Gate::kSilu>{});
    case Gate::kGelu: return function(std::integral_constant<Gate, Gate::kGelu>{});
    case Gate::kExactGelu: return function(std::integral_constant<Gate, Gate::kExactGelu>{});
  }
}

struct Cap {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};

struct CapGradient {
  float cap;
  __device__ float operator()(float dy, float y) const { return dy * (1.0f - y / cap * (y / cap)); }
};

struct Clip {
  float limit;
  __device__ float operator()(float x) const { return within(x, limit); }
};

struct ClipGradient {
  float limit;
  __device__ float operator()(float dy, float x) const { return fabsf(x) > limit ? 0.0f : dy; }
};

template <class T>
struct Dropout {
  T* y;
  const T* x;
  float p;
  float kept_scale;
  RandomKey requested;
  std::uint64_t first_number;      // index of element 0's number
  const std::int32_t* step_words;  // replaces requested.step unless nullptr
  bool has_rows;                   // else x is a contiguous part of the larger tensor
  const std::int32_t* rows;        // or null
  std::int64_t columns, run, stride;
  __device__ std::int64_t place_of(std::int64_t i) const {
    if (!has_rows) return i;
    std::int64_t row = rows != nullptr ? rows[i / columns] : i / columns;
    if (run > 0) row = row / run * stride + row % run;
    return row * columns + i % columns;
  }
  template <int N>
  __device__ void at(std::int64_t i) const {
    const RandomKey key = this->key();
    const std::uint64_t first = first_number + static_cast<std::uint64_t>(place_of(i));
    float values[N];
    load_pack(values, x + i);
    if (N == 1 || first % 4 != 0) {
      for (int k = 0; k < N; ++k)
        values[k] = dropped(values[k], random_word(key, first + static_cast<std::uint64_t>(k)));
    } else {
      for (int k = 0; k < N; k += 4) {
        const auto words = philox(key, (first + static_cast<std::uint64_t>(k)) / 4);
        for (int j = 0; j < 4; ++j)
          values[k + j] = dropped(values[k + j], words[static_cast<std::size_t>(j)]);
      }
    }
    store_pack(y + i, values);
  }
  __device__ RandomKey key() const {
    RandomKey key = requested;
    if (step_words == nullptr) return key;
    key.step = static_cast<std::uint32_t>(step_words[0]) |
               static_cast<std::uint64_t>(static_cast<std::uint32_t>(step_words[1])) << 32;
    return key;
  }
  __device__ float dropped(float value, std::uint32_t word) const {
    return to_unit_float(word) >= p ? value * kept_scale : 0.0f;
  }
};

}  // namespace

void add(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream) {
  map_real(stream, "add", Add{}, y, x, z);
}

void axpy(const Tensor& y, const Tensor& from, float a, const Tensor& direction,
          const Stream& stream) {
  map_real(stream, "axpy", Axpy{a}, y, from, direction);
}

void scale(const Tensor& y, const Tensor& x, float a, const Stream& stream) {
  map_real(stream, "scale", Scale{a}, y, x);
}

void scale_by(const Tensor& y, const Tensor& x, const Tensor& a, const Stream& stream) {
  map_real(stream, "scale_by", ScaleBy{a.data<float>()}, y, x);
}

void normalize(const Tensor& y, const Tensor& x, const Tensor& squares, double floor,
               const Stream& stream) {
  map<float, float>(stream, "normalize", Normalize{squares.data<double>(), floor}, y, x);
}

void cast(const Tensor& y, const Tensor& x, const Stream& stream) {
  visit_real(y.dtype(), [&](auto to) {
    visit_real(x.dtype(), [&](auto from) {
      map<decltype(to), decltype(from)>(stream, "cast", Identity{}, y, x);
    });
  });
}

void gelu_forward(const Tensor& y, const Tensor& x, const Stream& stream) {
  map_real(stream, "gelu_forward", Gelu{}, y, x);
}

void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Stream& stream) {
  map_real(stream, "gelu_backward", GeluGradient{}, dx, dy, x);
}

void cap_forward(const Tensor& y, const Tensor& x, float cap, const Stream& stream) {
  map_real(stream, "cap_forward", Cap{cap}, y, x);
}

void cap_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, float cap,
                  const Stream& stream) {
  map_real(stream, "cap_backward", CapGradient{cap}, dx, dy, y);
}

void clip(const Tensor& y, const Tensor& x, float limit, const Stream& stream) {
  map_real(stream, "clip", Clip{limit}, y, x);
}

void clip_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, float limit,
                   const Stream& stream) {
  map_real(stream, "clip_backward", ClipGradient{limit}, dx, dy, x);
}

void dropout(const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers,
             const Stream& stream) {
  const Tensor& step_words = numbers.step_words;
  visit_real(y.dtype(), [&]<class T>(T) {
    const Dropout<T> body{.y = y.data<T>(),
                          .x = x.data<T>(),
                          .p = p,
                          .kept_scale = 1.0f / (1.0f - p),
                          .requested = numbers.key,
                          .first_number = numbers.first,
                          .step_words = optional_data<std::int32_t>(step_words),
                          .has_rows = numbers.rows || numbers.run > 0,
                          .rows = optional_data<std::int32_t>(numbers.rows),
                          .columns = x.size(x.shape().rank() - 1),
                          .run = numbers.run,
                          .stride = numbers.stride};
    // Rows must consist of whole packs.
    const bool fits = !body.has_rows || body.columns % kPackSize<T> == 0;
    for_packs_if<kPackSize<T>>(fits, stream, "dropout", y.elements(), body, body.y, body.x);
  });
}

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

struct Activation {
  ActivationKind kind;
  __device__ float operator()(float x) const { return activation_value(x, kind); }
};

struct ActivationGradient {
  ActivationKind kind;
  __device__ float operator()(float dy, float x) const { return dy * activation_slope(x, kind); }
};

// Each row of y must consist of whole packs to be written in packs.

template <class Function>
void forward_gates(const char* name, const Tensor& y, const Tensor& x, const Function& gate,
                   const Stream& stream) {
  visit_real(y.dtype(), [&]<class T>(T) {
    const Gated<T, Function> body{y.data<T>(), x.data<T>(), y.size(1), gate};
    for_packs_if<kPackSize<T>>(packs_fit<T>(y.size(1), body.y, body.x), stream, name, y.elements(),
                               body);
  });
}
template <class Function>
void backward_gates(const char* name, const Tensor& dx, const Tensor& dy, const Tensor& x,
                    const Function& gate, const Stream& stream) {
  visit_real(dy.dtype(), [&]<class T>(T) {
    const GatedGradient<T, Function> body{dx.data<T>(), dy.data<T>(), x.data<T>(), dy.size(1),
                                          gate};
    for_packs_if<kPackSize<T>>(packs_fit<T>(dy.size(1), body.dx, body.dy, body.x), stream, name,
                               dy.elements(), body);
  });
}

}  // namespace

void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind,
                        const Stream& stream) {
  map_real(stream, "activation_forward", Activation{kind}, y, x);
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream& stream) {
  map_real(stream, "activation_backward", ActivationGradient{kind}, dx, dy, x);
}

void gated_forward(const Tensor& y, const Tensor& x, Gate gate, const Stream& stream) {
  visit_gate(gate,
             [&](auto kind) { forward_gates("gated_forward", y, x, PlainGate<kind>{}, stream); });
}

void gated_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, Gate gate,
                    const Stream& stream) {
  visit_gate(gate, [&](auto kind) {
    backward_gates("gated_backward", dx, dy, x, PlainGate<kind>{}, stream);
  });
}

void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream& stream) {
  forward_gates("clamped_gate_forward", y, x, LimitedGate{gate}, stream);
}

void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream& stream) {
  backward_gates("clamped_gate_backward", dx, dy, x, LimitedGate{gate}, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
