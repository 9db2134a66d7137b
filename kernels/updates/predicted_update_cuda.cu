#include "kernels/backend/backend.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/quantized/quantized_block.cuh"
#include "kernels/updates/predicted_step.h"
#include "kernels/updates/predicted_update.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kPack = kPackSize<float>;

/// Term of an element in a mean of (scale·x)² or of x.
struct MeanTerm {
  float scale;
  bool squares;
  float share;
  __device__ float operator()(float x) const {
    return squares ? x * scale * (x * scale) * share : x * share;
  }
};

struct RowMeans {
  float* means;
  const float* x;
  MeanTerm term_of;
  __device__ float term(std::int64_t i, std::int64_t) const { return term_of(x[i]); }
  __device__ void finish(std::int64_t row, double sum) const {
    means[row] = static_cast<float>(sum);
  }
};

/// Computes the inverse means of the rows of several second moments; 0 for missing ones.
struct InverseMeans {
  float* inverse;
  std::int64_t height;
  const float* rows[kMaxInFlight + 1];
  __device__ float term(std::int64_t, std::int64_t i) const {
    return rows[blockIdx.x] == nullptr ? 0 : rows[blockIdx.x][i];
  }
  __device__ void finish(std::int64_t moment, double sum) const {
    inverse[moment] = rows[moment] == nullptr ? 0 : inverse_mean(sum, height);
  }
};

/// Loads N elements of a factored second moment, starting with element `begin`.
template <int N>
__device__ void load_factored(float (&to)[N], const float* rows, const float* columns,
                              float inverse, std::int64_t begin, std::int64_t width) {
  std::int64_t row = begin / width, column = begin - row * width;
  for (int k = 0; k < N; ++k) {
    to[k] = rows[row] * inverse * columns[column];
    if (++column < width) continue;
    column = 0;
    ++row;
  }
}

template <int N>
__device__ void load_momentum(float (&to)[N], const MomentumStart& start, std::int64_t i) {
  for (int k = 0; k < N; ++k) to[k] = 0;
  if (start.values != nullptr) load_pack(to, start.values + i);
  if (start.codes == nullptr) return;
  const auto codes = *reinterpret_cast<const Pack<std::uint8_t, N>*>(start.codes + i);
  for (int k = 0; k < N; ++k)
    to[k] = kSignedTable.values[codes.values[k]] * start.scales[(i + k) / kQuantizationBlock];
}

struct AdamWChange {
  PredictedAdamW steps;
  MomentumStart start;
  const float* rows;  // null if the second moment starts at zero
  const float* columns;
  const float* inverse;  // inverse means: of the second moment, then of the gradients' squares
  std::int64_t width;
  template <int N>
  __device__ void operator()(float (&change)[N], std::int64_t i) const {
    float m[N], v[N] = {};
    load_momentum(m, start, i);
    if (rows != nullptr) load_factored(v, rows, columns, inverse[0], i, width);
    for (int j = 0; j < steps.count; ++j) {
      const AdamWStep& step = steps.step[j];
      float gradient[N], square[N];
      load_pack(gradient, steps.gradient[j] + i);
      if (steps.rows[j] == nullptr) {
        for (int k = 0; k < N; ++k) change[k] = step(change[k], gradient[k], m[k], v[k]);
      } else {
        load_factored(square, steps.rows[j], steps.columns[j], inverse[1 + j], i, width);
        for (int k = 0; k < N; ++k)
          change[k] = step_with_square(step, change[k], gradient[k], square[k], m[k], v[k]);
      }
    }
  }
};

struct LionChange {
  PredictedLion steps;
  MomentumStart start;
  template <int N>
  __device__ void operator()(float (&change)[N], std::int64_t i) const {
    float m[N];
    load_momentum(m, start, i);
    for (int j = 0; j < steps.count; ++j) {
      float gradient[N];
      load_pack(gradient, steps.gradient[j] + i);
      for (int k = 0; k < N; ++k) change[k] = steps.step[j](change[k], gradient[k], m[k]);
    }
  }
};

struct MuonChange {
  InFlight flight;
  const float* factors;
  template <int N>
  __device__ void operator()(float (&change)[N], std::int64_t i) const {
    for (int j = 0; j < flight.count; ++j) {
      float gradient[N];
      load_pack(gradient, flight.gradient[j] + i);
      for (int k = 0; k < N; ++k) change[k] += factors[j] * gradient[k];
    }
  }
};

/// w = base·base_kept + the change that `add` adds to zeros.
template <class T, class Add>
struct WritePrediction {
  T* w;
  const float* base;
  float base_kept;
  Add add;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float weights[N], change[N] = {};
    load_pack(weights, base + i);
    add(change, i);
    for (int k = 0; k < N; ++k) weights[k] = weights[k] * base_kept + change[k];
    store_pack(w + i, weights);
  }
};

template <class Add, class... Pointers>
void write_prediction(const Stream& stream, const char* name, const Tensor& w, const Tensor& base,
                      float base_kept, const InFlight& flight, const Add& add, Pointers... begins) {
  visit_real(w.dtype(), [&]<class T>(T) {
    const WritePrediction<T, Add> body{w.data<T>(), base.data<float>(), base_kept, add};
    const auto& g = flight.gradient;
    static_assert(kMaxInFlight == 8);
    for_packs<kPack>(stream, name, w.elements(), body, body.w, body.base, begins..., g[0], g[1],
                     g[2], g[3], g[4], g[5], g[6], g[7]);
  });
}

