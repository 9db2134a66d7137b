#include "kernels/updates/predicted_update.h"

#include "kernels/quantized/quantization.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

const Shape kFlightShapes[] = {{1, 1}, {777}, {37, 65}, {3, 5, 100}, {12, 1030}};

/// A weight with pending gradients, every second of which has rows and columns.
struct FlightCase {
  FlightCase(const Shape& shape, std::uint64_t count, const Stream& stream)
      : matrix(Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, stream).as_rows().shape()),
        base(random_tensor(shape, DType::kF32, 1, stream)),
        momentum(random_tensor(shape, DType::kF32, 2, stream, 0.1)),
        rows(random_squares({matrix[0]}, 3, stream)),
        columns(random_squares({matrix[1]}, 4, stream)) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool factored = i % 2 == 0;
      gradients.push_back({random_tensor(shape, DType::kF32, 10 + i, stream),
                           factored ? random_squares({matrix[0]}, 30 + i, stream) : Tensor(),
                           factored ? random_squares({matrix[1]}, 50 + i, stream) : Tensor(),
                           0.5f + 0.1f * static_cast<float>(i), 0.01f * static_cast<float>(1 + i)});
    }
  }
  Shape matrix;
  Tensor base, momentum, rows, columns;
  std::vector<GradientInFlight> gradients;
};

double number(float x) { return static_cast<double>(x); }

/// rows_r·columns_c / (mean(rows) + 1e-30), or zeros.
Values factored(const Tensor& rows, const Tensor& columns, std::int64_t elements) {
  if (!rows) return Values(static_cast<std::size_t>(elements));
  const Values row = values_of(rows), column = values_of(columns);
  double sum = 0;
  for (const double one : row) sum += one;
  Values result;
  for (const double r : row) {
    for (const double c : column)
      result.push_back(r * c / (sum / static_cast<double>(row.size()) + 1e-30));
  }
  return result;
}

/// The formulas in the header. Each gradient changes the weights and, with decays_base, all decay.
Values wanted_adamw(const FlightCase& c, Values m, bool decays_base, const AdamWSettings& s) {
  const double beta1 = number(s.beta1), beta2 = number(s.beta2);
  const Values base = values_of(c.base);
  Values v = factored(s.step > 0 ? c.rows : Tensor(), c.columns, c.base.elements());
  Values moved(base.size());
  double kept_by_all = 1;
  for (std::size_t k = 0; k < c.gradients.size(); ++k) {
    const GradientInFlight& one = c.gradients[k];
    const Values g = values_of(one.gradient),
                 q = factored(one.rows, one.columns, c.base.elements());
    const double kept = 1 - number(one.learning_rate) * number(s.weight_decay);
    const double t = static_cast<double>(s.step) + static_cast<double>(k + 1);
    kept_by_all *= kept;
    for (std::size_t i = 0; i < base.size(); ++i) {
      const double scaled = number(one.scale) * g[i];
      m[i] = beta1 * m[i] + (1 - beta1) * scaled;
      v[i] = beta2 * v[i] + (1 - beta2) * (one.rows ? q[i] : scaled * scaled);
      const double mean = m[i] / (1 - std::pow(beta1, t)),
                   root = std::sqrt(v[i] / (1 - std::pow(beta2, t)));
      moved[i] = moved[i] * kept - number(one.learning_rate) * mean / (root + number(s.epsilon));
    }
  }
  for (std::size_t i = 0; i < base.size(); ++i)
    moved[i] += base[i] * (decays_base ? kept_by_all : 1);
  return moved;
}

Values wanted_lion(const FlightCase& c, Values m, bool decays_base, const LionSettings& s) {
  const Values base = values_of(c.base);
  Values moved(base.size());
  double kept_by_all = 1;
  for (const GradientInFlight& one : c.gradients) {
    const Values g = values_of(one.gradient);
    const double kept = 1 - number(one.learning_rate) * number(s.weight_decay);
    kept_by_all *= kept;
    for (std::size_t i = 0; i < base.size(); ++i) {
      const double scaled = number(one.scale) * g[i];
      const double mixture = number(s.beta1) * m[i] + (1 - number(s.beta1)) * scaled;
      moved[i] = moved[i] * kept - std::copysign(number(one.learning_rate), mixture);
      m[i] = number(s.beta2) * m[i] + (1 - number(s.beta2)) * scaled;
    }
  }
  for (std::size_t i = 0; i < base.size(); ++i)
    moved[i] += base[i] * (decays_base ? kept_by_all : 1);
  return moved;
}

