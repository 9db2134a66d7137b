// Products of any sizes and types. Used if the library has no kernel.

#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/generated/elementwise.h"
#include "kernels/generated/matmul.h"
#include "kernels/products/product_cuda.h"
#include "src/core/messages.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kTile = 64;  // rows and columns of C per block
constexpr int kDepth = 16;
constexpr int kSide = 16;             // threads along a side of the tile
constexpr int kEach = kTile / kSide;  // rows and columns per thread
constexpr int kThreads = kSide * kSide;

/// Matrix to read: element (i, j) of op(A) is at i · down + j · right.
template <class T>
struct Operand {
  const T* data;
  std::int64_t rows, columns, down, right;
};

/// tile[depth][row] = element (first_row + row, first_depth + depth), zero outside.
template <class T>
__device__ void load_tile(float (&tile)[kDepth][kTile + 1], const Operand<T>& from,
                          std::int64_t first_row, std::int64_t first_depth) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
    const int row = from.right == 1 ? i / kDepth : i % kTile;
    const int depth = from.right == 1 ? i % kDepth : i / kTile;
    const std::int64_t at = first_row + row, along = first_depth + depth;
    const bool is_inside = at < from.rows && along < from.columns;
    tile[depth][row] = is_inside ? load(from.data + at * from.down + along * from.right) : 0.0f;
  }
}

/// C = A·Bᵀ + addend for `a` (M, K) and `b` (N, K), one tile per block, summed in the order of K.
template <class In, class Out>
__global__ void __launch_bounds__(kThreads)
    plain_product_kernel(Out* c, Operand<In> a, Operand<In> b, const Out* addend) {
  __shared__ float of_a[kDepth][kTile + 1];
  __shared__ float of_b[kDepth][kTile + 1];
  const std::int64_t tiles = (b.rows + kTile - 1) / kTile;
  const std::int64_t first_row = blockIdx.x / tiles * kTile;
  const std::int64_t first_column = blockIdx.x % tiles * kTile;
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
  float sums[kEach][kEach] = {};
  for (std::int64_t k = 0; k < a.columns; k += kDepth) {
    load_tile(of_a, a, first_row, k);
    load_tile(of_b, b, first_column, k);
    __syncthreads();
    for (int depth = 0; depth < kDepth; ++depth) {
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j)
          sums[i][j] += of_a[depth][y + i * kSide] * of_b[depth][x + j * kSide];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t row = first_row + y + i * kSide, column = first_column + x + j * kSide;
      if (row >= a.rows || column >= b.rows) continue;
      const std::int64_t at = row * b.rows + column;
      store(c + at, sums[i][j] + (addend != nullptr ? load(addend + at) : 0.0f));
    }
  }
}

template <class T>
Operand<T> operand(const Tensor& matrix, std::int64_t rows, std::int64_t columns, bool transposed) {
  return {matrix.data<T>(), rows, columns, transposed ? 1 : columns, transposed ? rows : 1};
}

}  // namespace

void multiply_without_library(const Product& product, const Stream& stream) {
  warn("cuBLASLt", concat("no kernel supports the product ", ProductKind(product).text(),
                          "; uses a much slower kernel; `hybrid doctor` shows the library"));
  const std::int64_t m = product.m(), n = product.n(), k = product.k();
  const std::int64_t tiles = (m + kTile - 1) / kTile * ((n + kTile - 1) / kTile);
  visit_real(product.a.dtype(), [&](auto in) {
    visit_real(product.c.dtype(), [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      launch(stream, "plain_product", plain_product_kernel<In, Out>,
             Grid{.x = tiles, .threads = kThreads}, product.c.data<Out>(),
             operand<In>(product.a, m, k, product.transpose_a == Transpose::kYes),
             operand<In>(product.b, n, k, product.transpose_b == Transpose::kNo),
             optional_data<Out>(product.addend));
    });
  });
}

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

void add_bias(const Tensor& y, const Tensor& bias, const Stream& stream) {
  visit_real(y.dtype(), [&]<class T>(T) {
    constexpr int kPack = kPackSize<T>;
    const bool packed = packs_fit<T>(y.size(1), y.raw(), bias.raw());
    launch(stream, "add_bias", packed ? add_bias_kernel<T, kPack> : add_bias_kernel<T, 1>,
           grid_for(y.elements() / (packed ? kPack : 1)), y.data<T>(), bias.data<T>(), y.elements(),
           y.size(1));
  });
}

/// Computes the product. Other kernels compute all that the library does not support.
void multiply(const Product& product, const Stream& stream) {
  if (simulated(stream)) {
    const Tensor workspace = empty_workspace(kMaxWorkspaceBytes, DType::kU8, stream);
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
  if (product.epilogue == Epilogue::kGeluSlope)
    cuda::gelu_backward(product.c, product.c, product.aux, stream);
}

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
  // cuBLASLt writes sums in the dtype of C and cannot accumulate them.
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
  visit_real(dy.dtype(), [&]<class T>(T) {
    column_sums<T>(dbias.data<float>(), dy.data<T>(), dy.size(0), dy.size(1), accumulates, stream);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
