#include <algorithm>

#include "kernels/backend/elements.cuh"
#include "kernels/backend/machine.h"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr std::int64_t kMaxBlocks = 2048;
constexpr unsigned int kThreads = 256;
constexpr int kLoads = 4;  // loads in flight per thread

struct Or {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a | b; }
};

using Words = Pack<std::uint32_t, 4>;

/// Blocks read kLoads stripes of packs at a time; the first one also reads the rest.
__global__ void find_all_bits_kernel(std::uint32_t* of_block, const std::uint32_t* x,
                                     std::int64_t elements) {
  const Words* const packs = reinterpret_cast<const Words*>(x);
  const std::int64_t count = elements / 4;
  const std::int64_t stripe = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::uint32_t bits = 0;
  for (std::int64_t i = mine; i < count; i += kLoads * stripe) {
    Words words[kLoads] = {};
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (i + k * stripe < count) words[k] = packs[i + k * stripe];
    for (const Words& some : words)
      for (std::uint32_t word : some.values) bits |= word;
  }
  for (std::int64_t i = 4 * count + mine; i < elements; i += stripe) bits |= x[i];
  bits = reduce_block(bits, Or{}, 0u);
  if (threadIdx.x == 0) of_block[blockIdx.x] = bits;
}

__global__ void join_bits_kernel(std::int32_t* result, const std::uint32_t* of_block, int blocks) {
  std::uint32_t bits = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += static_cast<int>(blockDim.x))
    bits |= of_block[i];
  bits = reduce_block(bits, Or{}, 0u);
  if (threadIdx.x == 0) *result = static_cast<std::int32_t>(bits);
}

}  // namespace

void find_all_bits(const Tensor& bits, const Tensor& x, const Stream& stream) {
  require(packs_aligned(x.raw()), "find_all_bits: x must be aligned to 16 bytes");
  const std::int64_t per_block = std::int64_t{kThreads} * 4 * kLoads;
  const std::int64_t blocks = std::min(x.elements() / per_block + 1, kMaxBlocks);
  const Tensor workspace = empty_workspace(blocks * 4, DType::kU8, stream);
  std::uint32_t* const of_block = static_cast<std::uint32_t*>(workspace.raw());
  launch(stream, "find_all_bits", find_all_bits_kernel, Grid{.x = blocks, .threads = kThreads},
         of_block, reinterpret_cast<const std::uint32_t*>(x.data<float>()), x.elements());
  launch(stream, "join_bits", join_bits_kernel, Grid{.threads = kThreads},
         bits.data<std::int32_t>(), of_block, static_cast<int>(blocks));
}

}  // namespace hybrid_trainer::kernels::cuda
