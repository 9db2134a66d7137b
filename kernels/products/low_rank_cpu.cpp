#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/elementwise/map_cpu.h"
#include "kernels/products/weight_decomposition.h"

namespace hybrid_trainer::kernels::cpu {

void spread_blocks(const Tensor& wide, const Tensor& stacked, const DiagonalBlocks& blocks,
                   float scale, const Stream& stream) {
  fill_zero(wide, stream);
  const float* const from = stacked.data<float>();
  visit_real(wide.dtype(), [&]<class T>(T) {
    auto* const to = wide.data<T>();
    std::int64_t before = 0;
    for (std::int64_t p = 0; p < blocks.count; ++p) {
      const std::int64_t rank = blocks.rank, columns = blocks.columns(),
                         first = blocks.first_row[static_cast<std::size_t>(p)],
                         rows = blocks.rows[static_cast<std::size_t>(p)];
      for_each_row(rows, rank, [=](std::int64_t row) {
        for (std::int64_t c = 0; c < rank; ++c)
          store(to + (first + row) * columns + p * rank + c,
                scale * from[(before + row) * rank + c]);
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
    for_each_row(rows, rank, [=](std::int64_t row) {
      for (std::int64_t c = 0; c < rank; ++c) {
        float& sum = to[(before + row) * rank + c];
        sum = (kept > 0 ? sum : 0.0f) + scale * from[(first + row) * columns + p * rank + c];
      }
    });
    before += rows;
  }
}

namespace {

/// Calls visit(row of the matrix, row of the stacked matrix) for each row in a block.
template <class Visit>
void for_block_rows(const DiagonalBlocks& blocks, const Visit& visit) {
  std::int64_t stacked = 0;
  for (std::size_t p = 0; p < static_cast<std::size_t>(blocks.count); ++p) {
    for (std::int64_t row = 0; row < blocks.rows[p]; ++row)
      visit(blocks.first_row[p] + row, stacked++);
  }
}

}  // namespace

void row_norms(const Tensor& norms, const Tensor& x, const Stream&) {
  const std::int64_t columns = x.size(1);
  float* const to = norms.data<float>();
  const float* const from = x.data<float>();
  for_each_row(x.size(0), columns, [=](std::int64_t row) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      sum += static_cast<double>(from[i]) * static_cast<double>(from[i]);
    to[row] = static_cast<float>(std::sqrt(sum));
  });
}

void magnitude_factors(const Tensor& factors, const Tensor& magnitudes, const Tensor& norms,
                       const DiagonalBlocks& blocks, const Stream&) {
  float* const to = factors.data<float>();
  const float *const magnitude = magnitudes.data<float>(), *const norm = norms.data<float>();
  std::fill_n(to, factors.elements(), 1.0f);
  for_block_rows(blocks, [=](std::int64_t row, std::int64_t stacked) {
    to[row] = magnitude[stacked] / norm[row];
  });
}

void gather_rows(const Tensor& stacked, const Tensor& wide, const Tensor& norms,
                 const DiagonalBlocks& blocks, GradientMode mode, const Stream&) {
  float* const to = stacked.data<float>();
  const float* const from = wide.data<float>();
  const float* const norm = optional_data<float>(norms);
  const bool adds = mode == GradientMode::kAccumulate;
  for_block_rows(blocks, [=](std::int64_t row, std::int64_t at) {
    const float value = norm != nullptr ? from[row] / norm[row] : from[row];
    to[at] = adds ? to[at] + value : value;
  });
}

void scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors, const Tensor& bias,
                   const Tensor& residual, const Stream&) {
  const std::int64_t columns = x.size(1);
  const float* const factor = factors.data<float>();
  const float* const added = optional_data<float>(bias);
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const to = y.data<T>();
    const T *const from = x.data<T>(), *const other = optional_data<T>(residual);
    for_each_row(x.size(0), columns, [=](std::int64_t row) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int64_t at = row * columns + i;
        float value = load(from + at) * factor[i];
        if (added != nullptr) value += added[i];
        if (other != nullptr) value += load(other + at);
        store(to + at, value);
      }
    });
  });
}

void multiply(const Tensor& y, const Tensor& x, const Tensor& z, const Stream&) {
  map([](float left, float right) { return left * right; }, y, x, z);
}

}  // namespace hybrid_trainer::kernels::cpu
