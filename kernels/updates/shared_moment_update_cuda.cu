#include "kernels/backend/backend.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/updates/optimizer_update.h"
#include "kernels/updates/update_step.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kPack = kPackSize<float>;
struct BlockMoment {
  float* v;
  const float* g;
  AdamMiniStep step;
  __device__ double term(std::int64_t i, std::int64_t) const {
    return static_cast<double>(g[i]) * static_cast<double>(g[i]);
  }
  __device__ void finish(std::int64_t block, double sum) const {
    v[block] = step.square(v[block], sum);
  }
};

struct MiniUpdate {
  float* w;
  BFloat16* compute_copy;  // or null
  float* m;
  const float* v;
  const float* g;
  std::int64_t length;
  AdamMiniStep step;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float weights[N], mean[N], gradient[N];
    load_pack(weights, w + i);
    load_pack(mean, m + i);
    load_pack(gradient, g + i);
    for (int k = 0; k < N; ++k)
      weights[k] = step(weights[k], gradient[k], mean[k], step.rate(v[(i + k) / length]));
    store_pack(w + i, weights);
    store_pack(m + i, mean);
    if (compute_copy != nullptr) store_pack(compute_copy + i, weights);
  }
};

struct MiniDirection {
  float* direction;
  const float* m;
  const float* v;
  std::int64_t length;
  AdamMiniStep step;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float mean[N];
    load_pack(mean, m + i);
    for (int k = 0; k < N; ++k) mean[k] *= step.rate(v[(i + k) / length]);
    store_pack(direction + i, mean);
  }
};

struct SquareOf {
  float scale;
  __device__ float operator()(float gradient) const { return squared(gradient * scale); }
};

struct RowMoment {
  float* rows;
  const float* g;
  SquareOf square;
  float decay;
  std::int64_t columns;
  __device__ float term(std::int64_t i, std::int64_t) const { return square(g[i]); }
  __device__ void finish(std::int64_t row, double sum) const {
    const float mean = static_cast<float>(sum / static_cast<double>(columns));
    rows[row] = decay * rows[row] + (1.0f - decay) * mean;
  }
};

/// Updates the columns' moments from sums over the columns. Replaces the sums by 1/√moment.
struct ColumnMoment {
  float* columns;
  float* sums;  // then 1/√columns
  float decay;
  std::int64_t rows;
  template <int N>
  __device__ void at(std::int64_t i) const {
    for (int k = 0; k < N; ++k) {
      const float mean = sums[i + k] / static_cast<float>(rows);
      const float moment = decay * columns[i + k] + (1.0f - decay) * mean;
      columns[i + k] = moment;
      sums[i + k] = 1.0f / std::sqrt(moment);
    }
  }
};

struct MeanOf {
  double* result;
  const float* x;
  std::int64_t count;
  __device__ double term(std::int64_t i, std::int64_t) const { return static_cast<double>(x[i]); }
  __device__ void finish(std::int64_t, double sum) const {
    *result = sum / static_cast<double>(count);
  }
};

/// Computes the mean of u² over each row, before clipping.
struct RowUpdate {
  float* squares;
  const float* g;
  const float* rows;
  const float* roots;  // 1/√columns
  const double* mean_row;
  float scale;
  std::int64_t columns;
  __device__ float term(std::int64_t i, std::int64_t column) const {
    const float u = g[i] * scale * roots[column];
    return u * u;
  }
  __device__ void finish(std::int64_t row, double sum) const {
    const float factor = static_cast<float>(*mean_row) / rows[row];
    squares[row] = static_cast<float>(sum / static_cast<double>(columns)) * factor;
  }
};

struct FactoredUpdate {
  float* w;
  BFloat16* compute_copy;  // or null
  const float* g;
  const float* rows;
  const float* roots;
  const double* means;  // means of the row moments, and of u²
  std::int64_t columns;
  float learning_rate, gradient_scale, kept;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float weights[N], gradient[N];
    load_pack(weights, w + i);
    load_pack(gradient, g + i);
    const float step_size = clipped_rate(learning_rate, means[1]) * gradient_scale;
    const float mean_row = static_cast<float>(means[0]);
    for (int k = 0; k < N; ++k) {
      const std::int64_t row = (i + k) / columns, column = (i + k) % columns;
      const float rate = step_size * std::sqrt(mean_row / rows[row]);
      weights[k] = weights[k] * kept - rate * (gradient[k] * roots[column]);
    }
    store_pack(w + i, weights);
    if (compute_copy != nullptr) store_pack(compute_copy + i, weights);
  }
};

}  // namespace

void adam_mini_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                      const Tensor& compute_copy, const AdamWSettings& settings,
                      const Stream& stream) {
  const std::int64_t blocks = v.elements(), length = w.elements() / blocks;
  const AdamMiniStep step(settings, length);
  for_rows(stream, "adam_mini_moment", BlockMoment{v.data<float>(), g.data<float>(), step}, blocks,
           length);
  const MiniUpdate body{w.data<float>(),
                        optional_data<BFloat16>(compute_copy),
                        m.data<float>(),
                        v.data<float>(),
                        g.data<float>(),
                        length,
                        step};
  for_packs<kPack>(stream, "adam_mini_update", w.elements(), body, body.w, body.compute_copy,
                   body.m, body.g);
}

void adam_mini_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                         const AdamWSettings& settings, const Stream& stream) {
  const std::int64_t length = m.elements() / v.elements();
  const MiniDirection body{direction.data<float>(), m.data<float>(), v.data<float>(), length,
                           AdamMiniStep(settings, length)};
  for_packs<kPack>(stream, "adam_mini_direction", m.elements(), body, body.direction, body.m);
}

void adafactor_update(const Tensor& w, const Tensor& rows, const Tensor& columns, const Tensor& g,
                      const Tensor& compute_copy, const AdafactorSettings& settings,
                      const Stream& stream) {
  const std::int64_t height = rows.elements(), width = columns.elements();
  const Tensor inverse_roots = empty_workspace(width, DType::kF32, stream);
  const Tensor row_squares = empty_workspace(height, DType::kF32, stream);
  const Tensor two_means = empty_workspace(2, DType::kF64, stream);
  float* const row = rows.data<float>();
  float* const roots = inverse_roots.data<float>();
  float* const squares = row_squares.data<float>();
  double* const means = two_means.data<double>();
  const float* const gradient = g.data<float>();
  const float scale = settings.gradient_scale;
  for_rows(stream, "adafactor_rows",
           RowMoment{row, gradient, SquareOf{scale}, settings.decay, width}, height, width);
  for_rows(stream, "adafactor_mean", MeanOf{means, row, height}, 1, height);
  column_sums(roots, gradient, height, width, false, stream, SquareOf{scale});
  for_packs<kPack>(stream, "adafactor_columns", width,
                   ColumnMoment{columns.data<float>(), roots, settings.decay, height});
  for_rows(stream, "adafactor_row_updates",
           RowUpdate{squares, gradient, row, roots, means, scale, width}, height, width);
  for_rows(stream, "adafactor_mean", MeanOf{means + 1, squares, height}, 1, height);
  const FactoredUpdate body{w.data<float>(), optional_data<BFloat16>(compute_copy),
                            gradient,        row,
                            roots,           means,
                            width,           settings.learning_rate,
                            scale,           1.0f - settings.learning_rate * settings.weight_decay};
  for_packs<kPack>(stream, "adafactor_update", w.elements(), body, body.w, body.compute_copy,
                   body.g);
}

}  // namespace hybrid_trainer::kernels::cuda
