#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/elementwise/map_cpu.h"
#include "kernels/elementwise/normal_distribution.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

inline float within(float x, float limit) { return x > limit ? limit : x < -limit ? -limit : x; }

}  // namespace

void add(const Tensor& y, const Tensor& x, const Tensor& z, const Stream&) {
  map([](float left, float right) { return left + right; }, y, x, z);
}

void axpy(const Tensor& y, const Tensor& from, float a, const Tensor& direction, const Stream&) {
  map([=](float start, float step) { return start + a * step; }, y, from, direction);
}

void scale(const Tensor& y, const Tensor& x, float a, const Stream&) {
  map([=](float value) { return a * value; }, y, x);
}

void scale_by(const Tensor& y, const Tensor& x, const Tensor& a, const Stream& stream) {
  scale(y, x, *a.data<float>(), stream);
}

void normalize(const Tensor& y, const Tensor& x, const Tensor& squares, double floor,
               const Stream& stream) {
  scale(y, x, static_cast<float>(1 / (std::sqrt(*squares.data<double>()) + floor)), stream);
}

void cast(const Tensor& y, const Tensor& x, const Stream&) {
  visit_real(y.dtype(), [&](auto to) {
    visit_real(x.dtype(), [&](auto from) {
      map_elements(
          y.elements(), [](float value) { return value; }, y.data<decltype(to)>(),
          x.data<decltype(from)>());
    });
  });
}

void gelu_forward(const Tensor& y, const Tensor& x, const Stream&) {
  map([](float value) { return value * gelu_gate(value); }, y, x);
}

void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Stream&) {
  map([](float gradient, float value) { return gradient * gelu_slope(value); }, dx, dy, x);
}

void clip(const Tensor& y, const Tensor& x, float limit, const Stream&) {
  map([=](float value) { return within(value, limit); }, y, x);
}

void clip_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, float limit,
                   const Stream&) {
  map([=](float gradient, float value) { return std::fabs(value) > limit ? 0.0f : gradient; }, dx,
      dy, x);
}

void cap_forward(const Tensor& y, const Tensor& x, float cap, const Stream&) {
  map([=](float value) { return cap * hyperbolic_tangent(value / cap); }, y, x);
}

void cap_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, float cap, const Stream&) {
  map(
      [=](float gradient, float capped) {
        const float share = capped / cap;
        return gradient * (1.0f - share * share);
      },
      dx, dy, y);
}

namespace {

template <ActivationKind kKind>
inline float activation_value(float x) {
  if constexpr (kKind == ActivationKind::kRelu) return x > 0 ? x : x != x ? x : 0.0f;
  if constexpr (kKind == ActivationKind::kSilu) return x * sigmoid(x);
  return x * share_below(x, exponential(-0.5f * x * x));
}
template <ActivationKind kKind>
inline float activation_slope(float x) {
  if constexpr (kKind == ActivationKind::kRelu) return x > 0 ? 1.0f : 0.0f;
  if constexpr (kKind == ActivationKind::kGelu) return share_slope(x, exponential(-0.5f * x * x));
  const float share = sigmoid(x);
  return share * (1.0f + x * (1.0f - share));
}

template <class Function>
void with_activation(ActivationKind kind, const Function& function) {
  switch (kind) {
    case ActivationKind::kRelu:
      return function(std::integral_constant<ActivationKind, ActivationKind::kRelu>());
    case ActivationKind::kSilu:
      return function(std::integral_constant<ActivationKind, ActivationKind::kSilu>());
    case ActivationKind::kGelu:
      return function(std::integral_constant<ActivationKind, ActivationKind::kGelu>());
  }
}

}  // namespace

void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind, const Stream&) {
  with_activation(kind, [&](auto of) {
    map([](float value) { return activation_value<decltype(of)::value>(value); }, y, x);
  });
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream&) {
  with_activation(kind, [&](auto of) {
    map([](float gradient,
           float value) { return gradient * activation_slope<decltype(of)::value>(value); },
        dx, dy, x);
  });
}