/// Compares predict(w, m, decays_base) with wanted(m, decays_base) for each kind of m and w.
void expect_predictions(
    const FlightCase& c, const Stream& stream,
    const std::function<void(const Tensor&, const StartingMomentum&, bool)>& predict,
    const std::function<Values(const Values&, bool)>& wanted) {
  const std::int64_t n = c.base.elements();
  const Tensor codes = Tensor::zeros(c.base.shape(), DType::kU8, MemoryKind::kWorkspace, stream),
               scales = Tensor::zeros({quantization_blocks(n)}, DType::kF32, MemoryKind::kWorkspace,
                                      stream),
               decoded = Tensor::empty_like(c.base, MemoryKind::kWorkspace, stream);
  quantize(codes, scales, c.momentum, QuantizationMap::kSigned, stream);
  dequantize(decoded, codes, scales, QuantizationMap::kSigned, stream);
  const std::pair<StartingMomentum, Values> starts[] = {{{}, Values(static_cast<std::size_t>(n))},
                                                        {{c.momentum, {}}, values_of(c.momentum)},
                                                        {{codes, scales}, values_of(decoded)}};
  for (const auto& [start, m] : starts) {
    for (const bool decays_base : {false, true}) {
      for (const DType dtype : kRealTypes) {
        SCOPED_TRACE(concat(c.base.shape().text(), ", ", c.gradients.size(), " gradients, ",
                            name_of(dtype), decays_base ? ", decayed" : ""));
        const Tensor w = Tensor::empty(c.base.shape(), dtype, MemoryKind::kParameters, stream);
        predict(w, start, decays_base);
        expect_close(w, wanted(m, decays_base), dtype == DType::kF32 ? 2e-6 : 4e-3);
      }
    }
  }
}

TEST(PredictedUpdate, WritesOneSquareSumPerGradient) {
  const Stream stream = cpu_stream();
  const FlightCase c({300, 130}, 3, stream);
  const Tensor room = Tensor::empty({8}, DType::kF64, MemoryKind::kWorkspace, stream);
  std::fill_n(room.data<double>(), 8, -7.0);
  in_flight_squares(room.rows(0, 3), c.gradients, 0.9f, stream);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(room.data<double>()[i] > 0, i < 3) << i;
}

TEST(PredictedUpdate, AdamWMatchesReference) {
  const Stream stream = cpu_stream();
  for (const Shape& shape : kFlightShapes) {
    for (const std::uint64_t count : {0u, 1u, 2u, 8u}) {
      const FlightCase c(shape, count, stream);
      for (const std::int64_t step : {0, 5}) {
        const AdamWSettings settings{
            .beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 1e-6f, .weight_decay = 0.1f, .step = step};
        const bool seen = step > 0;
        expect_predictions(
            c, stream,
            [&](const Tensor& w, const StartingMomentum& m, bool decays_base) {
              predicted_adamw(w, c.base, m, seen ? c.rows : Tensor(), seen ? c.columns : Tensor(),
                              c.gradients, decays_base, settings, stream);
            },
            [&](const Values& m, bool decays_base) {
              return wanted_adamw(c, m, decays_base, settings);
            });
      }
    }
  }
}

TEST(PredictedUpdate, LionMatchesReference) {
  const Stream stream = cpu_stream();
  const LionSettings settings{.beta1 = 0.8f, .beta2 = 0.95f, .weight_decay = 0.1f};
  for (const Shape& shape : kFlightShapes) {
    for (const std::uint64_t count : {0u, 1u, 8u}) {
      const FlightCase c(shape, count, stream);
      expect_predictions(
          c, stream,
          [&](const Tensor& w, const StartingMomentum& m, bool decays_base) {
            predicted_lion(w, c.base, m, c.gradients, decays_base, settings, stream);
          },
          [&](const Values& m, bool decays_base) {
            return wanted_lion(c, m, decays_base, settings);
          });
    }
  }
}

