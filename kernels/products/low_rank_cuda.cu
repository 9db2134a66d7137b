// Passes blocks of rows (kernels/matmul.h) as kernel arguments.

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/launch.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/products/weight_decomposition.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

struct BlockRows {
  int count;
  std::int64_t rank;
  std::int64_t first_row[DiagonalBlocks::kMax], rows[DiagonalBlocks::kMax];
  /// Returns the block that contains a row of the stacked matrix. Makes `row` relative to it.
  __device__ int find(std::int64_t& row) const {
    int block = 0;
    while (row >= rows[block]) row -= rows[block++];
    return block;
  }
};

BlockRows rows_of(const DiagonalBlocks& blocks) {
  BlockRows plain{blocks.count, blocks.rank, {}, {}};
  for (int p = 0; p < blocks.count; ++p) {
    plain.first_row[p] = blocks.first_row[static_cast<std::size_t>(p)];
    plain.rows[p] = blocks.rows[static_cast<std::size_t>(p)];
  }
  return plain;
}

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
  visit_real(wide.dtype(), [&]<class T>(T) {
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

namespace {

struct RowNorm {
  float* norms;
  const float* x;
  __device__ double term(std::int64_t i, std::int64_t) const {
    return static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  __device__ void finish(std::int64_t row, double sum) const {
    norms[row] = static_cast<float>(sqrt(sum));
  }
};

struct MagnitudeFactors {
  float* factors;
  const float *magnitudes, *norms;
  BlockRows blocks;
  template <int N>
  __device__ void at(std::int64_t row) const {
    float factor = 1;
    std::int64_t before = 0;
    for (int p = 0; p < blocks.count; ++p) {
      const std::int64_t local = row - blocks.first_row[p];
      if (local >= 0 && local < blocks.rows[p]) factor = magnitudes[before + local] / norms[row];
      before += blocks.rows[p];
    }
    factors[row] = factor;
  }
};

struct GatherRows {
  float* stacked;
  const float *wide, *norms;
  BlockRows blocks;
  bool accumulates;
  template <int N>
  __device__ void at(std::int64_t i) const {
    std::int64_t local = i;
    const int p = blocks.find(local);
    const std::int64_t row = blocks.first_row[p] + local;
    const float value = norms != nullptr ? wide[row] / norms[row] : wide[row];
    stacked[i] = accumulates ? stacked[i] + value : value;
  }
};

template <class T>
struct ScaleColumns {
  T* y;
  const T *x, *residual;
  const float *factors, *bias;
  std::int64_t columns;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t column = i % columns;
    float value = load(x + i) * factors[column];
    if (bias != nullptr) value += bias[column];
    if (residual != nullptr) value += load(residual + i);
    store(y + i, value);
  }
};

template <class T>
struct Multiply {
  T* y;
  const T *x, *z;
  template <int N>
  __device__ void at(std::int64_t i) const {
    store(y + i, load(x + i) * load(z + i));
  }
};

}  // namespace

void row_norms(const Tensor& norms, const Tensor& x, const Stream& stream) {
  for_rows(stream, "row_norms", RowNorm{norms.data<float>(), x.data<float>()}, x.size(0),
           x.size(1));
}

void magnitude_factors(const Tensor& factors, const Tensor& magnitudes, const Tensor& norms,
                       const DiagonalBlocks& blocks, const Stream& stream) {
  const MagnitudeFactors body{factors.data<float>(), magnitudes.data<float>(), norms.data<float>(),
                              rows_of(blocks)};
  for_packs<1>(stream, "magnitude_factors", factors.elements(), body);
}

void gather_rows(const Tensor& stacked, const Tensor& wide, const Tensor& norms,
                 const DiagonalBlocks& blocks, GradientMode mode, const Stream& stream) {
  const GatherRows body{stacked.data<float>(), wide.data<float>(), optional_data<float>(norms),
                        rows_of(blocks), mode == GradientMode::kAccumulate};
  for_packs<1>(stream, "gather_rows", stacked.elements(), body);
}

void scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors, const Tensor& bias,
                   const Tensor& residual, const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    const ScaleColumns<T> body{y.data<T>(),
                               x.data<T>(),
                               optional_data<T>(residual),
                               factors.data<float>(),
                               optional_data<float>(bias),
                               x.size(1)};
    for_packs<1>(stream, "scale_columns", x.elements(), body);
  });
}

void multiply(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream) {
  visit_real(y.dtype(), [&]<class T>(T) {
    for_packs<1>(stream, "multiply", y.elements(),
                 Multiply<T>{y.data<T>(), x.data<T>(), z.data<T>()});
  });
}

}  // namespace hybrid_trainer::kernels::cuda