namespace {

template <Gate kGate>
inline float gate_value(float g) {
  if constexpr (kGate == Gate::kExactGelu) return activation_value<ActivationKind::kGelu>(g);
  return kGate == Gate::kSilu ? g * sigmoid(g) : g * gelu_gate(g);
}
template <Gate kGate>
inline float gate_slope(float g) {
  if constexpr (kGate == Gate::kGelu) return gelu_slope(g);
  if constexpr (kGate == Gate::kExactGelu) return activation_slope<ActivationKind::kGelu>(g);
  const float share = sigmoid(g);
  return share * (1.0f + g * (1.0f - share));
}

template <class Function>
void visit_gate(Gate gate, Function&& function) {
  switch (gate) {
    case Gate::kSilu: return function(std::integral_constant<Gate, Gate::kSilu>{});
    case Gate::kGelu: return function(std::integral_constant<Gate, Gate::kGelu>{});
    case Gate::kExactGelu: return function(std::integral_constant<Gate, Gate::kExactGelu>{});
  }
}

/// y = gate(g, u) for the gates and ups of each row of x.
template <class Function>
void forward_gates(const Tensor& y, const Tensor& x, const Function& gate) {
  const std::int64_t columns = y.size(1);
  visit_real(y.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const T* const in = x.data<T>();
    for_each_row(y.size(0), columns, [=](std::int64_t row) {
      T* const to = out + row * columns;
      const T *const gates = in + row * 2 * columns, *const ups = gates + columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i)
        store(to + i, gate(load(gates + i), load(ups + i)));
    });
  });
}

struct GateSlopes {
  float of_gate, of_up;
};

/// Writes slopes(dy, g, u) to dx, for the gates and ups of each row of x.
template <class Function>
void backward_gates(const Tensor& dx, const Tensor& dy, const Tensor& x, const Function& slopes) {
  const std::int64_t columns = dy.size(1);
  visit_real(dy.dtype(), [&]<class T>(T) {
    T* const out = dx.data<T>();
    const T *const gradient = dy.data<T>(), *const in = x.data<T>();
    for_each_row(dy.size(0), columns, [=](std::int64_t row) {
      const T *const from = gradient + row * columns, *const gates = in + row * 2 * columns,
                     *const ups = gates + columns;
      T *const dgates = out + row * 2 * columns, *const dups = dgates + columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) {
        const GateSlopes of = slopes(load(from + i), load(gates + i), load(ups + i));
        store(dgates + i, of.of_gate);
        store(dups + i, of.of_up);
      }
    });
  });
}

constexpr std::int64_t kBlocks = 64;          // blocks of random numbers generated together
constexpr std::int64_t kDrawn = 4 * kBlocks;  // random numbers in these blocks

/// Generates philox numbers [4·first, 4·first + kDrawn), one round at a time for all blocks.
inline void draw(std::uint32_t* words, const RandomKey& key, std::uint64_t first) {
  std::uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    const std::uint64_t block = first + static_cast<std::uint64_t>(i);
    c0[i] = static_cast<std::uint32_t>(block);
    c1[i] = static_cast<std::uint32_t>(block >> 32);
    c2[i] = static_cast<std::uint32_t>(key.step);
    c3[i] = static_cast<std::uint32_t>(key.tensor);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32) ^
                     static_cast<std::uint32_t>(key.step >> 32) ^
                     static_cast<std::uint32_t>(key.tensor >> 32) * 0x9E3779B9u;
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<std::uint32_t>(p1);
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

RandomKey at_step_of(const Tensor& step_words, RandomKey key) {
  const std::int32_t* const words = step_words.data<std::int32_t>();
  key.step = static_cast<std::uint32_t>(words[0]) |
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(words[1])) << 32;
  return key;
}