TEST(PredictedUpdate, VectorUpdateEqualsAdamW) {
  const Stream stream = cpu_stream();
  FlightCase c({300}, 1, stream);
  GradientInFlight& one = c.gradients.front();
  one.rows = one.columns = {};
  AdamWSettings settings{.learning_rate = one.learning_rate,
                         .weight_decay = 0.1f,
                         .gradient_scale = one.scale,
                         .step = 5};
  const Tensor v = random_squares({300}, 9, stream);
  row_and_column_means(c.rows, c.columns, v, 1, false, stream);
  const Tensor w = clone(c.base, stream), m = clone(c.momentum, stream);
  settings.step = 6;
  adamw_update(w, m, v, one.gradient, {}, settings, stream);
  settings.step = 5;
  predicted_adamw(c.base, c.base, {c.momentum, {}}, c.rows, c.columns, c.gradients, true, settings,
                  stream);
  expect_close(c.base, values_of(w), 1e-6, "in place");
}

TEST(PredictedUpdate, MeansMatchReferenceAndRepeatBitForBit) {
  const Stream stream = cpu_stream();
  for (const Shape& shape : {Shape{1, 1}, Shape{777}, Shape{3, 50, 100}, Shape{300, 123}}) {
    const FlightCase c(shape, 0, stream);
    const Values x = values_of(c.base);
    const auto width = static_cast<std::size_t>(c.matrix[1]);
    for (const bool squares : {false, true}) {
      Values rows(static_cast<std::size_t>(c.matrix[0])), columns(width);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double one = squares ? 0.25 * x[i] * x[i] : x[i];
        rows[i / width] += one / static_cast<double>(c.matrix[1]);
        columns[i % width] += one / static_cast<double>(c.matrix[0]);
      }
      row_and_column_means(c.rows, c.columns, c.base, 0.5f, squares, stream);
      expect_close(c.rows, rows, 1e-6, concat("rows of ", shape.text()));
      expect_close(c.columns, columns, 1e-6, concat("columns of ", shape.text()));
      const Tensor again = clone(c.rows, stream), columns_again = clone(c.columns, stream);
      row_and_column_means(again, columns_again, c.base, 0.5f, squares, stream);
      expect_same_bits(again, c.rows);
      expect_same_bits(columns_again, c.columns);
    }
  }
}

TEST(PredictedUpdate, MuonMatchesReference) {
  const Stream stream = cpu_stream();
  constexpr double kBeta = 0.9f, kScale = 0.3f, kDecay = 0.2f;
  for (const Shape& shape : {Shape{1, 1}, Shape{37, 65}, Shape{300, 123}}) {
    for (const std::uint64_t count : {1u, 3u, 8u}) {
      const FlightCase c(shape, count, stream);
      const Tensor squares = Tensor::empty({static_cast<std::int64_t>(count)}, DType::kF64,
                                           MemoryKind::kWorkspace, stream);
      const Tensor momentum_squares =
          Tensor::empty({1}, DType::kF64, MemoryKind::kWorkspace, stream);
      *momentum_squares.data<double>() = 123;
      in_flight_squares(squares, c.gradients, 0.9f, stream);
      Values moved(static_cast<std::size_t>(c.base.elements())), d(moved.size()), in(moved.size());
      for (std::size_t k = 0; k < count; ++k) {
        const GradientInFlight& one = c.gradients[k];
        const Values g = values_of(one.gradient);
        double square = 0;
        for (std::size_t i = 0; i < d.size(); ++i) {
          d[i] = kBeta * d[i] + number(one.scale) * g[i];
          in[i] = number(one.scale) * g[i] + kBeta * d[i];
          square += in[i] * in[i];
        }
        EXPECT_NEAR(squares.data<double>()[k], square, 1e-6 * square);
        const double rate = number(one.learning_rate);
        const double left = 123 * std::pow(kBeta, 2 * (static_cast<double>(k) + 2));
        const double size =
            std::sqrt((left + square) / static_cast<double>(std::min(shape[0], shape[1])));
        for (std::size_t i = 0; i < d.size(); ++i)
          moved[i] = moved[i] * (1 - rate * kDecay) - rate * kScale * in[i] / size;
      }
      const Values base = values_of(c.base);
      for (std::size_t i = 0; i < d.size(); ++i) moved[i] += base[i];
      for (const DType dtype : kRealTypes) {
        const Tensor w = Tensor::empty(shape, dtype, MemoryKind::kParameters, stream);
        predicted_muon(w, c.base, momentum_squares, squares, c.gradients, 0.9f, 0.3f, 0.2f, stream);
        expect_close(w, moved, dtype == DType::kF32 ? 2e-6 : 4e-3, shape.text());
      }
    }
  }
}

