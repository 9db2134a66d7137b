#include "hybrid_trainer/kernels/weight_decomposition.h"
#include "kernels/cuda/block_rows.cuh"
#include "kernels/cuda/for_packs.cuh"
#include "kernels/cuda/for_rows.cuh"

namespace hybrid_trainer::kernels::cuda {
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
  const GatherRows body{stacked.data<float>(), wide.data<float>(),
                        norms ? norms.data<float>() : nullptr, rows_of(blocks),
                        mode == GradientMode::kAccumulate};
  for_packs<1>(stream, "gather_rows", stacked.elements(), body);
}

void scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors, const Tensor& bias,
                   const Tensor& residual, const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const ScaleColumns<T> body{y.data<T>(),
                               x.data<T>(),
                               residual ? residual.data<T>() : nullptr,
                               factors.data<float>(),
                               bias ? bias.data<float>() : nullptr,
                               x.size(1)};
    for_packs<1>(stream, "scale_columns", x.elements(), body);
  });
}

void multiply(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream) {
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    for_packs<1>(stream, "multiply", y.elements(),
                 Multiply<T>{y.data<T>(), x.data<T>(), z.data<T>()});
  });
}

}  // namespace hybrid_trainer::kernels::cuda
