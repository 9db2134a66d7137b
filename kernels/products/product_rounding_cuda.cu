#include "kernels/backend/reduce.cuh"
#include "kernels/elementwise/map.cuh"
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

template <Float8 kFormat>
struct RoundToFloat8 {
  const float* expected;
  const float* largest;
  __device__ float operator()(float x) const {
    const float scale = float8_scale<kFormat>(*expected != 0 ? *expected : *largest);
    return nearest_float8<kFormat>(x, scale, 1 / scale);
  }
};

struct RoundToHalf {
  __device__ float operator()(float x) const { return nearest_half(x); }
};

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
  const auto round = [&](const auto& function) {
    map_real(stream, "round_to_float8", function, to, from);
  };
  const float *const before = expected.data<float>(), *const now = largest.data<float>();
  if (format == Float8::kE4M3) return round(RoundToFloat8<Float8::kE4M3>{before, now});
  round(RoundToFloat8<Float8::kE5M2>{before, now});
}

void round_to_half(const Tensor& to, const Tensor& from, const Stream& stream) {
  map_real(stream, "round_to_half", RoundToHalf{}, to, from);
}

}  // namespace hybrid_trainer::kernels::cuda
