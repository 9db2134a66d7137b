// Norm of gated rows. Memory-bound. Forward moves 6 bytes per element in bf16 and 12 in f32;
// backward moves 10 and 20. Each computes about 30 operations per element. 1,024 rows of 1,536
// columns in bf16 take 9.4 MB, 3 µs at 3 TB/s.

#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/norms/normalization.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr std::int64_t kGatedBlocks = 512;  // maximum for all groups together

struct GatedSizes {
  std::int64_t rows, columns;
  int groups, size;            // columns per group
  std::int64_t stride, first;  // row stride of the gate; first column
  bool shared;                 // all groups share one weight
  bool norm_first;
  float epsilon;

  __device__ std::int64_t at(std::int64_t row, int group) const {
    return row * columns + group * size;
  }
  __device__ std::int64_t gate_at(std::int64_t row, int group) const {
    return row * stride + first + group * size;
  }
  __device__ std::int64_t weight_at(int group) const { return shared ? 0 : group * size; }
};

template <class T>
struct GatedTensors {
  const T* x;
  const T* gate;
  const float* weight;
};

/// A pack of x and of the gate, and the values to be normalized.
template <class T, int N>
struct GatedPack {
  float x[N], gate[N], value[N];

  __device__ GatedPack(const T* of_x, const T* of_gate, bool norm_first) {
    load_pack(x, of_x);
    load_pack(gate, of_gate);
    for (int j = 0; j < N; ++j) value[j] = norm_first ? x[j] : x[j] * open(j);
  }
  __device__ float open(int j) const { return gate[j] * sigmoid(gate[j]); }
};

/// One team per group of a row. Grid: rows / teams per block, groups.
template <class T, int N>
__global__ void gated_norm_forward_kernel(T* y, GatedTensors<T> tensors, GatedSizes sizes,
                                          int team) {
  const int lane = static_cast<int>(threadIdx.x) % team;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / team) + threadIdx.x / team;
  const bool exists = row < sizes.rows;
  const int group = static_cast<int>(blockIdx.y);
  const std::int64_t at = sizes.at(exists ? row : 0, group);
  const T* const gate = tensors.gate + sizes.gate_at(exists ? row : 0, group);
  float squares = 0;
  for (int i = lane * N; i < sizes.size; i += team * N) {
    const GatedPack<T, N> pack(tensors.x + at + i, gate + i, sizes.norm_first);
    for (int j = 0; j < N; ++j) squares += pack.value[j] * pack.value[j];
  }
  const float mean = sum_over_team(squares, team) / static_cast<float>(sizes.size);
  const float rstd = 1.0f / sqrtf(mean + sizes.epsilon);
  if (!exists) return;
  for (int i = lane * N; i < sizes.size; i += team * N) {
    const GatedPack<T, N> pack(tensors.x + at + i, gate + i, sizes.norm_first);
    float out[N];
    load_pack(out, tensors.weight + sizes.weight_at(group) + i);
    for (int j = 0; j < N; ++j) {
      T normalized;
      store(&normalized, pack.value[j] * rstd);
      out[j] *= load(&normalized) * (sizes.norm_first ? pack.open(j) : 1.0f);
    }
    store_pack(y + at + i, out);
  }
}

template <class T>
struct GatedGradients {
  T* dx;
  T* dgate;
  float* lines;  // each block's contribution to dweight, by group; or null
  const T* dy;
};

struct GatedRow {
  float rstd, mean;  // mean: of gradient·weight·value, times rstd
};

/// Loads the gradient of normalized·weight: if the norm comes first, dy times the gate's silu.
template <class T, int N>
__device__ void load_gradient(float (&gradient)[N], const T* dy, const GatedPack<T, N>& pack,
                              bool norm_first) {
  load_pack(gradient, dy);
  for (int j = 0; j < N && norm_first; ++j) gradient[j] *= pack.open(j);
}

