
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/products/product_rounding.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr std::int64_t kMagnitudesPerBlock = 16384;

/// Maximum of two absolute values, given as the bits of a float: these have the order of the
/// values, and a NaN is greater than all numbers.
struct MaxBits {
  __device__ unsigned int operator()(unsigned int a, unsigned int b) const { return a > b ? a : b; }
};

template <class T>
__global__ void block_magnitudes_kernel(float* of_blocks, const T* x, std::int64_t elements) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kMagnitudesPerBlock;
  const std::int64_t end =
      begin + kMagnitudesPerBlock < elements ? begin + kMagnitudesPerBlock : elements;
  unsigned int most = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    most = MaxBits{}(most, magnitude_bits(load(x + i)));
  most = reduce_block(most, MaxBits{}, 0u);
  if (threadIdx.x == 0) of_blocks[blockIdx.x] = std::bit_cast<float>(most);
}

__global__ void largest_magnitude_kernel(float* largest, float* raised, const float* of_blocks,
                                         std::int64_t blocks) {
  unsigned int most = 0;
  for (std::int64_t i = threadIdx.x; i < blocks; i += blockDim.x)
    most = MaxBits{}(most, magnitude_bits(of_blocks[i]));
  most = reduce_block(most, MaxBits{}, 0u);
  if (threadIdx.x != 0) return;
  *largest = std::bit_cast<float>(most);
  if (raised != nullptr) *raised = std::bit_cast<float>(MaxBits{}(most, magnitude_bits(*raised)));
}

template <class T, Float8 kFormat>
struct RoundToFloat8 {
  T* to;
  const T* from;
  const float* expected;
  const float* largest;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const float scale = float8_scale<kFormat>(*expected != 0 ? *expected : *largest);
    float values[N];
    load_pack(values, from + i);
    for (int k = 0; k < N; ++k) values[k] = nearest_float8<kFormat>(values[k], scale, 1 / scale);
    store_pack(to + i, values);
  }
};

template <class T>
struct RoundToHalf {
  T* to;
  const T* from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    load_pack(values, from + i);
    for (int k = 0; k < N; ++k) values[k] = nearest_half(values[k]);
    store_pack(to + i, values);
  }
};

template <class T, Float8 kFormat>
void round_all(const Tensor& to, const Tensor& from, const Tensor& expected, const Tensor& largest,
               const Stream& stream) {
  const RoundToFloat8<T, kFormat> body{to.data<T>(), from.data<T>(), expected.data<float>(),
                                       largest.data<float>()};
  for_packs<kPackSize<T>>(stream, "round_to_float8", to.elements(), body, body.to, body.from);
}

}  // namespace

void largest_magnitude(const Tensor& largest, const Tensor& most, const Tensor& x,
                       const Stream& stream) {
  const std::int64_t blocks =
      std::max<std::int64_t>(1, (x.elements() + kMagnitudesPerBlock - 1) / kMagnitudesPerBlock);
  const Tensor of_blocks = empty_workspace(blocks, DType::kF32, stream);
  visit_real(x.dtype(), [&]<class T>(T) {
    launch(stream, "block_magnitudes", block_magnitudes_kernel<T>, Grid{.x = blocks},
           of_blocks.data<float>(), x.data<T>(), x.elements());
  });
  launch(stream, "largest_magnitude", largest_magnitude_kernel, Grid{.threads = 1024},
         largest.data<float>(), optional_data<float>(most), of_blocks.data<float>(), blocks);
}

void round_to_float8(const Tensor& to, const Tensor& from, Float8 format, const Tensor& expected,
                     const Tensor& largest, const Stream& stream) {
  if (to.elements() == 0) return;
  visit_real(to.dtype(), [&]<class T>(T) {
    if (format == Float8::kE4M3)
      return round_all<T, Float8::kE4M3>(to, from, expected, largest, stream);
    round_all<T, Float8::kE5M2>(to, from, expected, largest, stream);
  });
}

void round_to_half(const Tensor& to, const Tensor& from, const Stream& stream) {
  if (to.elements() == 0) return;
  visit_real(to.dtype(), [&]<class T>(T) {
    const RoundToHalf<T> body{to.data<T>(), from.data<T>()};
    for_packs<kPackSize<T>>(stream, "round_to_half", to.elements(), body, body.to, body.from);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
