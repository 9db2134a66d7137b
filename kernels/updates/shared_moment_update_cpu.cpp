#include "kernels/backend/share_sums.h"
#include "kernels/backend/vector_math.h"
#include "kernels/updates/optimizer_update.h"
#include "kernels/updates/update_step.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// weights[i] = next(weights[i], i) for n elements, also written to `copies` unless it is null.
template <class Next>
void write_weights(float* weights, BFloat16* copies, std::int64_t n, const Next& next) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) weights[i] = next(weights[i], i);
  if (copies == nullptr) return;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(copies + i, weights[i]);
}

double sum_of_squares_of(const float* x, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

/// Gradients and row moments of a matrix whose second moments are factored into rows and columns.
struct FactoredRows {
  const float* gradients;
  float* rows;
  std::int64_t columns;
  float scale;

  /// Adds the row's squares to `line` and updates the row's moment with their mean.
  void gather(float* line, std::int64_t row, float decay) const {
    const float sum = add_row(line, gradients + row * columns, columns,
                              [this](float g) { return squared(g * scale); });
    rows[row] = decay * rows[row] + (1.0f - decay) * (sum / static_cast<float>(columns));
  }
  /// Returns the sum of u² before clipping, over rows [begin, end). `roots` has 1/√columns.
  double update_squares(const float* roots, std::int64_t begin, std::int64_t end,
                        float mean_row) const {
    double total = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const gradient = gradients + row * columns;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = 0; i < columns; ++i) {
        const float u = gradient[i] * scale * roots[i];
        sum += u * u;
      }
      total += static_cast<double>(sum) * static_cast<double>(mean_row / rows[row]);
    }
    return total;
  }
};

}  // namespace

void adam_mini_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                      const Tensor& compute_copy, const AdamWSettings& settings, const Stream&) {
  const std::int64_t blocks = v.elements(), length = w.elements() / blocks;
  const AdamMiniStep step(settings, length);
  float* const weights = w.data<float>();
  float* const means = m.data<float>();
  float* const squares = v.data<float>();
  const float* const gradients = g.data<float>();
  BFloat16* const copies = optional_data<BFloat16>(compute_copy);
  for_each_row(blocks, length, [=](std::int64_t block) {
    const std::int64_t at = block * length;
    const float* const gradient = gradients + at;
    float* const mean = means + at;
    squares[block] = step.square(squares[block], sum_of_squares_of(gradient, length));
    const float rate = step.rate(squares[block]);
    write_weights(
        weights + at, copies == nullptr ? nullptr : copies + at, length,
        [=](float weight, std::int64_t i) { return step(weight, gradient[i], mean[i], rate); });
  });
}

void adam_mini_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                         const AdamWSettings& settings, const Stream&) {
  const std::int64_t blocks = v.elements(), length = m.elements() / blocks;
  const AdamMiniStep step(settings, length);
  float* const out = direction.data<float>();
  const float* const mean = m.data<float>();
  const float* const squares = v.data<float>();
  for_each_row(blocks, length, [=](std::int64_t block) {
    const float rate = step.rate(squares[block]);
#pragma omp simd
    for (std::int64_t i = block * length; i < (block + 1) * length; ++i) out[i] = rate * mean[i];
  });
}

void adafactor_update(const Tensor& w, const Tensor& rows, const Tensor& columns, const Tensor& g,
                      const Tensor& compute_copy, const AdafactorSettings& settings,
                      const Stream& stream) {
  const std::int64_t height = rows.elements(), width = columns.elements();
  const std::int64_t least = min_rows_per_thread(width);
  const std::int64_t shares = share_count(height, least);
  const ColumnSums sums(height, width, width, stream);
  const Tensor inverse_roots = empty_workspace(width, DType::kF32, stream);
  const Tensor share_squares = empty_workspace(shares, DType::kF64, stream);
  if (simulated(stream)) return;
  const FactoredRows matrix{g.data<float>(), rows.data<float>(), width, settings.gradient_scale};
  sums.for_rows([=](float* line, std::int64_t row) { matrix.gather(line, row, settings.decay); });
  float* const roots = inverse_roots.data<float>();
  sums.add_to(inverse_roots, 0, false);
  float* const column = columns.data<float>();
  for (std::int64_t i = 0; i < width; ++i) {
    const float mean = roots[i] / static_cast<float>(height);
    column[i] = settings.decay * column[i] + (1.0f - settings.decay) * mean;
    roots[i] = 1.0f / std::sqrt(column[i]);
  }
  double row_sum = 0;
  for (std::int64_t i = 0; i < height; ++i) row_sum += static_cast<double>(matrix.rows[i]);
  const float mean_row = static_cast<float>(row_sum / static_cast<double>(height));
  double* const squares = share_squares.data<double>();
  parallel_shares(height, least, [=](std::int64_t share, std::int64_t begin, std::int64_t end) {
    squares[share] = matrix.update_squares(roots, begin, end, mean_row);
  });
  double square_sum = 0;
  for (std::int64_t i = 0; i < shares; ++i) square_sum += squares[i];
  const float step_size =
      clipped_rate(settings.learning_rate, square_sum / static_cast<double>(w.elements())) *
      settings.gradient_scale;
  const float kept = 1.0f - settings.learning_rate * settings.weight_decay;
  float* const weights = w.data<float>();
  BFloat16* const copies = optional_data<BFloat16>(compute_copy);
  for_each_row(height, width, [=](std::int64_t row) {
    const std::int64_t at = row * width;
    const float* const gradient = matrix.gradients + at;
    const float rate = step_size * std::sqrt(mean_row / matrix.rows[row]);
    write_weights(weights + at, copies == nullptr ? nullptr : copies + at, width,
                  [=](float weight, std::int64_t i) {
                    return weight * kept - rate * (gradient[i] * roots[i]);
                  });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
