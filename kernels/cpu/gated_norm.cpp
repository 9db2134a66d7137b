#include "hybrid_trainer/kernels/gated_norm.h"

#include <cmath>

#include "kernels/backend.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// A group of columns of a row, and the weights of its columns.
template <class T>
struct GatedGroup {
  const T *x, *gate;
  const float* weight;
  std::int64_t columns;
  bool norm_first;
  /// What is normed.
  float normed(std::int64_t i) const {
    const float z = load(gate + i);
    return norm_first ? load(x + i) : load(x + i) * (z * sigmoid(z));
  }
};

/// Where the groups of rows lie.
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
  bool shared;  // the weights, by all groups
};

template <class T>
inline void gated_forward_group(T* y, const GatedGroup<T>& group, float epsilon) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < group.columns; ++i) squares += group.normed(i) * group.normed(i);
  const float factor = 1.0f / std::sqrt(squares / static_cast<float>(group.columns) + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < group.columns; ++i) {
    T quotient;
    store(&quotient, group.normed(i) * factor);
    const float z = load(group.gate + i), scaled = load(&quotient) * group.weight[i];
    store(y + i, group.norm_first ? scaled * (z * sigmoid(z)) : scaled);
  }
}

/// Adds to dweight. dx may be dy.
template <class T>
inline void gated_backward_group(T* dx, T* dgate, float* dweight, const T* dy,
                                 const GatedGroup<T>& group, float epsilon) {
  const bool norm_first = group.norm_first;
  const auto of_columns = 1.0f / static_cast<float>(group.columns);
  float squares = 0, projection = 0;
#pragma omp simd reduction(+ : squares, projection)
  for (std::int64_t i = 0; i < group.columns; ++i) {
    const float z = load(group.gate + i), silu = z * sigmoid(z), x = load(group.x + i);
    const float v = norm_first ? x : x * silu;
    squares += v * v;
    projection += load(dy + i) * group.weight[i] * x * silu;
  }
  const float rstd = 1.0f / std::sqrt(squares * of_columns + epsilon);
  const float mean = projection * rstd * of_columns;
#pragma omp simd
  for (std::int64_t i = 0; i < group.columns; ++i) {
    const float z = load(group.gate + i), sigma = sigmoid(z), silu = z * sigma;
    const float slope = sigma * (1.0f + z * (1.0f - sigma)), x = load(group.x + i);
    const float g = load(dy + i), scaled = g * group.weight[i];
    const float normed = (norm_first ? x : x * silu) * rstd;
    const float dv = ((norm_first ? scaled * silu : scaled) - normed * mean) * rstd;
    dweight[i] += norm_first ? g * normed * silu : g * normed;
    store(dx + i, norm_first ? dv : dv * silu);
    store(dgate + i, (norm_first ? scaled * normed : dv * x) * slope);
  }
}

}  // namespace

void gated_norm_forward(const Tensor& y, const Tensor& x, const Tensor& gate, std::int64_t first,
                        const Tensor& weight, GatedNormSpec spec, const Stream&) {
  const GroupPlaces places(x, gate, first, weight, spec);
  const float* const gains = weight.data<float>();
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = y.data<T>();
    const T *const in = x.data<T>(), *const gates = gate.data<T>();
    parallel_rows(places.rows, x.size(1), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t group = 0; group < places.groups; ++group) {
          const std::int64_t at = places.x_at(row, group);
          gated_forward_group<T>(out + at,
                                 {in + at, gates + places.gate_at(row, group),
                                  gains + places.weight_at(group), places.columns, spec.norm_first},
                                 spec.epsilon);
        }
      }
    });
  });
}

void gated_norm_backward(const Tensor& dx, const Tensor& dgate, const Tensor& dweight,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& gate,
                         std::int64_t first, const Tensor& weight, GatedNormSpec spec,
                         const Stream& stream) {
  const GroupPlaces places(x, gate, first, weight, spec);
  const std::int64_t least = min_rows_per_thread(x.size(1));
  const ColumnSums sums(share_count(places.rows, least), weight.size(0), stream);
  if (simulated(stream)) return;
  const float* const gains = weight.data<float>();
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    T *const out = dx.data<T>(), *const gate_out = dgate.data<T>();
    const T *const gradient = dy.data<T>(), *const in = x.data<T>(), *const gates = gate.data<T>();
    const auto rows = [=, &sums](std::int64_t share, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t group = 0; group < places.groups; ++group) {
          const std::int64_t at = places.x_at(row, group), gate_at = places.gate_at(row, group),
                             weight_at = places.weight_at(group);
          gated_backward_group<T>(
              out + at, gate_out + gate_at, sums.line(share) + weight_at, gradient + at,
              {in + at, gates + gate_at, gains + weight_at, places.columns, spec.norm_first},
              spec.epsilon);
        }
      }
    };
    parallel_shares(places.rows, least, rows);
  });
  sums.add_to(dweight, 0, mode == GradientMode::kAccumulate);
}

}  // namespace hybrid_trainer::kernels::cpu