constexpr std::int64_t kSquaresChunk = 16384;  // elements per block of threads

__global__ void in_flight_squares_kernel(InFlight flight, InFlightMomentum next,
                                         std::int64_t elements, double* sums) {
  const std::int64_t begin = blockIdx.x * kSquaresChunk;
  const std::int64_t end = begin + kSquaresChunk < elements ? begin + kSquaresChunk : elements;
  double sum[kMaxInFlight] = {};
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    float d = 0;
#pragma unroll
    for (int j = 0; j < static_cast<int>(kMaxInFlight); ++j) {
      if (j >= flight.count) break;
      const auto one = static_cast<double>(next(d, flight.gradient[j][i] * flight.scale[j]));
      sum[j] += one * one;
    }
  }
#pragma unroll
  for (int j = 0; j < static_cast<int>(kMaxInFlight); ++j) {
    if (j >= flight.count) break;
    const double total = reduce_block(sum[j], Sum{}, 0.0);
    if (threadIdx.x == 0) sums[j * gridDim.x + blockIdx.x] = total;
  }
}

struct ChunkSums {
  double* result;
  const double* sums;
  __device__ double term(std::int64_t i, std::int64_t) const { return sums[i]; }
  __device__ void finish(std::int64_t row, double sum) const { result[row] = sum; }
};

__global__ void muon_factors_kernel(PredictedMuon prediction, float* factors,
                                    const double* momentum_squares, const double* squares) {
  prediction.find_factors(factors, *momentum_squares, squares);
}

}  // namespace

void row_and_column_means(const Tensor& rows, const Tensor& columns, const Tensor& x, float scale,
                          bool squares, const Stream& stream) {
  const std::int64_t height = rows.elements(), width = columns.elements();
  const auto term = [=](std::int64_t n) {
    return MeanTerm{scale, squares, 1.0f / static_cast<float>(n)};
  };
  for_rows(stream, "row_means", RowMeans{rows.data<float>(), x.data<float>(), term(width)}, height,
           width);
  column_sums(columns.data<float>(), x.data<float>(), height, width, false, stream, term(height));
}

void predicted_adamw(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                     const Tensor& v_rows, const Tensor& v_columns,
                     std::span<const GradientInFlight> gradients, bool decays_base,
                     const AdamWSettings& settings, const Stream& stream) {
  const Shape matrix = base.as_rows().shape();
  const Tensor inverse = empty_workspace(kMaxInFlight + 1, DType::kF32, stream);
  const bool has_moment = settings.step > 0;
  const AdamWChange add{PredictedAdamW(gradients, settings, decays_base),
                        MomentumStart(m),
                        has_moment ? v_rows.data<float>() : nullptr,
                        has_moment ? v_columns.data<float>() : nullptr,
                        inverse.data<float>(),
                        matrix[1]};
  InverseMeans means{inverse.data<float>(), matrix[0], {add.rows}};
  std::copy_n(add.steps.rows, kMaxInFlight, means.rows + 1);
  for_rows(stream, "inverse_means", means, 1 + add.steps.count, matrix[0]);
  write_prediction(stream, "predicted_adamw", w, base, add.steps.base_kept, add.steps, add,
                   add.start.values, add.start.codes);
}

void predicted_lion(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                    std::span<const GradientInFlight> gradients, bool decays_base,
                    const LionSettings& settings, const Stream& stream) {
  const LionChange add{PredictedLion(gradients, settings, decays_base), MomentumStart(m)};
  write_prediction(stream, "predicted_lion", w, base, add.steps.base_kept, add.steps, add,
                   add.start.values, add.start.codes);
}

void in_flight_squares(const Tensor& squares, std::span<const GradientInFlight> gradients,
                       float momentum, const Stream& stream) {
  const std::int64_t elements = gradients.front().gradient.elements();
  const std::int64_t chunks = (elements + kSquaresChunk - 1) / kSquaresChunk;
  const InFlight flight(gradients);
  const Tensor sums = empty_workspace(flight.count * chunks, DType::kF64, stream);
  launch(stream, "in_flight_squares", in_flight_squares_kernel, Grid{.x = chunks}, flight,
         InFlightMomentum{momentum}, elements, sums.data<double>());
  for_rows(stream, "chunk_sums", ChunkSums{squares.data<double>(), sums.data<double>()},
           flight.count, chunks);
}

void predicted_muon(const Tensor& w, const Tensor& base, const Tensor& momentum_squares,
                    const Tensor& squares, std::span<const GradientInFlight> gradients,
                    float momentum, float update_scale, float weight_decay, const Stream& stream) {
  const PredictedMuon prediction(base, gradients, momentum, update_scale, weight_decay);
  const Tensor factors = empty_workspace(kMaxInFlight, DType::kF32, stream);
  launch(stream, "muon_factors", muon_factors_kernel, Grid{.threads = 1}, prediction,
         factors.data<float>(), momentum_squares.data<double>(),
         static_cast<const double*>(squares.raw()));
  write_prediction(stream, "predicted_muon", w, base, 1, prediction,
                   MuonChange{prediction, factors.data<float>()});
}

}  // namespace hybrid_trainer::kernels::cuda