template <class T, int N>
__device__ GatedRow sums_of_row(const GatedGradients<T>& to, const GatedTensors<T>& tensors,
                                const GatedSizes& sizes, std::int64_t row, int group, bool exists,
                                int lane, int team) {
  const std::int64_t at = sizes.at(row, group), gate_at = sizes.gate_at(row, group);
  float squares = 0, projection = 0;
  for (int i = lane * N; i < sizes.size && exists; i += team * N) {
    const GatedPack<T, N> pack(tensors.x + at + i, tensors.gate + gate_at + i, sizes.norm_first);
    float gradient[N], weight[N];
    load_gradient(gradient, to.dy + at + i, pack, sizes.norm_first);
    load_pack(weight, tensors.weight + sizes.weight_at(group) + i);
    for (int j = 0; j < N; ++j) {
      squares += pack.value[j] * pack.value[j];
      projection += gradient[j] * weight[j] * pack.value[j];
    }
  }
  const auto columns = static_cast<float>(sizes.size);
  const float rstd = 1.0f / sqrtf(sum_over_team(squares, team) / columns + sizes.epsilon);
  return {rstd, sum_over_team(projection, team) / columns * rstd};
}

/// Writes a pack of dx and of dgate, and adds the row's contribution to dweight to `share`.
template <class T, int N>
__device__ void write_gradients(float (&share)[N], const GatedGradients<T>& to,
                                const GatedTensors<T>& tensors, const GatedSizes& sizes,
                                std::int64_t at, std::int64_t gate_at, const float* of_weight,
                                GatedRow of_row) {
  const GatedPack<T, N> pack(tensors.x + at, tensors.gate + gate_at, sizes.norm_first);
  float gradient[N], weight[N], dy[N], dgate[N];
  load_pack(dy, to.dy + at);
  load_gradient(gradient, to.dy + at, pack, sizes.norm_first);
  load_pack(weight, of_weight);
  for (int j = 0; j < N; ++j) {
    const float normalized = pack.value[j] * of_row.rstd;
    share[j] += gradient[j] * normalized;
    gradient[j] = (gradient[j] * weight[j] - normalized * of_row.mean) * of_row.rstd;
    const float dopen = sizes.norm_first ? dy[j] * weight[j] * normalized : gradient[j] * pack.x[j];
    dgate[j] = dopen * silu_derivative(pack.gate[j]);
    if (!sizes.norm_first) gradient[j] *= pack.open(j);
  }
  store_pack(to.dx + at, gradient);
  store_pack(to.dgate + gate_at, dgate);
}

/// Teams iterate over a group's rows. Grid: blocks, groups. Threads sum their columns, P packs, in
/// registers, or in the block's line if P is 0. Dynamic shared memory: a line of floats per team.
template <class T, int N, int P>
__global__ void __launch_bounds__(kTeamThreads)
    gated_norm_backward_kernel(GatedGradients<T> to, GatedTensors<T> tensors, GatedSizes sizes,
                               int team) {
  const int group = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x) % team,
            which = static_cast<int>(threadIdx.x) / team;
  const int teams = static_cast<int>(blockDim.x) / team;
  float* const line =
      to.lines + (static_cast<std::int64_t>(blockIdx.x) * sizes.groups + group) * sizes.size;
  const float* const weight = tensors.weight + sizes.weight_at(group);
  float sums[P > 0 ? P : 1][N] = {};
  if (P == 0)
    for (int i = lane; i < sizes.size; i += team) line[i] = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams; first < sizes.rows;
       first += static_cast<std::int64_t>(gridDim.x) * teams) {
    const bool exists = first + which < sizes.rows;
    const std::int64_t row = exists ? first + which : 0;
    const GatedRow of_row = sums_of_row<T, N>(to, tensors, sizes, row, group, exists, lane, team);
    if (!exists) continue;
    const std::int64_t at = sizes.at(row, group), gate_at = sizes.gate_at(row, group);
    if constexpr (P == 0) {
      for (int i = lane; i < sizes.size; i += team) {
        float share[1] = {line[i]};
        write_gradients<T, 1>(share, to, tensors, sizes, at + i, gate_at + i, weight + i, of_row);
        line[i] = share[0];
      }
    } else {
#pragma unroll
      for (int p = 0; p < P; ++p) {
        const int i = (lane + p * team) * N;
        if (i >= sizes.size) continue;
        write_gradients<T, N>(sums[p], to, tensors, sizes, at + i, gate_at + i, weight + i, of_row);
      }
    }
  }
  if constexpr (P == 0) return;
  float* const of_team = dynamic_shared<float>();
  for (int p = 0; p < P; ++p) {
    const int i = (lane + p * team) * N;
    if (i < sizes.size) store_pack(of_team + which * sizes.size + i, sums[p]);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < sizes.size; i += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int k = 0; k < teams; ++k) total += of_team[k * sizes.size + i];
    line[i] = total;
  }
}

