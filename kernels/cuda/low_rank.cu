#include "hybrid_trainer/kernels/low_rank.h"
#include "kernels/cuda/block_rows.cuh"
#include "kernels/cuda/for_packs.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// Element i of the wide matrix.
template <class T>
struct SpreadBlocks {
  T* wide;
  const float* stacked;
  BlockRows blocks;
  float scale;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t columns = blocks.count * blocks.rank, row = i / columns;
    const int p = static_cast<int>(i % columns / blocks.rank);
    std::int64_t before = 0;
    for (int q = 0; q < p; ++q) before += blocks.rows[q];
    const std::int64_t local = row - blocks.first_row[p];
    float value[1] = {0};
    if (local >= 0 && local < blocks.rows[p])
      value[0] = scale * stacked[(before + local) * blocks.rank + i % blocks.rank];
    store_pack(wide + i, value);
  }
};

/// Element i of the stacked one.
struct GatherBlocks {
  float* stacked;
  const float* wide;
  BlockRows blocks;
  float scale;
  bool accumulates;
  template <int N>
  __device__ void at(std::int64_t i) const {
    std::int64_t local = i / blocks.rank;
    const int p = blocks.find(local);
    const std::int64_t columns = blocks.count * blocks.rank;
    const float value =
        scale * wide[(blocks.first_row[p] + local) * columns + p * blocks.rank + i % blocks.rank];
    stacked[i] = accumulates ? stacked[i] + value : value;
  }
};

}  // namespace

void spread_blocks(const Tensor& wide, const Tensor& stacked, const DiagonalBlocks& blocks,
                   float scale, const Stream& stream) {
  visit_real(wide.dtype(), [&](auto real) {
    using T = decltype(real);
    const SpreadBlocks<T> body{wide.data<T>(), stacked.data<float>(), rows_of(blocks), scale};
    for_packs<1>(stream, "spread_blocks", wide.elements(), body);
  });
}

void gather_blocks(const Tensor& stacked, const Tensor& wide, const DiagonalBlocks& blocks,
                   float scale, GradientMode mode, const Stream& stream) {
  const GatherBlocks body{stacked.data<float>(), wide.data<float>(), rows_of(blocks), scale,
                          mode == GradientMode::kAccumulate};
  for_packs<1>(stream, "gather_blocks", stacked.elements(), body);
}

}  // namespace hybrid_trainer::kernels::cuda
