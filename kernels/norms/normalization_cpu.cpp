#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/backend/share_sums.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

struct RowMoments {
  float mean;
  float rstd;
};

template <class T>
inline RowMoments moments_of_row(const T* x, std::int64_t columns, float epsilon) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) sum += load(x + i);
  const float mean = sum / static_cast<float>(columns);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float distance = load(x + i) - mean;
    squares += distance * distance;
  }
  return {mean, 1.0f / std::sqrt(squares / static_cast<float>(columns) + epsilon)};
}

/// Computes dx of one row, and adds to the share's sums for dweight and dbias.
template <class T>
inline void backward_row(T* dx, const T* dy, const T* x, const float* weight, RowMoments moments,
                         bool accumulate, float* dweight, float* dbias, std::int64_t columns) {
  float sum = 0;
  float projection = 0;
#pragma omp simd reduction(+ : sum, projection)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float gradient = load(dy + i);
    const float normalized = (load(x + i) - moments.mean) * moments.rstd;
    dweight[i] += gradient * normalized;
    dbias[i] += gradient;
    sum += gradient * weight[i];
    projection += gradient * weight[i] * normalized;
  }
  const float mean_gradient = sum / static_cast<float>(columns);
  const float mean_projection = projection / static_cast<float>(columns);
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float normalized = (load(x + i) - moments.mean) * moments.rstd;
    const float value =
        (load(dy + i) * weight[i] - mean_gradient - normalized * mean_projection) * moments.rstd;
    store(dx + i, accumulate ? load(dx + i) + value : value);
  }
}

template <class T>
inline float inverse_root_mean_square(const T* x, std::int64_t columns, float epsilon) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < columns; ++i) squares += load(x + i) * load(x + i);
  return 1.0f / std::sqrt(squares / static_cast<float>(columns) + epsilon);
}

template <class T>
inline void rms_forward_row(T* y, const T* x, const float* weight, float factor, bool one_plus,
                            std::int64_t columns) {
  if (one_plus) {
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i)
      store(y + i, load(x + i) * factor * (1.0f + weight[i]));
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    T normalized;
    store(&normalized, load(x + i) * factor);
    store(y + i, load(&normalized) * weight[i]);
  }
}

/// Computes dx of a row and adds to dweight. dx may alias dy. `offset` is added to each weight.
template <class T>
inline void rms_backward_row(T* dx, const T* dy, const T* x, const float* weight, float offset,
                             float rstd, bool accumulate, float* dweight, std::int64_t columns) {
  float projection = 0;
#pragma omp simd reduction(+ : projection)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float part = load(dy + i) * (load(x + i) * rstd);
    dweight[i] += part;
    projection += part * (offset + weight[i]);
  }
  const float mean = projection / static_cast<float>(columns);
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float value = (load(dy + i) * (offset + weight[i]) - load(x + i) * rstd * mean) * rstd;
    store(dx + i, accumulate ? load(dx + i) + value : value);
  }
}

/// Locations of the normalized rows: the rows of a matrix, or some heads of each row.
struct NormPlaces {
  explicit NormPlaces(const Tensor& x) : rows(x.size(0)), stride(x.size(1)), columns(x.size(1)) {}
  NormPlaces(const Tensor& x, HeadRange heads, std::int64_t size)
      : rows(x.size(0) * x.size(1) * heads.count),
        count(heads.count),
        first(heads.first),
        stride(x.size(2)),
        columns(size) {}
  std::int64_t at(std::int64_t row) const {
    return row / count * stride + (first + row % count) * columns;
  }
  std::int64_t rows, count = 1, first = 0, stride, columns;
};

void rms_forward(const NormPlaces& places, const Tensor& y, float* rstd, const Tensor& x,
                 const Tensor& weight, RmsNormSpec spec) {
  const float* const gain = weight.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const T* const in = x.data<T>();
    for_each_row(places.rows, places.columns, [=](std::int64_t row) {
      const std::int64_t at = places.at(row);
      const float factor = inverse_root_mean_square(in + at, places.columns, spec.epsilon);
      rms_forward_row(out + at, in + at, gain, factor, spec.one_plus, places.columns);
      if (rstd != nullptr) rstd[row] = factor;
    });
  });
}