GatedSizes gated_sizes(const Tensor& x, const Tensor& gate, std::int64_t first,
                       const Tensor& weight, const GatedNormSpec& spec) {
  const std::int64_t columns = x.size(1);
  return {
      x.size(0),    columns, static_cast<int>(spec.groups), static_cast<int>(columns / spec.groups),
      gate.size(1), first,   weight.elements() < columns,   spec.norm_first,
      spec.epsilon};
}

template <class T, class... Pointers>
bool gated_packs_fit(const GatedSizes& sizes, Pointers... begins) {
  return packs_fit<T>(sizes.size, begins...) && sizes.stride % kPackSize<T> == 0 &&
         sizes.first % kPackSize<T> == 0;
}

/// Launches backward with packs of N elements, or of 1 if they do not fit. `blocks` is per group.
template <class T>
void start_gated_backward(const GatedGradients<T>& to, const GatedTensors<T>& tensors,
                          const GatedSizes& sizes, std::int64_t blocks, const Stream& stream) {
  constexpr int kPack = kPackSize<T>, kFew = 1, kMany = 3;
  const bool packed =
      gated_packs_fit<T>(sizes, to.dx, to.dgate, to.dy, tensors.x, tensors.gate, tensors.weight);
  const std::int64_t packs = packed ? sizes.size / kPack : sizes.size;
  const int team = row_team(packs), threads = team > kWarp ? team : kTeamThreads;
  auto* kernel = gated_norm_backward_kernel<T, 1, 0>;
  if (packs <= team * kMany)
    kernel = packed ? gated_norm_backward_kernel<T, kPack, kMany>
                    : gated_norm_backward_kernel<T, 1, kMany>;
  if (packs <= team * kFew && packed) kernel = gated_norm_backward_kernel<T, kPack, kFew>;
  const auto of_teams = static_cast<std::size_t>(threads / team * sizes.size) * sizeof(float);
  launch(stream, "gated_norm_backward", kernel,
         Grid{.x = blocks,
              .y = sizes.groups,
              .threads = threads,
              .shared_bytes = packs <= team * kMany ? of_teams : 0},
         to, tensors, sizes, team);
}

}  // namespace

void gated_norm_forward(const Tensor& y, const Tensor& x, const Tensor& gate, std::int64_t first,
                        const Tensor& weight, GatedNormSpec spec, const Stream& stream) {
  const GatedSizes sizes = gated_sizes(x, gate, first, weight, spec);
  visit_real(x.dtype(), [&]<class T>(T) {
    const GatedTensors<T> tensors{x.data<T>(), gate.data<T>(), weight.data<float>()};
    const bool packed =
        gated_packs_fit<T>(sizes, y.data<T>(), tensors.x, tensors.gate, tensors.weight);
    const int team = row_team(packed ? sizes.size / kPackSize<T> : sizes.size);
    const int threads = team > kWarp ? team : kTeamThreads;
    Grid grid = grid_for(sizes.rows, threads / team);
    grid.y = sizes.groups;
    grid.threads = threads;
    launch(stream, "gated_norm_forward",
           packed ? gated_norm_forward_kernel<T, kPackSize<T>> : gated_norm_forward_kernel<T, 1>,
           grid, y.data<T>(), tensors, sizes, team);
  });
}

void gated_norm_backward(const Tensor& dx, const Tensor& dgate, const Tensor& dweight,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& gate,
                         std::int64_t first, const Tensor& weight, GatedNormSpec spec,
                         const Stream& stream) {
  const GatedSizes sizes = gated_sizes(x, gate, first, weight, spec);
  const std::int64_t blocks =
      std::min(sizes.rows, std::max<std::int64_t>(1, kGatedBlocks / sizes.groups));
  const Tensor lines = empty_workspace(blocks * sizes.columns, DType::kF32, stream);
  visit_real(x.dtype(), [&]<class T>(T) {
    start_gated_backward<T>({dx.data<T>(), dgate.data<T>(), lines.data<float>(), dy.data<T>()},
                            {x.data<T>(), gate.data<T>(), weight.data<float>()}, sizes, blocks,
                            stream);
  });
  if (!dweight) return;
  column_sums<float>(dweight.data<float>(), lines.data<float>(),
                     blocks * sizes.columns / dweight.elements(), dweight.elements(),
                     mode == GradientMode::kAccumulate, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
