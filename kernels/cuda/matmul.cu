#include "kernels/cuda/matmul.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/product.h"

namespace hybrid_trainer::kernels {
namespace {

template <class T, int N>
__global__ void add_bias_kernel(T* y, const T* bias, std::int64_t elements, std::int64_t columns) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (at >= elements) return;
  float values[N];
  float shift[N];
  load_pack(values, y + at);
  load_pack(shift, bias + at % columns);
  for (int i = 0; i < N; ++i) values[i] += shift[i];
  store_pack(y + at, values);
}

/// Each row of y += bias.
void add_bias(Cuda cuda, const Tensor& y, const Tensor& bias) {
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    constexpr int kPack = kPackSize<T>;
    const bool packed = packs_fit<T>(y.size(1), y.raw(), bias.raw());
    launch(cuda, "add_bias", packed ? add_bias_kernel<T, kPack> : add_bias_kernel<T, 1>,
           grid_for(y.elements() / (packed ? kPack : 1)), y.data<T>(), bias.data<T>(), y.elements(),
           y.size(1));
  });
}

/// The product; if the library cannot do its epilogue too, further kernels do that.
void multiply(Cuda cuda, const Product& product) {
  if (cuda.simulated()) {
    const Tensor workspace = cuda.workspace(kMostWorkspaceBytes);
    return;
  }
  if (try_multiply(cuda, product)) return;
  Product plain = product;
  plain.bias = Tensor();
  plain.epilogue = Epilogue::kNone;
  plain.aux = Tensor();
  if (product.epilogue == Epilogue::kGelu && product.aux) plain.c = product.aux;
  require(try_multiply(cuda, plain), "a product without an epilogue is always possible");
  if (product.bias) add_bias(cuda, plain.c, product.bias);
  if (product.epilogue == Epilogue::kGelu) gelu_forward(cuda, product.c, plain.c);
  if (product.epilogue == Epilogue::kGeluSlope) {
    gelu_backward(cuda, product.c, product.c, product.aux);
  }
}

/// The bias in the dtype of what it is added to, as products need it.
Tensor bias_as(Cuda cuda, DType dtype, const Tensor& bias) {
  if (!bias || bias.dtype() == dtype) return bias;
  const Tensor rounded = Tensor::empty(bias.shape(), dtype, MemoryKind::kWorkspace, cuda.stream);
  cast(cuda, rounded, bias);
  return rounded;
}

}  // namespace

void matmul(Cuda cuda, const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, GradientMode mode) {
  if (c.elements() == 0) return;
  const bool accumulates = mode == GradientMode::kAccumulate;
  if (a.elements() == 0) {
    if (!accumulates) fill_zero(c, cuda.stream);
    return;
  }
  multiply(cuda, {.c = c,
                  .a = a,
                  .transpose_a = transpose_a,
                  .b = b,
                  .transpose_b = transpose_b,
                  .addend = accumulates ? c : Tensor()});
}

void linear_forward(Cuda cuda, const Tensor& y, const Tensor& x, const Tensor& w,
                    const Tensor& bias, const Tensor& residual) {
  if (y.elements() == 0) return;
  multiply(cuda, {.c = y,
                  .a = x,
                  .b = w,
                  .transpose_b = Transpose::kYes,
                  .addend = residual,
                  .bias = bias_as(cuda, y.dtype(), bias)});
}

void linear_gelu_forward(Cuda cuda, const Tensor& active, const Tensor& wide, const Tensor& x,
                         const Tensor& w, const Tensor& bias) {
  if (active.elements() == 0) return;
  multiply(cuda, {.c = active,
                  .a = x,
                  .b = w,
                  .transpose_b = Transpose::kYes,
                  .bias = bias_as(cuda, active.dtype(), bias),
                  .epilogue = Epilogue::kGelu,
                  .aux = wide});
}

void linear_gelu_backward_input(Cuda cuda, const Tensor& dwide, const Tensor& dy, const Tensor& w,
                                const Tensor& wide) {
  if (dwide.elements() == 0) return;
  multiply(cuda, {.c = dwide, .a = dy, .b = w, .epilogue = Epilogue::kGeluSlope, .aux = wide});
}

void bias_backward(Cuda cuda, const Tensor& dbias, const Tensor& dy, GradientMode mode) {
  const bool accumulates = mode == GradientMode::kAccumulate;
  if (dy.elements() == 0) {
    if (!accumulates) fill_zero(dbias, cuda.stream);
    return;
  }
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    column_sums<T>(cuda, dbias.data<float>(), dy.data<T>(), dy.size(0), dy.size(1), accumulates);
  });
}

}  // namespace hybrid_trainer::kernels