/// Computes rstd from x if it is null.
void rms_backward(const NormPlaces& places, const Tensor& dx, GradientMode input_mode,
                  const Tensor& dweight, GradientMode parameter_mode, const Tensor& dy,
                  const Tensor& x, const float* rstd, const Tensor& weight, RmsNormSpec spec,
                  const Stream& stream) {
  const std::int64_t columns = places.columns;
  const ColumnSums sums(places.rows, columns, columns, stream);
  if (simulated(stream)) return;
  const bool accumulate = input_mode == GradientMode::kAccumulate;
  const float* const gain = weight.data<float>();
  const float offset = spec.one_plus ? 1.0f : 0.0f;
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const out = dx.data<T>();
    const T *const gradient = dy.data<T>(), *const in = x.data<T>();
    sums.for_rows([=](float* line, std::int64_t row) {
      const std::int64_t at = places.at(row);
      const float factor =
          rstd != nullptr ? rstd[row] : inverse_root_mean_square(in + at, columns, spec.epsilon);
      rms_backward_row(out + at, gradient + at, in + at, gain, offset, factor, accumulate, line,
                       columns);
    });
  });
  sums.add_to(dweight, 0, parameter_mode == GradientMode::kAccumulate);
}

}  // namespace

void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, float epsilon, const Stream&) {
  const std::int64_t columns = x.size(1);
  const float* const scale = weight.data<float>();
  const float* const shift = bias.data<float>();
  float* const mean_out = optional_data<float>(mean);
  float* const rstd_out = optional_data<float>(rstd);
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const T* const in = x.data<T>();
    for_each_row(x.size(0), columns, [=](std::int64_t row) {
      const T* const from = in + row * columns;
      T* const to = out + row * columns;
      const RowMoments moments = moments_of_row(from, columns, epsilon);
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i)
        store(to + i, (load(from + i) - moments.mean) * moments.rstd * scale[i] + shift[i]);
      if (mean_out != nullptr) mean_out[row] = moments.mean;
      if (rstd_out != nullptr) rstd_out[row] = moments.rstd;
    });
  });
}

void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream) {
  const std::int64_t columns = x.size(1);
  const ColumnSums sums(x.size(0), columns, 2 * columns, stream);
  if (simulated(stream)) return;
  const bool accumulate = input_mode == GradientMode::kAccumulate;
  const float* const mean_in = mean.data<float>();
  const float* const rstd_in = rstd.data<float>();
  const float* const scale = weight.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const out = dx.data<T>();
    const T* const gradient = dy.data<T>();
    const T* const in = x.data<T>();
    sums.for_rows([=](float* line, std::int64_t row) {
      const std::int64_t at = row * columns;
      backward_row(out + at, gradient + at, in + at, scale, {mean_in[row], rstd_in[row]},
                   accumulate, line, line + columns, columns);
    });
  });
  sums.add_to(dweight, 0, parameter_mode == GradientMode::kAccumulate);
  sums.add_to(dbias, columns, parameter_mode == GradientMode::kAccumulate);
}

void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                      RmsNormSpec spec, const Stream&) {
  rms_forward(NormPlaces(x), y, optional_data<float>(rstd), x, weight, spec);
}

void rms_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                       GradientMode parameter_mode, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, RmsNormSpec spec,
                       const Stream& stream) {
  rms_backward(NormPlaces(x), dx, input_mode, dweight, parameter_mode, dy, x, rstd.data<float>(),
               weight, spec, stream);
}

void rms_norm_heads_forward(const Tensor& x, HeadRange heads, const Tensor& weight,
                            RmsNormSpec spec, const Stream&) {
  rms_forward(NormPlaces(x, heads, weight.size(0)), x, nullptr, x, weight, spec);
}

void rms_norm_heads_backward(const Tensor& dx, const Tensor& dweight, GradientMode parameter_mode,
                             const Tensor& x, HeadRange heads, const Tensor& weight,
                             RmsNormSpec spec, const Stream& stream) {
  rms_backward(NormPlaces(x, heads, weight.size(0)), dx, GradientMode::kOverwrite, dweight,
               parameter_mode, dx, x, nullptr, weight, spec, stream);
}

}  // namespace hybrid_trainer::kernels::cpu