TEST(PredictedUpdate, WithoutPendingUpdateKeepsBase) {
  const Stream stream = cpu_stream();
  FlightCase c({37, 65}, 2, stream);
  const Tensor w = Tensor::empty_like(c.base, MemoryKind::kParameters, stream);
  const Tensor zero = Tensor::zeros({1}, DType::kF64, MemoryKind::kWorkspace, stream);
  const Tensor squares = Tensor::zeros({2}, DType::kF64, MemoryKind::kWorkspace, stream);
  predicted_muon(w, c.base, zero, squares, c.gradients, 0.9f, 1, 0.1f, stream);
  expect_same_bits(w, c.base);
  fill_zero(w, stream);
  in_flight_squares({}, {}, 0.9f, stream);
  predicted_muon(w, c.base, zero, {}, {}, 0.9f, 1, 0.1f, stream);
  expect_same_bits(w, c.base);
  fill_zero(w, stream);
  predicted_adamw(w, c.base, {c.momentum, {}}, c.rows, c.columns, {}, true, {}, stream);
  expect_same_bits(w, c.base);
}

TEST(PredictedUpdate, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  FlightCase c({6, 8}, 9, stream);
  const Tensor &w = c.base, half = random_tensor({6, 8}, DType::kBF16, 1, stream);
  const std::span<const GradientInFlight> all = c.gradients, some = all.first(2);
  const auto adamw = [&](const Tensor& to, const StartingMomentum& m, const Tensor& rows,
                         std::span<const GradientInFlight> g, std::int64_t step = 1) {
    predicted_adamw(to, w, m, rows, c.columns, g, true, {.step = step}, stream);
  };
  EXPECT_NO_THROW(adamw(w, {}, c.rows, some));
  EXPECT_NO_THROW(adamw(w, {}, {}, some, 0));
  EXPECT_THROW(adamw(w, {}, {}, some), ShapeMismatch);
  EXPECT_THROW(adamw(w, {}, c.columns, some), ShapeMismatch);
  EXPECT_THROW(adamw(w, {}, c.rows, some, -1), Error);
  EXPECT_THROW(adamw(w, {}, c.rows, all), Error);
  EXPECT_THROW(adamw(w.rows(0, 3), {}, c.rows, some), ShapeMismatch);
  EXPECT_THROW(adamw(w, {half, {}}, c.rows, some), Error);
  EXPECT_THROW(adamw(w, {w.rows(0, 3), {}}, c.rows, some), ShapeMismatch);
  const Tensor codes = Tensor::zeros({6, 8}, DType::kU8, MemoryKind::kWorkspace, stream);
  EXPECT_THROW(adamw(w, {codes, {}}, c.rows, some), ShapeMismatch);
  EXPECT_THROW(predicted_lion(w, half, {}, some, true, {}, stream), Error);
  EXPECT_THROW(predicted_lion(w, w, {}, all, true, {}, stream), Error);
  EXPECT_THROW(row_and_column_means(c.columns, c.rows, w, 1, true, stream), ShapeMismatch);
  EXPECT_THROW(in_flight_squares(c.rows, some, 0.9f, stream), Error);
  const Tensor squares = Tensor::zeros({2}, DType::kF64, MemoryKind::kWorkspace, stream);
  EXPECT_THROW(predicted_muon(w, w, squares, squares, some, 0.9f, 1, 0, stream), ShapeMismatch);
  c.gradients[1].columns = c.columns;
  EXPECT_THROW(adamw(w, {}, c.rows, some), ShapeMismatch);
  c.gradients[1].gradient = half;
  EXPECT_THROW(in_flight_squares(squares, some, 0.9f, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
