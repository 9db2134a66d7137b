#include <array>

#include "kernels/backend/share_sums.h"
#include "kernels/backend/vector_math.h"
#include "kernels/quantized/quantized_block_cpu.h"
#include "kernels/updates/predicted_step.h"
#include "kernels/updates/predicted_update.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

struct PieceValues {
  alignas(64) float at[kQuantizationBlock];
};
constexpr PieceValues kZeros{};

/// Adjacent elements of one row and one quantization block.
struct Piece {
  std::int64_t block, first, row, column;
  int count;
};

/// Calls body(piece) for pieces that cover all elements of a matrix with `columns` columns.
template <class Body>
void for_pieces(std::int64_t elements, std::int64_t columns, const Body& body) {
  for_quantized_blocks(elements, [=](std::int64_t block, std::int64_t at, int n) {
    for (int done = 0; done < n;) {
      const std::int64_t first = at + done, row = first / columns, column = first - row * columns;
      const auto count = static_cast<int>(std::min<std::int64_t>(n - done, columns - column));
      body(Piece{block, first, row, column, count});
      done += count;
    }
  });
}

/// Calls body(std::make_index_sequence<count>()): constant counts let values stay in registers.
template <std::size_t N = 0, class Body>
void with_indices(int count, const Body& body) {
  if (count == static_cast<int>(N)) return body(std::make_index_sequence<N>());
  if constexpr (N < kMaxInFlight) with_indices<N + 1>(count, body);
}

/// w = base·base_kept + change. `predict` returns a function from a piece's element to its change.
template <class Predict>
void write_prediction(const Tensor& w, const Tensor& base, float base_kept,
                      const Predict& predict) {
  const std::int64_t columns = base.as_rows().size(1);
  const float* const from = base.data<float>();
  with_indices(predict.flight.count, [&](auto indices) {
    visit_real(w.dtype(), [&]<class T>(T) {
      auto* const to = w.data<T>();
      for_pieces(w.elements(), columns, [=](const Piece& piece) {
        PieceValues space;
        const auto change = predict(indices, piece, space.at);
        const float* const old = from + piece.first;
        auto* const weight = to + piece.first;
#pragma omp simd
        for (int i = 0; i < piece.count; ++i) store(weight + i, old[i] * base_kept + change(i));
      });
    });
  });
}

/// Returns the starting momentum of a piece. Decodes it to `space` if it is quantized.
const float* momentum_of(const MomentumStart& start, const Piece& piece, float* space) {
  if (start.values != nullptr) return start.values + piece.first;
  if (start.codes == nullptr) return kZeros.at;
  const std::uint8_t* const codes = start.codes + piece.first;
  const float scale = start.scales[piece.block];
  const int count = piece.count;
  const InstructionSet set = instruction_set();
  run_on(set, [=] { decode_block<QuantizationMap::kSigned>(space, codes, count, scale, set); });
  return space;
}

/// A second moment, factored into rows and columns. Zero if these are null.
struct FactoredMoment {
  FactoredMoment() = default;
  FactoredMoment(const float* row_means, const float* column_means, std::int64_t height)
      : rows(row_means), columns(column_means) {
    if (rows == nullptr) return;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < height; ++i) sum += static_cast<double>(rows[i]);
    inverse = inverse_mean(sum, height);
  }
  const float* rows = nullptr;
  const float* columns = nullptr;
  float inverse = 0;
};

struct MomentOfPiece {
  MomentOfPiece(const FactoredMoment& moment, const Piece& piece)
      : factor(moment.rows == nullptr ? 0 : moment.rows[piece.row] * moment.inverse),
        column(moment.rows == nullptr ? kZeros.at : moment.columns + piece.column) {}
  float operator()(int i) const { return factor * column[i]; }
  float factor;
  const float* column;
};

/// The AdamW step of a gradient, for the elements of a piece.
struct AdamWOfPiece {
  float operator()(int i, float change, float& m, float& v) const {
    const float scaled = gradient[i] * step.gradient_scale;
    return step_with_square(step, change, gradient[i], own_share * (scaled * scaled) + square(i), m,
                            v);
  }
  AdamWStep step;
  const float* gradient;
  MomentOfPiece square;
  float own_share;  // 1 if the gradient is squared, 0 if the square is factored
};

struct AdamWPrediction {
  template <std::size_t... k>
  auto operator()(std::index_sequence<k...>, const Piece& piece, float* space) const {
    const MomentOfPiece second(second_moment, piece);
    const float* const first = momentum_of(start, piece, space);
    const std::array<AdamWOfPiece, sizeof...(k)> steps{AdamWOfPiece{
        flight.step[k], flight.gradient[k] + piece.first, MomentOfPiece(squares[k], piece),
        squares[k].rows == nullptr ? 1.0f : 0.0f}...};
    return [=](int i) {
      float change = 0;
      [[maybe_unused]] float m = first[i], v = second(i);
      ((change = steps[k](i, change, m, v)), ...);
      return change;
    };
  }
  PredictedAdamW flight;
  MomentumStart start;
  FactoredMoment second_moment;
  FactoredMoment squares[kMaxInFlight] = {};
};

