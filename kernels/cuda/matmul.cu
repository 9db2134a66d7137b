#include "hybrid_trainer/kernels/matmul.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/product.h"

namespace hybrid_trainer::kernels::cuda {

// Defined in elementwise.cu.
decltype(kernels::cast) cast;
decltype(kernels::gelu_forward) gelu_forward;
decltype(kernels::gelu_backward) gelu_backward;
decltype(kernels::bias_backward) bias_backward;

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
void add_bias(const Tensor& y, const Tensor& bias, const Stream& stream) {
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    constexpr int kPack = kPackSize<T>;
    const bool packed = packs_fit<T>(y.size(1), y.raw(), bias.raw());
    launch(stream, "add_bias", packed ? add_bias_kernel<T, kPack> : add_bias_kernel<T, 1>,
           grid_for(y.elements() / (packed ? kPack : 1)), y.data<T>(), bias.data<T>(), y.elements(),
           y.size(1));
  });
}

/// The product; if the library cannot do its epilogue too, or not even the product, further kernels
/// do that.
void multiply(const Product& product, const Stream& stream) {
  if (simulated(stream)) {
    const Tensor workspace = empty_workspace(kMostWorkspaceBytes, DType::kU8, stream);
    return;
  }
  if (try_multiply(product, stream)) return;
  Product plain = product;
  plain.bias = Tensor();
  plain.epilogue = Epilogue::kNone;
  plain.aux = Tensor();
  if (product.epilogue == Epilogue::kGelu && product.aux) plain.c = product.aux;
  if (!try_multiply(plain, stream)) multiply_without_library(plain, stream);
  if (product.bias) add_bias(plain.c, product.bias, stream);
  if (product.epilogue == Epilogue::kGelu) cuda::gelu_forward(product.c, plain.c, stream);
  if (product.epilogue == Epilogue::kGeluSlope) {
    cuda::gelu_backward(product.c, product.c, product.aux, stream);
  }
}

/// The bias in the dtype of what it is added to, as products need it.
Tensor bias_as(DType dtype, const Tensor& bias, const Stream& stream) {
  if (!bias || bias.dtype() == dtype) return bias;
  const Tensor rounded = Tensor::empty(bias.shape(), dtype, MemoryKind::kWorkspace, stream);
  cuda::cast(rounded, bias, stream);
  return rounded;
}

}  // namespace

void matmul(const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, GradientMode mode, const Stream& stream) {
  if (c.elements() == 0) return;
  const bool accumulates = mode == GradientMode::kAccumulate;
  if (a.elements() == 0) {
    if (!accumulates) fill_zero(c, stream);
    return;
  }
  multiply({.c = c,
            .a = a,
            .transpose_a = transpose_a,
            .b = b,
            .transpose_b = transpose_b,
            .addend = accumulates ? c : Tensor()},
           stream);
}

void linear_backward_parameters(const Tensor& dw, const Tensor& dbias, const Tensor& dy,
                                const Tensor& x, GradientMode mode, const Stream& stream) {
  // cuBLASLt writes sums in the dtype of C, and adds to none.
  const bool together = mode == GradientMode::kOverwrite && dw.dtype() == DType::kF32 &&
                        dw.elements() > 0 && dy.elements() > 0 && !simulated(stream);
  if (together && try_multiply({.c = dw,
                                .a = dy,
                                .transpose_a = Transpose::kYes,
                                .b = x,
                                .bias = dbias,
                                .epilogue = Epilogue::kRowSums},
                               stream)) {
    return;
  }
  cuda::matmul(dw, dy, Transpose::kYes, x, Transpose::kNo, mode, stream);
  cuda::bias_backward(dbias, dy, mode, stream);
}

void linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual, const Stream& stream) {
  if (y.elements() == 0) return;
  multiply({.c = y,
            .a = x,
            .b = w,
            .transpose_b = Transpose::kYes,
            .addend = residual,
            .bias = bias_as(y.dtype(), bias, stream)},
           stream);
}

void linear_gelu_forward(const Tensor& active, const Tensor& pre_activation, const Tensor& x,
                         const Tensor& w, const Tensor& bias, const Stream& stream) {
  if (active.elements() == 0) return;
  multiply({.c = active,
            .a = x,
            .b = w,
            .transpose_b = Transpose::kYes,
            .bias = bias_as(active.dtype(), bias, stream),
            .epilogue = Epilogue::kGelu,
            .aux = pre_activation},
           stream);
}

void linear_gelu_backward_input(const Tensor& dpre_activation, const Tensor& dy, const Tensor& w,
                                const Tensor& pre_activation, const Stream& stream) {
  if (dpre_activation.elements() == 0) return;
  multiply({.c = dpre_activation,
            .a = dy,
            .b = w,
            .epilogue = Epilogue::kGeluSlope,
            .aux = pre_activation},
           stream);
}

void bias_backward(const Tensor& dbias, const Tensor& dy, GradientMode mode, const Stream& stream) {
  const bool accumulates = mode == GradientMode::kAccumulate;
  if (dy.elements() == 0) {
    if (!accumulates) fill_zero(dbias, stream);
    return;
  }
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    column_sums<T>(dbias.data<float>(), dy.data<T>(), dy.size(0), dy.size(1), accumulates, stream);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
