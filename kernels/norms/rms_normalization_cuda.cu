
#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/backend/reduce.cuh"
#include "kernels/norms/normalization.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr std::int64_t kRmsBlocks = 512;  // maximum; each writes a line of sums

struct RmsRows {
  std::int64_t count;
  unsigned int heads = 1;  // adjacent heads per row
  std::int64_t stride;
  std::int64_t begin = 0;
  std::int64_t columns;
  __device__ std::int64_t at(unsigned int row) const {
    return begin + row / heads * stride + row % heads * columns;
  }
};

/// Returns 1 / the root mean square of a row, computed by a team.
template <int N, class T>
__device__ float rms_of_row(const T* x, std::int64_t columns, float epsilon, int lane, int team) {
  float squares = 0;
  for (std::int64_t i = lane * N; i < columns; i += team * N) {
    float values[N];
    load_pack(values, x + i);
    for (int j = 0; j < N; ++j) squares += values[j] * values[j];
  }
  const float mean = sum_over_team(squares, team) / static_cast<float>(columns);
  return 1.0f / sqrtf(mean + epsilon);
}

template <class T, int N>
__global__ void rms_norm_forward_kernel(T* y, float* rstd_out, const T* x, const float* weight,
                                        RmsRows rows, int team, RmsNormSpec spec) {
  const int lane = static_cast<int>(threadIdx.x) % team;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / team) + threadIdx.x / team;
  const bool exists = row < rows.count;
  const std::int64_t at = rows.at(exists ? row : 0), columns = rows.columns;
  const float rstd = rms_of_row<N>(x + at, columns, spec.epsilon, lane, team);
  if (!exists) return;
  for (std::int64_t i = lane * N; i < columns; i += team * N) {
    float values[N], gain[N];
    load_pack(values, x + at + i);
    load_pack(gain, weight + i);
    for (int j = 0; j < N; ++j) {
      T normalized;
      store(&normalized, values[j] * rstd);
      values[j] = spec.one_plus ? values[j] * rstd * (1.0f + gain[j]) : load(&normalized) * gain[j];
    }
    store_pack(y + at + i, values);
  }
  if (lane == 0 && rstd_out != nullptr) rstd_out[row] = rstd;
}

template <class T>
struct RmsBackward {
  T* dx;
  const T* dy;
  const T* x;
  const float* rstd;  // or null: computed from x
  const float* weight;
  float* lines;  // each block's contribution to dweight
  RmsRows rows;
  RmsNormSpec spec;
  bool accumulate;

  __device__ float gain_offset() const { return spec.one_plus ? 1.0f : 0.0f; }
};

/// The columns of a row that a thread processes: P packs, spaced by the team's width.
template <class T, int P>
struct RmsRowPart {
  static constexpr int N = kPackSize<T>;
  float gradient[P][N] = {}, values[P][N] = {}, gain[P][N] = {};

  __device__ void read(const RmsBackward<T>& at, std::int64_t begin, int lane, int team) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const std::int64_t i = (lane + p * team) * N;
      if (i >= at.rows.columns) continue;
      load_pack(gradient[p], at.dy + begin + i);
      load_pack(values[p], at.x + begin + i);
      load_pack(gain[p], at.weight + i);
      for (int j = 0; j < N; ++j) gain[p][j] += at.gain_offset();
    }
  }
  __device__ float squares() const {
    float sum = 0;
    for (int p = 0; p < P; ++p)
      for (int j = 0; j < N; ++j) sum += values[p][j] * values[p][j];
    return sum;
  }
  /// Adds the row's contribution to dweight. Returns the thread's part of Σ dy·weight·normalized.
  __device__ float add_to(float (&dweight)[P][N], float rstd) const {
    float projection = 0;
    for (int p = 0; p < P; ++p) {
      for (int j = 0; j < N; ++j) {
        const float part = gradient[p][j] * (values[p][j] * rstd);
        dweight[p][j] += part;
        projection += part * gain[p][j];
      }
    }
    return projection;
  }
  __device__ void write(const RmsBackward<T>& at, std::int64_t begin, int lane, int team,
                        float rstd, float mean) const {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const std::int64_t i = (lane + p * team) * N;
      if (i >= at.rows.columns) continue;
      float sum[N] = {};
      if (at.accumulate) load_pack(sum, at.dx + begin + i);
      for (int j = 0; j < N; ++j)
        sum[j] += (gradient[p][j] * gain[p][j] - values[p][j] * rstd * mean) * rstd;
      store_pack(at.dx + begin + i, sum);
    }
  }
};

