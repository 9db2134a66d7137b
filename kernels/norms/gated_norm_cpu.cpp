#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/backend/share_sums.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// A group of columns of one row, and their weights.
template <class T>
struct GatedGroup {
  const T *x, *gate;
  const float* weight;
  std::int64_t columns;
};

inline float silu_of(float z) { return z * sigmoid(z); }

template <class T>
inline float rounded(float value) {
  T result;
  store(&result, value);
  return load(&result);
}
template <>
inline float rounded<float>(float value) {
  return value;
}

struct GroupPlaces {
  GroupPlaces(const Tensor& x, const Tensor& gate, std::int64_t first_column, const Tensor& weight,
              const GatedNormSpec& spec)
      : rows(x.size(0)),
        groups(spec.groups),
        columns(x.size(1) / spec.groups),
        gate_stride(gate.size(1)),
        first(first_column),
        shared(weight.size(0) < x.size(1)) {}
  std::int64_t x_at(std::int64_t row, std::int64_t group) const {
    return (row * groups + group) * columns;
  }
  std::int64_t gate_at(std::int64_t row, std::int64_t group) const {
    return row * gate_stride + first + group * columns;
  }
  std::int64_t weight_at(std::int64_t group) const { return shared ? 0 : group * columns; }
  std::int64_t rows, groups, columns, gate_stride, first;
  bool shared;  // all groups share one weight
};

template <bool kNormFirst, class T>
inline void gated_forward_group(T* y, const GatedGroup<T>& group, float epsilon) {
  const T *const x = group.x, *const gate = group.gate;
  const float* const weight = group.weight;
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < group.columns; ++i) {
    const float v = kNormFirst ? load(x + i) : load(x + i) * silu_of(load(gate + i));
    squares += v * v;
  }
  const float factor = 1.0f / std::sqrt(squares / static_cast<float>(group.columns) + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < group.columns; ++i) {
    const float silu = silu_of(load(gate + i));
    const float v = kNormFirst ? load(x + i) : load(x + i) * silu;
    const float scaled = rounded<T>(v * factor) * weight[i];
    store(y + i, kNormFirst ? scaled * silu : scaled);
  }
}

/// Computes dx and dgate of a group, and adds to dweight. dx may alias dy.
template <bool kNormFirst, class T>
inline void gated_backward_group(T* dx, T* dgate, float* dweight, const T* dy,
                                 const GatedGroup<T>& group, float epsilon) {
  const T *const x = group.x, *const gate = group.gate;
  const float* const weight = group.weight;
  const auto of_columns = 1.0f / static_cast<float>(group.columns);
  float squares = 0, projection = 0;
#pragma omp simd reduction(+ : squares, projection)
  for (std::int64_t i = 0; i < group.columns; ++i) {
    const float gated = load(x + i) * silu_of(load(gate + i));
    const float v = kNormFirst ? load(x + i) : gated;
    squares += v * v;
    projection += load(dy + i) * weight[i] * gated;
  }
  const float rstd = 1.0f / std::sqrt(squares * of_columns + epsilon);
  const float mean = projection * rstd * of_columns;
#pragma omp simd
  for (std::int64_t i = 0; i < group.columns; ++i) {
    const float z = load(gate + i), sigma = sigmoid(z), silu = z * sigma;
    const float slope = sigma * (1.0f + z * (1.0f - sigma)), value = load(x + i);
    const float g = load(dy + i), scaled = g * weight[i];
    const float normed = (kNormFirst ? value : value * silu) * rstd;
    const float dv = ((kNormFirst ? scaled * silu : scaled) - normed * mean) * rstd;
    dweight[i] += kNormFirst ? g * normed * silu : g * normed;
    store(dx + i, kNormFirst ? dv : dv * silu);
    store(dgate + i, (kNormFirst ? scaled * normed : dv * value) * slope);
  }
}

/// Calls function with the order of norm and gate as a compile-time constant.
template <class Function>
void with_order(const GatedNormSpec& spec, const Function& function) {
  if (spec.norm_first) return function(std::true_type());
  function(std::false_type());
}

}  // namespace

void gated_norm_forward(const Tensor& y, const Tensor& x, const Tensor& gate, std::int64_t first,
                        const Tensor& weight, GatedNormSpec spec, const Stream&) {
  const GroupPlaces places(x, gate, first, weight, spec);
  const float* const gains = weight.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const T *const in = x.data<T>(), *const gates = gate.data<T>();
    with_order(spec, [&](auto norm_first) {
      for_each_row(places.rows, x.size(1), [=](std::int64_t row) {
        for (std::int64_t group = 0; group < places.groups; ++group) {
          const std::int64_t at = places.x_at(row, group);
          gated_forward_group<norm_first.value, T>(
              out + at,
              {in + at, gates + places.gate_at(row, group), gains + places.weight_at(group),
               places.columns},
              spec.epsilon);
        }
      });
    });
  });
}

void gated_norm_backward(const Tensor& dx, const Tensor& dgate, const Tensor& dweight,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& gate,
                         std::int64_t first, const Tensor& weight, GatedNormSpec spec,
                         const Stream& stream) {
  const GroupPlaces places(x, gate, first, weight, spec);
  const ColumnSums sums(places.rows, x.size(1), weight.size(0), stream);
  if (simulated(stream)) return;
  const float* const gains = weight.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T *const out = dx.data<T>(), *const gate_out = dgate.data<T>();
    const T *const gradient = dy.data<T>(), *const in = x.data<T>(), *const gates = gate.data<T>();
    with_order(spec, [&](auto norm_first) {
      sums.for_rows([=](float* line, std::int64_t row) {
        for (std::int64_t group = 0; group < places.groups; ++group) {
          const std::int64_t at = places.x_at(row, group), gate_at = places.gate_at(row, group),
                             weight_at = places.weight_at(group);
          gated_backward_group<norm_first.value, T>(
              out + at, gate_out + gate_at, line + weight_at, gradient + at,
              {in + at, gates + gate_at, gains + weight_at, places.columns}, spec.epsilon);
        }
      });
    });
  });
  sums.add_to(dweight, 0, mode == GradientMode::kAccumulate);
}

}  // namespace hybrid_trainer::kernels::cpu
