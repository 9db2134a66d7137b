// Group norm. Memory-bound: forward reads x three times, backward reads x and dy twice.

#include <algorithm>

#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr unsigned int kNormThreads = 256;
constexpr int kNormWarps = kNormThreads / kWarp;
constexpr std::int64_t kMinPlaces = 64, kMaxChunks = 64;  // places per chunk; chunks per example

struct GroupSizes {
  std::int64_t batch, places, channels, groups, chunks;

  GroupSizes(const Tensor& x, std::int64_t groups_)
      : batch(x.size(0)),
        places(x.size(1)),
        channels(x.size(2)),
        groups(groups_),
        chunks(std::clamp<std::int64_t>(x.size(1) / kMinPlaces, 1, kMaxChunks)) {}
  __device__ std::int64_t of_group() const { return channels / groups; }
  __device__ std::int64_t count() const { return places * of_group(); }
  /// Returns the offset of element i of a group of an example.
  __device__ std::int64_t at(std::int64_t example, std::int64_t group, std::int64_t i) const {
    return (example * places + i / of_group()) * channels + channel(group, i);
  }
  __device__ std::int64_t channel(std::int64_t group, std::int64_t i) const {
    return group * of_group() + i % of_group();
  }
  /// Returns the index of a chunk's sums: Σ dy by channel, then Σ dy·normalized by channel.
  __device__ std::int64_t sums_at(std::int64_t example, std::int64_t chunk) const {
    return (example * chunks + chunk) * 2 * channels;
  }
};

template <class T>
__global__ void group_norm_forward_kernel(T* y, float* mean, float* rstd, const T* x,
                                          const float* weight, const float* bias, GroupSizes of,
                                          float epsilon) {
  const std::int64_t example = blockIdx.x / of.groups, group = blockIdx.x % of.groups;
  const auto n = static_cast<double>(of.count());
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < of.count(); i += kNormThreads)
    sum += static_cast<double>(load(x + of.at(example, group, i)));
  const auto average = static_cast<float>(reduce_block(sum, Sum{}, 0.0) / n);
  double squares = 0;
  for (std::int64_t i = threadIdx.x; i < of.count(); i += kNormThreads) {
    const float distance = load(x + of.at(example, group, i)) - average;
    squares += static_cast<double>(distance * distance);
  }
  const double variance = reduce_block(squares, Sum{}, 0.0) / n;
  const auto scale = static_cast<float>(1.0 / sqrt(variance + static_cast<double>(epsilon)));
  if (threadIdx.x == 0 && mean != nullptr) mean[blockIdx.x] = average;
  if (threadIdx.x == 0 && rstd != nullptr) rstd[blockIdx.x] = scale;
  for (std::int64_t i = threadIdx.x; i < of.count(); i += kNormThreads) {
    const std::int64_t at = of.at(example, group, i), c = of.channel(group, i);
    store(y + at, (load(x + at) - average) * (scale * weight[c]) + bias[c]);
  }
}

