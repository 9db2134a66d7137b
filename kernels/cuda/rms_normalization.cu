#include <algorithm>

#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/cuda/column_sums.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kRmsThreads = 256;
constexpr std::int64_t kRmsMostBlocks = 512;  // each leaves a line of sums

/// Where row i begins: the rows themselves, or heads of theirs.
struct RmsRows {
  std::int64_t heads = 1;  // of each row that lies together
  std::int64_t stride;
  std::int64_t begin = 0;
  std::int64_t columns;
  __device__ std::int64_t at(std::int64_t row) const {
    return begin + row / heads * stride + row % heads * columns;
  }
};

/// One over the root of a row's mean square, by a block.
template <int N, class T>
__device__ float rms_of_row(const T* x, std::int64_t columns, float epsilon) {
  float squares = 0;
  for (std::int64_t i = threadIdx.x * N; i < columns; i += kRmsThreads * N) {
    float values[N];
    load_pack(values, x + i);
    for (int j = 0; j < N; ++j) squares += values[j] * values[j];
  }
  const float mean = reduce_block(squares, Sum{}, 0.0f) / static_cast<float>(columns);
  return 1.0f / sqrtf(mean + epsilon);
}

/// A block for each row.
template <class T, int N>
__global__ void rms_norm_forward_kernel(T* y, float* rstd_out, const T* x, const float* weight,
                                        RmsRows rows, RmsNormSpec spec) {
  const std::int64_t at = rows.at(blockIdx.x), columns = rows.columns;
  const float rstd = rms_of_row<N>(x + at, columns, spec.epsilon);
  for (std::int64_t i = threadIdx.x * N; i < columns; i += kRmsThreads * N) {
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
  if (threadIdx.x == 0 && rstd_out != nullptr) rstd_out[blockIdx.x] = rstd;
}

template <class T>
struct RmsBackward {
  T* dx;
  const T* dy;
  const T* x;
  const float* rstd;  // or null, and then it is computed from x
  const float* weight;
  float* lines;  // per block its share of dweight
  std::int64_t count;
  RmsRows rows;
  RmsNormSpec spec;
  bool accumulate;
};

/// A block goes through rows; each thread keeps to its columns, whose sums it has in the block's line.
template <class T, int N>
__global__ void rms_norm_backward_kernel(RmsBackward<T> at) {
  const std::int64_t columns = at.rows.columns;
  const float offset = at.spec.one_plus ? 1.0f : 0.0f;
  float* const dweight = at.lines + blockIdx.x * columns;
  for (std::int64_t row = blockIdx.x; row < at.count; row += gridDim.x) {
    const std::int64_t begin = at.rows.at(row);
    const float rstd =
        at.rstd != nullptr ? at.rstd[row] : rms_of_row<N>(at.x + begin, columns, at.spec.epsilon);
    float projection = 0;
    for (std::int64_t i = threadIdx.x * N; i < columns; i += kRmsThreads * N) {
      float gradient[N], values[N], gain[N], sums[N] = {};
      load_pack(gradient, at.dy + begin + i);
      load_pack(values, at.x + begin + i);
      load_pack(gain, at.weight + i);
      if (row != blockIdx.x) load_pack(sums, dweight + i);
      for (int j = 0; j < N; ++j) {
        const float part = gradient[j] * (values[j] * rstd);
        sums[j] += part;
        projection += part * (offset + gain[j]);
      }
      store_pack(dweight + i, sums);
    }
    const float mean = reduce_block(projection, Sum{}, 0.0f) / static_cast<float>(columns);
    for (std::int64_t i = threadIdx.x * N; i < columns; i += kRmsThreads * N) {
      float gradient[N], values[N], gain[N], sum[N] = {};
      load_pack(gradient, at.dy + begin + i);
      load_pack(values, at.x + begin + i);
      load_pack(gain, at.weight + i);
      if (at.accumulate) load_pack(sum, at.dx + begin + i);
      for (int j = 0; j < N; ++j)
        sum[j] += (gradient[j] * (offset + gain[j]) - values[j] * rstd * mean) * rstd;
      store_pack(at.dx + begin + i, sum);
    }
  }
}

template <class T>
void start_rms_forward(T* y, float* rstd, const T* x, const Tensor& weight, std::int64_t count,
                       const RmsRows& rows, RmsNormSpec spec, const Stream& stream) {
  const bool packed = packs_fit<T>(rows.columns, y, x, weight.raw());
  launch(stream, "rms_norm_forward",
         packed ? rms_norm_forward_kernel<T, kPackSize<T>> : rms_norm_forward_kernel<T, 1>,
         Grid{.x = static_cast<unsigned int>(count), .threads = kRmsThreads}, y, rstd, x,
         weight.data<float>(), rows, spec);
}

/// `at`: without its lines.
template <class T>
void start_rms_backward(RmsBackward<T> at, const Tensor& dweight, GradientMode mode,
                        const Stream& stream) {
  const std::int64_t columns = at.rows.columns, blocks = std::min(at.count, kRmsMostBlocks);
  const Tensor workspace = empty_workspace(
      blocks * columns * static_cast<std::int64_t>(sizeof(float)), DType::kU8, stream);
  at.lines = static_cast<float*>(workspace.raw());
  const bool packed = packs_fit<T>(columns, at.dx, at.dy, at.x, at.weight);
  launch(stream, "rms_norm_backward",
         packed ? rms_norm_backward_kernel<T, kPackSize<T>> : rms_norm_backward_kernel<T, 1>,
         Grid{.x = static_cast<unsigned int>(blocks), .threads = kRmsThreads}, at);
  column_sums<float>(dweight.data<float>(), at.lines, blocks, columns,
                     mode == GradientMode::kAccumulate, stream);
}

RmsRows heads_of(const Tensor& x, HeadRange heads, std::int64_t size) {
  return {heads.count, x.size(2), heads.first * size, size};
}

}  // namespace

