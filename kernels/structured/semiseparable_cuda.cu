#include "hybrid_trainer/kernels/semiseparable.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/half_float.h"
#include "kernels/generated/elementwise.h"
#include "kernels/generated/matmul.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

template <class T>
struct PlainFactor {
  float* to;
  const T* from;
  const float* scales;
  std::int64_t size;
  template <int N>
  __device__ void at(std::int64_t i) const {
    if constexpr (std::is_same_v<T, std::uint16_t>) {
      to[i] = from_half_bits(from[i]);
    } else {
      to[i] = scales[i / size] * static_cast<float>(from[i]);
    }
  }
};

/// Computes element i of y = T·x or, if b and c are swapped, of y = Tᵀ·x.
struct MultiplyTridiagonal {
  float* y;
  const float *x, *diagonal, *above, *below;
  std::int64_t size;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t n = i % size;
    float sum = diagonal[n] * x[i];
    if (n > 0) sum += below[n - 1] * x[i - 1];
    if (n + 1 < size) sum += above[n] * x[i + 1];
    y[i] = sum;
  }
};

/// Computes element n of the gradient of a diagonal of T: the sum of g[row, n]·x[row, n] over the
/// rows. For the diagonals above and below, x or g begins one column later.
struct SumDiagonal {
  float* to;
  const float *g, *x;
  std::int64_t batch, size;
  bool accumulates;
  template <int N>
  __device__ void at(std::int64_t n) const {
    float sum = accumulates ? to[n] : 0.0f;
    for (std::int64_t row = 0; row < batch; ++row) sum += g[row * size + n] * x[row * size + n];
    to[n] = sum;
  }
};

Tensor plain_factor(const Tensor& factor, const Tensor& scales, const Stream& stream) {
  if (factor.dtype() == DType::kF32) return factor;
  const Tensor plain = empty_workspace(factor.elements(), DType::kF32, stream).view(factor.shape());
  if (factor.dtype() == DType::kBF16) {
    cuda::cast(plain, factor, stream);
  } else if (factor.dtype() == DType::kU16) {
    for_packs<1>(stream, "plain_factor", factor.elements(),
                 PlainFactor<std::uint16_t>{plain.data<float>(), factor.data<std::uint16_t>(),
                                            nullptr, factor.size(1)});
  } else {
    for_packs<1>(stream, "plain_factor", factor.elements(),
                 PlainFactor<std::int8_t>{plain.data<float>(), factor.data<std::int8_t>(),
                                          scales.data<float>(), factor.size(1)});
  }
  return plain;
}

Tensor plain_rows(const Tensor& x, const Stream& stream) {
  if (x.dtype() == DType::kF32) return x;
  const Tensor plain = empty_workspace(x.elements(), DType::kF32, stream).view(x.shape());
  cuda::cast(plain, x, stream);
  return plain;
}

/// Returns x·inᵀ, (B, r).
Tensor projected(const Tensor& x, const Tensor& in, const Stream& stream) {
  const Tensor sums =
      empty_workspace(x.size(0) * in.size(0), DType::kF32, stream).view({x.size(0), in.size(0)});
  cuda::matmul(sums, x, Transpose::kNo, in, Transpose::kYes, GradientMode::kOverwrite, stream);
  return sums;
}

/// y = T·x + sums·out, or Tᵀ·x + sums·out if transposed. x is f32.
void expand(const Tensor& y, const Tensor& x, const Semiseparable& h, bool transposed,
            const Tensor& sums, const Tensor& out, const Stream& stream) {
  const Tensor sum = y.dtype() == DType::kF32
                         ? y
                         : empty_workspace(y.elements(), DType::kF32, stream).view(y.shape());
  const Tensor &above = transposed ? h.below : h.above, &below = transposed ? h.above : h.below;
  for_packs<1>(stream, "multiply_tridiagonal", x.elements(),
               MultiplyTridiagonal{sum.data<float>(), x.data<float>(), h.diagonal.data<float>(),
                                   above.data<float>(), below.data<float>(), h.size()});
  cuda::matmul(sum, sums, Transpose::kNo, out, Transpose::kNo, GradientMode::kAccumulate, stream);
  if (sum.dtype() != y.dtype()) cuda::cast(y, sum, stream);
}

}  // namespace

void semiseparable_forward(const Tensor& y, const Tensor& x, const Semiseparable& h,
                           Transpose transpose, const Stream& stream) {
  const bool transposed = transpose == Transpose::kYes;
  const Tensor u = plain_factor(h.u, h.u_scales, stream), v = plain_factor(h.v, h.v_scales, stream),
               from = plain_rows(x, stream);
  const Tensor sums = projected(from, transposed ? u : v, stream);
  expand(y, from, h, transposed, sums, transposed ? v : u, stream);
}

void semiseparable_backward(const SemiseparableGradients& gradients, const Tensor& dy,
                            const Tensor& x, const Semiseparable& h, const Stream& stream) {
  const Tensor u = plain_factor(h.u, h.u_scales, stream), v = plain_factor(h.v, h.v_scales, stream),
               from = plain_rows(x, stream), g = plain_rows(dy, stream);
  const Tensor of_g = projected(g, u, stream);
  if (gradients.x) expand(gradients.x, g, h, true, of_g, v, stream);
  if (gradients.u)
    cuda::matmul(gradients.u, projected(from, v, stream), Transpose::kYes, g, Transpose::kNo,
                 gradients.mode, stream);
  if (gradients.v)
    cuda::matmul(gradients.v, of_g, Transpose::kYes, from, Transpose::kNo, gradients.mode, stream);
  const auto diagonal = [&](const Tensor& to, std::int64_t g_ahead, std::int64_t x_ahead) {
    if (!to) return;
    for_packs<1>(
        stream, "sum_diagonal", to.elements(),
        SumDiagonal{to.data<float>(), g.data<float>() + g_ahead, from.data<float>() + x_ahead,
                    g.size(0), g.size(1), gradients.mode == GradientMode::kAccumulate});
  };
  diagonal(gradients.diagonal, 0, 0);
  diagonal(gradients.above, 0, 1);
  diagonal(gradients.below, 1, 0);
}

}  // namespace hybrid_trainer::kernels::cuda