struct LionPrediction {
  template <std::size_t... k>
  auto operator()(std::index_sequence<k...>, const Piece& piece, float* space) const {
    const float* const first = momentum_of(start, piece, space);
    const std::array<LionStep, sizeof...(k)> steps{flight.step[k]...};
    const std::array<const float*, sizeof...(k)> gradients{flight.gradient[k] + piece.first...};
    return [=](int i) {
      float change = 0;
      [[maybe_unused]] float m = first[i];
      ((change = steps[k](change, gradients[k][i], m)), ...);
      return change;
    };
  }
  PredictedLion flight;
  MomentumStart start;
};

struct MuonPrediction {
  template <std::size_t... k>
  auto operator()(std::index_sequence<k...>, const Piece& piece, float*) const {
    const std::array<float, sizeof...(k)> factor{factors[k]...};
    const std::array<const float*, sizeof...(k)> gradients{flight.gradient[k] + piece.first...};
    return [=]([[maybe_unused]] int i) { return (0.0f + ... + (factor[k] * gradients[k][i])); };
  }
  InFlight flight;
  float factors[kMaxInFlight];
};

/// Returns the sum of squares of n elements' Nesterov momentum. Advances d by one gradient.
double add_squares(float* d, const float* gradient, float scale, int n, InFlightMomentum next) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < n; ++i) {
    const float one = next(d[i], gradient[i] * scale);
    sum += static_cast<double>(one) * static_cast<double>(one);
  }
  return sum;
}

}  // namespace

void row_and_column_means(const Tensor& rows, const Tensor& columns, const Tensor& x, float scale,
                          bool squares, const Stream& stream) {
  const std::int64_t height = rows.elements(), width = columns.elements();
  const ColumnSums sums(height, width, width, stream);
  if (simulated(stream)) return;
  const float* const values = x.data<float>();
  float* const row_means = rows.data<float>();
  const auto gather = [&](const auto& term) {
    sums.for_rows([=](float* line, std::int64_t row) {
      row_means[row] = add_row(line, values + row * width, width, term) / static_cast<float>(width);
    });
  };
  if (squares) {
    gather([=](float one) { return one * scale * (one * scale); });
  } else {
    gather([](float one) { return one; });
  }
  sums.add_to(columns, 0, false);
  float* const column_means = columns.data<float>();
  for (std::int64_t i = 0; i < width; ++i) column_means[i] /= static_cast<float>(height);
}

void predicted_adamw(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                     const Tensor& v_rows, const Tensor& v_columns,
                     std::span<const GradientInFlight> gradients, bool decays_base,
                     const AdamWSettings& settings, const Stream&) {
  const std::int64_t height = base.as_rows().size(0);
  const bool has_moment = settings.step > 0;
  AdamWPrediction predict{
      PredictedAdamW(gradients, settings, decays_base), MomentumStart(m),
      has_moment ? FactoredMoment(v_rows.data<float>(), v_columns.data<float>(), height)
                 : FactoredMoment()};
  for (std::size_t k = 0; k < gradients.size(); ++k)
    predict.squares[k] = {predict.flight.rows[k], predict.flight.columns[k], height};
  write_prediction(w, base, predict.flight.base_kept, predict);
}

void predicted_lion(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                    std::span<const GradientInFlight> gradients, bool decays_base,
                    const LionSettings& settings, const Stream&) {
  const LionPrediction predict{PredictedLion(gradients, settings, decays_base), MomentumStart(m)};
  write_prediction(w, base, predict.flight.base_kept, predict);
}

void in_flight_squares(const Tensor& squares, std::span<const GradientInFlight> gradients,
                       float momentum, const Stream& stream) {
  const InFlight flight(gradients);
  const InFlightMomentum next{momentum};
  const std::int64_t elements = gradients.front().gradient.elements();
  const std::int64_t shares = share_count(elements, kMinElementsPerThread);
  const Tensor of_shares = empty_workspace(shares * flight.count, DType::kF64, stream);
  if (simulated(stream)) return;
  double* const sums = of_shares.data<double>();
  parallel_shares(elements, kMinElementsPerThread,
                  [=](std::int64_t share, std::int64_t begin, std::int64_t end) {
                    double total[kMaxInFlight] = {};
                    for (std::int64_t at = begin; at < end; at += kQuantizationBlock) {
                      PieceValues d{};
                      const auto n = static_cast<int>(std::min(kQuantizationBlock, end - at));
                      for (int k = 0; k < flight.count; ++k)
                        total[k] +=
                            add_squares(d.at, flight.gradient[k] + at, flight.scale[k], n, next);
                    }
                    std::copy_n(total, flight.count, sums + share * flight.count);
                  });
  double* const out = squares.data<double>();
  for (int k = 0; k < flight.count; ++k) {
    out[k] = 0;
    for (std::int64_t share = 0; share < shares; ++share) out[k] += sums[share * flight.count + k];
  }
}

void predicted_muon(const Tensor& w, const Tensor& base, const Tensor& momentum_squares,
                    const Tensor& squares, std::span<const GradientInFlight> gradients,
                    float momentum, float update_scale, float weight_decay, const Stream&) {
  const PredictedMuon flight(base, gradients, momentum, update_scale, weight_decay);
  MuonPrediction predict{flight, {}};
  flight.find_factors(predict.factors, *momentum_squares.data<double>(),
                      static_cast<const double*>(squares.raw()));
  write_prediction(w, base, 1, predict);
}

}  // namespace hybrid_trainer::kernels::cpu