void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                      RmsNormSpec spec, const Stream& stream) {
  const RmsRows rows{.stride = x.size(1), .columns = x.size(1)};
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    start_rms_forward(y.data<T>(), rstd ? rstd.data<float>() : nullptr,
                      static_cast<const T*>(x.data<T>()), weight, x.size(0), rows, spec, stream);
  });
}

void rms_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                       GradientMode parameter_mode, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, RmsNormSpec spec,
                       const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    start_rms_backward(RmsBackward<T>{dx.data<T>(),
                                      dy.data<T>(),
                                      x.data<T>(),
                                      rstd.data<float>(),
                                      weight.data<float>(),
                                      nullptr,
                                      x.size(0),
                                      {.stride = x.size(1), .columns = x.size(1)},
                                      spec,
                                      input_mode == GradientMode::kAccumulate},
                       dweight, parameter_mode, stream);
  });
}

void rms_norm_heads_forward(const Tensor& x, HeadRange heads, const Tensor& weight,
                            RmsNormSpec spec, const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    start_rms_forward(x.data<T>(), nullptr, static_cast<const T*>(x.data<T>()), weight,
                      x.size(0) * x.size(1) * heads.count, heads_of(x, heads, weight.size(0)), spec,
                      stream);
  });
}

void rms_norm_heads_backward(const Tensor& dx, const Tensor& dweight, GradientMode parameter_mode,
                             const Tensor& x, HeadRange heads, const Tensor& weight,
                             RmsNormSpec spec, const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    start_rms_backward(
        RmsBackward<T>{dx.data<T>(), dx.data<T>(), x.data<T>(), nullptr, weight.data<float>(),
                       nullptr, x.size(0) * x.size(1) * heads.count,
                       heads_of(x, heads, weight.size(0)), spec, false},
        dweight, parameter_mode, stream);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