/// Lanes take channels; warps take turns at places. Grid: channels / 32, chunks, examples.
template <class T>
__global__ void group_norm_sums_kernel(double* sums, const T* dy, const T* x, const float* mean,
                                       const float* rstd, GroupSizes of) {
  __shared__ double plain_of[kNormWarps][kWarp], projected_of[kNormWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  const std::int64_t chunk = blockIdx.y, example = blockIdx.z;
  const std::int64_t begin = of.places * chunk / of.chunks,
                     end = of.places * (chunk + 1) / of.chunks;
  double plain = 0, projected = 0;
  if (c < of.channels) {
    const std::int64_t group = example * of.groups + c / of.of_group();
    for (std::int64_t place = begin + warp; place < end; place += kNormWarps) {
      const std::int64_t at = (example * of.places + place) * of.channels + c;
      const float gradient = load(dy + at);
      plain += static_cast<double>(gradient);
      projected += static_cast<double>(gradient * ((load(x + at) - mean[group]) * rstd[group]));
    }
  }
  plain_of[warp][lane] = plain;
  projected_of[warp][lane] = projected;
  __syncthreads();
  if (warp > 0 || c >= of.channels) return;
  for (int i = 1; i < kNormWarps; ++i) {
    plain += plain_of[i][lane];
    projected += projected_of[i][lane];
  }
  sums[of.sums_at(example, chunk) + c] = plain;
  sums[of.sums_at(example, chunk) + of.channels + c] = projected;
}

template <class T>
__global__ void group_norm_backward_kernel(T* dx, const T* dy, const T* x, const float* mean,
                                           const float* rstd, const float* weight,
                                           const double* sums, GroupSizes of) {
  const std::int64_t example = blockIdx.x / of.groups, group = blockIdx.x % of.groups;
  double plain = 0, projected = 0;
  for (std::int64_t i = threadIdx.x; i < of.of_group() * of.chunks; i += kNormThreads) {
    const std::int64_t c = of.channel(group, i);
    const double* const from = sums + of.sums_at(example, i / of.of_group()) + c;
    plain += from[0] * static_cast<double>(weight[c]);
    projected += from[of.channels] * static_cast<double>(weight[c]);
  }
  const auto n = static_cast<double>(of.count());
  const auto average = static_cast<float>(reduce_block(plain, Sum{}, 0.0) / n);
  const auto projection = static_cast<float>(reduce_block(projected, Sum{}, 0.0) / n);
  const float middle = mean[blockIdx.x], scale = rstd[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < of.count(); i += kNormThreads) {
    const std::int64_t at = of.at(example, group, i);
    const float normalized = (load(x + at) - middle) * scale;
    store(
        dx + at,
        (load(dy + at) * weight[of.channel(group, i)] - average - normalized * projection) * scale);
  }
}

__global__ void group_norm_parameters_kernel(float* dweight, float* dbias, const double* sums,
                                             GroupSizes of, bool adds) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= of.channels) return;
  double plain = 0, projected = 0;
  for (std::int64_t i = 0; i < of.batch * of.chunks; ++i) {
    plain += sums[of.sums_at(0, i) + c];
    projected += sums[of.sums_at(0, i) + of.channels + c];
  }
  dbias[c] = (adds ? dbias[c] : 0.0f) + static_cast<float>(plain);
  dweight[c] = (adds ? dweight[c] : 0.0f) + static_cast<float>(projected);
}

}  // namespace

void group_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, std::int64_t groups,
                        float epsilon, const Stream& stream) {
  const GroupSizes of(x, groups);
  visit_real(x.dtype(), [&]<class T>(T) {
    launch(stream, "group_norm_forward", group_norm_forward_kernel<T>,
           Grid{.x = of.batch * of.groups, .threads = kNormThreads}, y.data<T>(),
           optional_data<float>(mean), optional_data<float>(rstd), x.data<T>(),
           weight.data<float>(), bias.data<float>(), of, epsilon);
  });
}

void group_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& weight, const Stream& stream) {
  const GroupSizes of(x, mean.size(1));
  const Tensor sums = empty_workspace(of.batch * of.chunks * 2 * of.channels, DType::kF64, stream);
  visit_real(x.dtype(), [&]<class T>(T) {
    launch(stream, "group_norm_sums", group_norm_sums_kernel<T>,
           Grid{.x = (of.channels + kWarp - 1) / kWarp,
                .y = of.chunks,
                .z = of.batch,
                .threads = kNormThreads},
           sums.data<double>(), dy.data<T>(), x.data<T>(), mean.data<float>(), rstd.data<float>(),
           of);
    launch(stream, "group_norm_backward", group_norm_backward_kernel<T>,
           Grid{.x = of.batch * of.groups, .threads = kNormThreads}, dx.data<T>(), dy.data<T>(),
           x.data<T>(), mean.data<float>(), rstd.data<float>(), weight.data<float>(),
           sums.data<double>(), of);
  });
  launch(stream, "group_norm_parameters", group_norm_parameters_kernel, grid_for(of.channels),
         dweight.data<float>(), dbias.data<float>(), sums.data<double>(), of,
         mode == GradientMode::kAccumulate);
}

}  // namespace hybrid_trainer::kernels::cuda
