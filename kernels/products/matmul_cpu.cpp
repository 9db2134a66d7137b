#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/share_sums.h"
#include "kernels/backend/vector_math.h"
#include "kernels/generated/elementwise.h"
#include "kernels/products/product_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

Tensor as_f32(const Tensor& x, const Stream& stream) {
  if (x.dtype() == DType::kF32) return x;
  const Tensor converted = empty_workspace(x.elements(), DType::kF32, stream).view(x.shape());
  if (!simulated(stream)) cpu::cast(converted, x, stream);
  return converted;
}

void multiply_f32(const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
                  Transpose transpose_b, bool accumulate) {
  multiply({.transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .m = c.size(0),
            .n = c.size(1),
            .k = a.size(transpose_a == Transpose::kYes ? 0 : 1),
            .a = a.data<float>(),
            .stride_a = a.size(1),
            .b = b.data<float>(),
            .stride_b = b.size(1),
            .c = c.data<float>(),
            .stride_c = c.size(1),
            .accumulate = accumulate});
}

/// Sets each row of y to bias + residual. Either may be undefined.
void start_from_sums(const Tensor& y, const Tensor& bias, const Tensor& residual) {
  const std::int64_t columns = y.size(1);
  float* const out = y.data<float>();
  const float* const shift = optional_data<float>(bias);
  visit_real(residual ? residual.dtype() : DType::kF32, [&]<class T>(T) {
    const auto* const added = optional_data<T>(residual);
    for_each_row(y.size(0), columns, [=](std::int64_t row) {
      const std::int64_t at = row * columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i)
        out[at + i] = (shift ? shift[i] : 0.0f) + (added ? load(added + at + i) : 0.0f);
    });
  });
}

ProductKind kind_of(const Tensor& c, const Tensor& a, Transpose transpose_a,
                    Transpose transpose_b) {
  return {.m = c.size(0),
          .n = c.size(1),
          .k = a.size(transpose_a == Transpose::kYes ? 0 : 1),
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .inputs = a.dtype(),
          .output = c.dtype(),
          .threads = threads()};
}

/// Returns whether to use a prepared product instead of f32: for bf16 inputs that the CPU supports.
bool use_prepared(const ProductKind& kind) {
  return kind.inputs == DType::kBF16 && multiplies_bfloat16();
}

}  // namespace

void matmul(const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, GradientMode mode, const Stream& stream) {
  const bool accumulate = mode == GradientMode::kAccumulate;
  if (c.elements() == 0) return;
  if (a.elements() == 0) {
    if (!accumulate) fill_zero(c, stream);
    return;
  }
  if (transpose_a == Transpose::kNo && transpose_b == Transpose::kYes && a.size(0) <= kFewRows)
    return skinny_gemm(c, a, b, Tensor(), Tensor(), accumulate, stream);
  ProductKind kind = kind_of(c, a, transpose_a, transpose_b);
  kind.accumulate = accumulate;
  const ProductArrays arrays{.a = a.raw(), .b = b.raw(), .c = c.raw()};
  if (fits_tiles(kind)) return multiply_by_tiles(kind, arrays, stream);
  if (use_prepared(kind)) return multiply_prepared(kind, arrays, stream);
  const Tensor sum = c.dtype() == DType::kF32
                         ? c
                         : empty_workspace(c.elements(), DType::kF32, stream).view(c.shape());
  const Tensor left = as_f32(a, stream), right = as_f32(b, stream);
  if (simulated(stream)) return;
  if (accumulate && c.dtype() != DType::kF32) cpu::cast(sum, c, stream);
  multiply_f32(sum, left, transpose_a, right, transpose_b, accumulate);
  if (c.dtype() != DType::kF32) cpu::cast(c, sum, stream);
}

void linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual, const Stream& stream) {
  if (y.elements() == 0) return;
  if (x.size(0) <= kFewRows) return skinny_gemm(y, x, w, bias, residual, false, stream);
  const bool in_place = residual && residual.raw() == y.raw();
  ProductKind kind = kind_of(y, x, Transpose::kNo, Transpose::kYes);
  kind.bias = bias.defined();
  kind.accumulate = in_place;
  kind.residual = residual && !in_place;
  const ProductArrays arrays{.a = x.raw(),
                             .b = w.raw(),
                             .c = y.raw(),
                             .bias = optional_data<float>(bias),
                             .residual = residual.raw()};
  if (fits_tiles(kind)) return multiply_by_tiles(kind, arrays, stream);
  if (use_prepared(kind)) return multiply_prepared(kind, arrays, stream);
  const bool starts = bias || residual;
  const Tensor sum = y.dtype() == DType::kF32
                         ? y
                         : empty_workspace(y.elements(), DType::kF32, stream).view(y.shape());
  const Tensor left = as_f32(x, stream), right = as_f32(w, stream);
  if (simulated(stream)) return;
  if (starts) start_from_sums(sum, bias, residual);
  multiply_f32(sum, left, Transpose::kNo, right, Transpose::kYes, starts);
  if (y.dtype() != DType::kF32) cpu::cast(y, sum, stream);
}

void linear_gelu_forward(const Tensor& active, const Tensor& pre_activation, const Tensor& x,
                         const Tensor& w, const Tensor& bias, const Stream& stream) {
  const Tensor& sum = pre_activation ? pre_activation : active;
  cpu::linear_forward(sum, x, w, bias, Tensor(), stream);
  if (simulated(stream)) return;
  cpu::gelu_forward(active, sum, stream);
}

void linear_gelu_backward_input(const Tensor& dpre_activation, const Tensor& dy, const Tensor& w,
                                const Tensor& pre_activation, const Stream& stream) {
  cpu::matmul(dpre_activation, dy, Transpose::kNo, w, Transpose::kNo, GradientMode::kOverwrite,
              stream);
  if (simulated(stream)) return;
  cpu::gelu_backward(dpre_activation, dpre_activation, pre_activation, stream);
}

void bias_backward(const Tensor& dbias, const Tensor& dy, GradientMode mode, const Stream& stream) {
  const std::int64_t columns = dy.size(1);
  const ColumnSums sums(dy.size(0), columns, columns, stream);
  if (simulated(stream)) return;
  visit_real(dy.dtype(), [&]<class T>(T) {
    const T* const in = dy.data<T>();
    sums.for_rows([=](float* line, std::int64_t row) {
      const T* const from = in + row * columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) line[i] += load(from + i);
    });
  });
  sums.add_to(dbias, 0, mode == GradientMode::kAccumulate);
}

}  // namespace hybrid_trainer::kernels::cpu