/// Backward for rows with at most P packs per lane. Teams iterate over rows, and each thread sums
/// its columns in registers. Dynamic shared memory: a line of floats per team.
template <class T, int P>
__global__ void __launch_bounds__(kTeamThreads)
    rms_norm_backward_teams_kernel(RmsBackward<T> at, int team) {
  constexpr int N = kPackSize<T>;
  const std::int64_t columns = at.rows.columns;
  const int lane = static_cast<int>(threadIdx.x) % team, teams = kTeamThreads / team;
  const int which = static_cast<int>(threadIdx.x) / team;
  float dweight[P][N] = {};
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams; first < at.rows.count;
       first += static_cast<std::int64_t>(gridDim.x) * teams) {
    const std::int64_t row = first + which;
    const bool exists = row < at.rows.count;
    const std::int64_t begin = at.rows.at(exists ? static_cast<unsigned int>(row) : 0);
    RmsRowPart<T, P> part;
    if (exists) part.read(at, begin, lane, team);
    float rstd = 0;
    if (at.rstd == nullptr) {
      const float mean = reduce_warp(part.squares(), Sum{}, team) / static_cast<float>(columns);
      if (exists) rstd = 1.0f / sqrtf(mean + at.spec.epsilon);
    } else if (exists) {
      rstd = at.rstd[row];
    }
    const float projection = part.add_to(dweight, rstd);
    const float mean = reduce_warp(projection, Sum{}, team) / static_cast<float>(columns);
    if (exists) part.write(at, begin, lane, team, rstd, mean);
  }
  float* const of_team = dynamic_shared<float>();
  for (int p = 0; p < P; ++p) {
    const std::int64_t i = (lane + p * team) * N;
    if (i < columns) store_pack(of_team + which * columns + i, dweight[p]);
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < columns; i += kTeamThreads) {
    float total = 0;
    for (int k = 0; k < teams; ++k) total += of_team[k * columns + i];
    at.lines[blockIdx.x * columns + i] = total;
  }
}

/// Backward for any number of columns and any alignment. A block iterates over rows, and each
/// thread sums its columns in the block's line.
template <class T>
__global__ void rms_norm_backward_any_kernel(RmsBackward<T> at) {
  const std::int64_t columns = at.rows.columns;
  float* const dweight = at.lines + blockIdx.x * columns;
  for (std::int64_t row = blockIdx.x; row < at.rows.count; row += gridDim.x) {
    const std::int64_t begin = at.rows.at(static_cast<unsigned int>(row));
    const float rstd = at.rstd != nullptr ? at.rstd[row]
                                          : rms_of_row<1>(at.x + begin, columns, at.spec.epsilon,
                                                          threadIdx.x, kTeamThreads);
    float projection = 0;
    for (std::int64_t i = threadIdx.x; i < columns; i += kTeamThreads) {
      const float part = load(at.dy + begin + i) * (load(at.x + begin + i) * rstd);
      dweight[i] = row == blockIdx.x ? part : dweight[i] + part;
      projection += part * (at.gain_offset() + at.weight[i]);
    }
    const float mean = reduce_block(projection, Sum{}, 0.0f) / static_cast<float>(columns);
    for (std::int64_t i = threadIdx.x; i < columns; i += kTeamThreads) {
      const float gradient = load(at.dy + begin + i) * (at.gain_offset() + at.weight[i]);
      const float value = (gradient - load(at.x + begin + i) * rstd * mean) * rstd;
      store(at.dx + begin + i, at.accumulate ? load(at.dx + begin + i) + value : value);
    }
  }
}

template <class T>
void start_rms_forward(T* y, float* rstd, const T* x, const Tensor& weight, const RmsRows& rows,
                       RmsNormSpec spec, const Stream& stream) {
  const bool packed =
      packs_fit<T>(rows.columns, y, x, weight.raw()) && rows.stride % kPackSize<T> == 0;
  const int team = row_team(packed ? rows.columns / kPackSize<T> : rows.columns);
  const int threads = team > kWarp ? team : kTeamThreads;
  Grid grid = grid_for(rows.count, threads / team);
  grid.threads = threads;
  launch(stream, "rms_norm_forward",
         packed ? rms_norm_forward_kernel<T, kPackSize<T>> : rms_norm_forward_kernel<T, 1>, grid, y,
         rstd, x, weight.data<float>(), rows, team, spec);
}

