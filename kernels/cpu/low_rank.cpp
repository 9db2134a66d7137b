#include "hybrid_trainer/kernels/low_rank.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

void spread_blocks(const Tensor& wide, const Tensor& stacked, const DiagonalBlocks& blocks,
                   float scale, const Stream& stream) {
  fill_zero(wide, stream);
  const float* const from = stacked.data<float>();
  visit_real(wide.dtype(), [&](auto real) {
    auto* const to = wide.data<decltype(real)>();
    std::int64_t before = 0;
    for (std::int64_t p = 0; p < blocks.count; ++p) {
      const std::int64_t rank = blocks.rank, columns = blocks.columns(),
                         first = blocks.first_row[static_cast<std::size_t>(p)],
                         rows = blocks.rows[static_cast<std::size_t>(p)];
      parallel_rows(rows, rank, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          for (std::int64_t c = 0; c < rank; ++c)
            store(to + (first + row) * columns + p * rank + c,
                  scale * from[(before + row) * rank + c]);
        }
      });
      before += rows;
    }
  });
}

void gather_blocks(const Tensor& stacked, const Tensor& wide, const DiagonalBlocks& blocks,
                   float scale, GradientMode mode, const Stream&) {
  float* const to = stacked.data<float>();
  const float* const from = wide.data<float>();
  const float kept = mode == GradientMode::kAccumulate ? 1.0f : 0.0f;
  std::int64_t before = 0;
  for (std::int64_t p = 0; p < blocks.count; ++p) {
    const std::int64_t rank = blocks.rank, columns = blocks.columns(),
                       first = blocks.first_row[static_cast<std::size_t>(p)],
                       rows = blocks.rows[static_cast<std::size_t>(p)];
    parallel_rows(rows, rank, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t c = 0; c < rank; ++c) {
          float& sum = to[(before + row) * rank + c];
          sum = (kept > 0 ? sum : 0.0f) + scale * from[(first + row) * columns + p * rank + c];
        }
      }
    });
    before += rows;
  }
}

}  // namespace hybrid_trainer::kernels::cpu
