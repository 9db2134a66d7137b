#include "kernels/updates/optimizer_update.h"

#include "src/core/machine.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// The formulas in the header, computed in double.
struct AdafactorReference {
  void step(const Values& g, std::size_t columns, double lr, double decay, double weight_decay) {
    const std::size_t height = w.size() / columns;
    Values row_means(height), column_means(columns);
    for (std::size_t i = 0; i < w.size(); ++i) {
      row_means[i / columns] += (g[i] * g[i] + 1e-30) / static_cast<double>(columns);
      column_means[i % columns] += (g[i] * g[i] + 1e-30) / static_cast<double>(height);
    }
    double mean_row = 0;
    for (std::size_t r = 0; r < height; ++r) {
      row[r] = decay * row[r] + (1 - decay) * row_means[r];
      mean_row += row[r] / static_cast<double>(height);
    }
    for (std::size_t c = 0; c < columns; ++c)
      column[c] = decay * column[c] + (1 - decay) * column_means[c];
    Values u(w.size());
    double squares = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      u[i] = g[i] / std::sqrt(row[i / columns] * column[i % columns] / mean_row);
      squares += u[i] * u[i];
    }
    size = std::sqrt(squares / static_cast<double>(w.size()));
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = w[i] * (1 - lr * weight_decay) - lr * u[i] / std::max(1.0, size);
  }
  Values w, row, column;
  double size = 0;  // of the last update before clipping
};

/// Large gradients after small ones, whose updates are clipped, and small ones after large ones.
TEST(SharedMomentUpdate, AdafactorMatchesReferenceWithClipping) {
  const Stream stream = cpu_stream();
  for (const Shape& shape : {Shape{1, 3}, Shape{37, 65}, Shape{300, 130}}) {
    const auto rows = shape[0], columns = shape[1];
    const Tensor w = random_tensor(shape, DType::kF32, 1, stream);
    const Tensor row = Tensor::zeros({rows}, DType::kF32, MemoryKind::kOptimizerState, stream),
                 column =
                     Tensor::zeros({columns}, DType::kF32, MemoryKind::kOptimizerState, stream);
    AdafactorReference reference{values_of(w), Values(static_cast<std::size_t>(rows)),
                                 Values(static_cast<std::size_t>(columns))};
    int clipped = 0, whole = 0;
    const double sizes[] = {0.1, 1, 3, 0.5, 0.05};
    for (int step = 0; step < 5; ++step) {
      const Tensor g = random_tensor(shape, DType::kF32, static_cast<std::uint64_t>(10 + step),
                                     stream, sizes[step]);
      Values scaled = values_of(g);
      for (double& one : scaled) one *= 0.5;
      const double decay = step == 0 ? 0 : 0.75;
      reference.step(scaled, static_cast<std::size_t>(columns), 0.125, decay, 0.25);
      (reference.size > 1.1 ? clipped : whole) += 1;
      adafactor_update(w, row, column, g, {},
                       {.learning_rate = 0.125f,
                        .decay = static_cast<float>(decay),
                        .weight_decay = 0.25f,
                        .gradient_scale = 0.5f},
                       stream);
      expect_close(w, reference.w, 1e-5, concat(shape.text(), " step ", step));
      expect_close(row, reference.row, 1e-5);
      expect_close(column, reference.column, 1e-5);
    }
    EXPECT_GE(clipped, 2);
    EXPECT_GE(whole, 2);
  }
}

TEST(SharedMomentUpdate, AdamMiniMatchesReferenceForBlocks) {
  const Stream stream = cpu_stream();
  const std::int64_t blocks = 5, length = 77;
  const Shape shape{blocks, length};
  const Tensor w = random_tensor(shape, DType::kF32, 1, stream),
               m = Tensor::zeros(shape, DType::kF32, MemoryKind::kOptimizerState, stream),
               v = Tensor::zeros({blocks}, DType::kF32, MemoryKind::kOptimizerState, stream),
               copy = Tensor::zeros(shape, DType::kBF16, MemoryKind::kParameters, stream),
               direction = Tensor::zeros(shape, DType::kF32, MemoryKind::kPredictor, stream);
  Values wanted = values_of(w), mean(wanted.size()), square(static_cast<std::size_t>(blocks));
  AdamWSettings settings{.learning_rate = 0.01f,
                         .beta1 = 0.75f,
                         .beta2 = 0.875f,
                         .epsilon = 0.125f,
                         .weight_decay = 0.25f,
                         .gradient_scale = 0.5f};
  for (int step = 1; step <= 3; ++step) {
    settings.step = step;
    const Tensor g = random_tensor(shape, DType::kF32, static_cast<std::uint64_t>(step), stream);
    const Values gradient = values_of(g);
    const double first = 1 - std::pow(0.75, step), second = 1 - std::pow(0.875, step);
    Values wanted_direction(wanted.size());
    for (std::size_t b = 0; b < square.size(); ++b) {
      double sum = 0;
      for (std::size_t i = 0; i < 77; ++i) sum += std::pow(0.5 * gradient[b * 77 + i], 2);
      square[b] = 0.875 * square[b] + 0.125 * sum / 77;
      for (std::size_t i = b * 77; i < (b + 1) * 77; ++i) {
        mean[i] = 0.75 * mean[i] + 0.25 * 0.5 * gradient[i];
        wanted_direction[i] = -0.01 * (mean[i] / first) / (std::sqrt(square[b] / second) + 0.125);
        wanted[i] = wanted[i] * (1 - 0.01 * 0.25) + wanted_direction[i];
      }
    }
    adam_mini_update(w, m, v, g, copy, settings, stream);
    expect_close(w, wanted, 1e-6);
    expect_close(m, mean, 1e-6);
    expect_close(v, square, 1e-6);
    expect_close(copy, wanted, tolerance_of(DType::kBF16));
    adam_mini_direction(direction, m, v, settings, stream);
    expect_close(direction, wanted_direction, 1e-6);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