/// Computes dx, and at most `blocks` lines of sums for dweight. Returns the number of lines.
template <class T>
std::int64_t start_rms_rows(const RmsBackward<T>& at, std::int64_t blocks, const Stream& stream) {
  const std::int64_t columns = at.rows.columns, packs = columns / kPackSize<T>;
  const bool packed =
      packs_fit<T>(columns, at.dx, at.dy, at.x, at.weight) && at.rows.stride % kPackSize<T> == 0;
  if (packed && packs <= 2 * kWarp) {
    const int team = std::min(row_team(packs), kWarp), teams = kTeamThreads / team;
    blocks = std::min(blocks, (at.rows.count + teams - 1) / teams);
    launch(
        stream, "rms_norm_backward",
        packs <= team ? rms_norm_backward_teams_kernel<T, 1> : rms_norm_backward_teams_kernel<T, 2>,
        Grid{.x = blocks,
             .threads = kTeamThreads,
             .shared_bytes = static_cast<std::size_t>(teams * columns) * sizeof(float)},
        at, team);
    return blocks;
  }
  const bool apart = at.rstd == nullptr || at.rows.stride != columns;
  if (!apart &&
      try_norm_backward<false>("rms_norm_backward",
                               NormBackward<T>{at.dx, at.dy, at.x, nullptr, at.rstd, at.weight,
                                               at.spec.one_plus ? 1.0f : 0.0f, at.lines,
                                               at.rows.count, columns, at.accumulate},
                               blocks, stream)) {
    return blocks;
  }
  launch(stream, "rms_norm_backward", rms_norm_backward_any_kernel<T>,
         Grid{.x = blocks, .threads = kTeamThreads}, at);
  return blocks;
}

/// Allocates at.lines, which is not yet set, and computes all gradients.
template <class T>
void start_rms_backward(RmsBackward<T> at, const Tensor& dweight, GradientMode mode,
                        const Stream& stream) {
  const std::int64_t columns = at.rows.columns;
  const std::int64_t most = columns <= 2 * kWarp * kPackSize<T>
                                ? std::min(at.rows.count, kRmsBlocks)
                                : norm_backward_blocks<T>(at.rows.count, columns);
  const Tensor workspace = empty_workspace(most * columns, DType::kF32, stream);
  at.lines = workspace.data<float>();
  const std::int64_t lines = start_rms_rows(at, most, stream);
  column_sums<float>(dweight.data<float>(), at.lines, lines, columns,
                     mode == GradientMode::kAccumulate, stream);
}

RmsRows heads_of(const Tensor& x, HeadRange heads, std::int64_t size) {
  return {x.size(0) * x.size(1) * heads.count, static_cast<unsigned int>(heads.count), x.size(2),
          heads.first * size, size};
}

}  // namespace

void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                      RmsNormSpec spec, const Stream& stream) {
  const RmsRows rows{.count = x.size(0), .stride = x.size(1), .columns = x.size(1)};
  visit_real(x.dtype(), [&]<class T>(T) {
    start_rms_forward(y.data<T>(), optional_data<float>(rstd), static_cast<const T*>(x.data<T>()),
                      weight, rows, spec, stream);
  });
}

void rms_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                       GradientMode parameter_mode, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, RmsNormSpec spec,
                       const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    start_rms_backward(
        RmsBackward<T>{dx.data<T>(),
                       dy.data<T>(),
                       x.data<T>(),
                       rstd.data<float>(),
                       weight.data<float>(),
                       nullptr,
                       {.count = x.size(0), .stride = x.size(1), .columns = x.size(1)},
                       spec,
                       input_mode == GradientMode::kAccumulate},
        dweight, parameter_mode, stream);
  });
}

void rms_norm_heads_forward(const Tensor& x, HeadRange heads, const Tensor& weight,
                            RmsNormSpec spec, const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    start_rms_forward(x.data<T>(), nullptr, static_cast<const T*>(x.data<T>()), weight,
                      heads_of(x, heads, weight.size(0)), spec, stream);
  });
}

void rms_norm_heads_backward(const Tensor& dx, const Tensor& dweight, GradientMode parameter_mode,
                             const Tensor& x, HeadRange heads, const Tensor& weight,
                             RmsNormSpec spec, const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    start_rms_backward(
        RmsBackward<T>{dx.data<T>(), dx.data<T>(), x.data<T>(), nullptr, weight.data<float>(),
                       nullptr, heads_of(x, heads, weight.size(0)), spec, false},
        dweight, parameter_mode, stream);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