/// Consecutive elements that draw consecutive numbers, in chunks of kDrawn numbers.
template <class T>
struct DroppedRun {
  T* out;
  const T* in;
  std::int64_t elements;
  RandomKey key;
  std::uint64_t first;  // index of element 0's number
  float p;

  std::int64_t skipped() const { return static_cast<std::int64_t>(first % 4); }  // in its block
  std::int64_t chunks() const { return (elements + skipped() + kDrawn - 1) / kDrawn; }
  void drop(std::int64_t begin_chunk, std::int64_t end_chunk) const {
    const float kept_scale = 1.0f / (1.0f - p), share = p;
    for (std::int64_t chunk = begin_chunk; chunk < end_chunk; ++chunk) {
      std::uint32_t words[kDrawn];
      draw(words, key, first / 4 + static_cast<std::uint64_t>(chunk * kBlocks));
      const std::int64_t element = chunk * kDrawn - skipped();  // element of words[0]
      const std::int64_t count = std::min(kDrawn, elements - element);
#pragma omp simd
      for (std::int64_t i = chunk == 0 ? skipped() : 0; i < count; ++i) {
        const float value = load(in + element + i) * kept_scale;
        store(out + element + i, to_unit_float(words[i]) >= share ? value : 0.0f);
      }
    }
  }
};

}  // namespace

void gated_forward(const Tensor& y, const Tensor& x, Gate gate, const Stream&) {
  visit_gate(gate, [&](auto kind) {
    forward_gates(y, x, [](float g, float u) { return gate_value<decltype(kind)::value>(g) * u; });
  });
}

void gated_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, Gate gate, const Stream&) {
  visit_gate(gate, [&](auto kind) {
    constexpr Gate kGate = decltype(kind)::value;
    backward_gates(dx, dy, x, [](float dh, float g, float u) {
      return GateSlopes{dh * u * gate_slope<kGate>(g), dh * gate_value<kGate>(g)};
    });
  });
}

void dropout(const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers,
             const Stream&) {
  const RandomKey key =
      numbers.step_words ? at_step_of(numbers.step_words, numbers.key) : numbers.key;
  visit_real(y.dtype(), [&]<class T>(T) {
    const DroppedRun<T> all{y.data<T>(), x.data<T>(), y.elements(), key, numbers.first, p};
    if (!numbers.rows && numbers.run == 0)
      return parallel_rows(all.chunks(), kDrawn,
                           [=](std::int64_t begin, std::int64_t end) { all.drop(begin, end); });
    const std::int64_t columns = x.size(1), run = numbers.run, stride = numbers.stride;
    const std::int32_t* const rows = optional_data<std::int32_t>(numbers.rows);
    for_each_row(x.size(0), columns, [=](std::int64_t row) {
      std::int64_t from = rows != nullptr ? rows[row] : row;
      if (run > 0) from = from / run * stride + from % run;
      const DroppedRun<T> one{all.out + row * columns,
                              all.in + row * columns,
                              columns,
                              key,
                              all.first + static_cast<std::uint64_t>(from * columns),
                              p};
      one.drop(0, one.chunks());
    });
  });
}

void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream&) {
  const auto [limit, sharpness] = gate;
  forward_gates(y, x, [limit = limit, sharpness = sharpness](float g, float u) {
    g = g > limit ? limit : g;
    return (within(u, limit) + 1.0f) * g * sigmoid(sharpness * g);
  });
}

void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream&) {
  const auto [limit, sharpness] = gate;
  backward_gates(dx, dy, x, [limit = limit, sharpness = sharpness](float dh, float g, float u) {
    const float cut = g > limit ? limit : g, share = sigmoid(sharpness * cut);
    const float slope = share * (1.0f + sharpness * cut * (1.0f - share));
    return GateSlopes{g > limit ? 0.0f : dh * (within(u, limit) + 1.0f) * slope,
                      std::fabs(u) > limit ? 0.0f : dh * cut * share};
  });
}

}  // namespace hybrid_trainer::kernels::cpu
