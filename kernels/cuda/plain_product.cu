// Products of any sizes and types, for those that the library has no kernel for.

#include "hybrid_trainer/core/warning.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/product_kind.h"
#include "kernels/cuda/real.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kTile = 64;  // rows and columns of C that a block computes
constexpr int kDepth = 16;
constexpr int kSide = 16;             // threads along a side of the tile
constexpr int kEach = kTile / kSide;  // rows and columns of a thread
constexpr int kThreads = kSide * kSide;

/// A matrix as it is read: element (i, j) of op(A) lies at i · down + j · right.
template <class T>
struct Operand {
  const T* data;
  std::int64_t rows, columns, down, right;
};

/// tile[depth][row] = from(first_row + row, first_depth + depth), zero outside. Neighboring threads
/// read neighboring elements.
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

/// C = A·Bᵀ + addend, one tile a block: `a` (M, K) and `b` (N, K). Each element is one sum in the
/// order of K. The addend may be C.
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

/// A matrix of (rows, columns) that is stored as it is, or transposed.
template <class T>
Operand<T> operand(const Tensor& matrix, std::int64_t rows, std::int64_t columns, bool transposed) {
  return {matrix.data<T>(), rows, columns, transposed ? 1 : columns, transposed ? rows : 1};
}

}  // namespace

void multiply_without_library(const Product& product, const Stream& stream) {
  warn("cuBLASLt", concat("it has no kernel for the product ", ProductKind(product).text(),
                          ": a much slower one is used; `hybrid doctor` shows the library"));
  const std::int64_t m = product.m(), n = product.n(), k = product.k();
  const std::int64_t tiles = (m + kTile - 1) / kTile * ((n + kTile - 1) / kTile);
  visit_real(product.a.dtype(), [&](auto in) {
    visit_real(product.c.dtype(), [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      launch(stream, "plain_product", plain_product_kernel<In, Out>,
             Grid{.x = static_cast<unsigned int>(tiles), .threads = kThreads},
             product.c.data<Out>(),
             operand<In>(product.a, m, k, product.transpose_a == Transpose::kYes),
             operand<In>(product.b, n, k, product.transpose_b == Transpose::kNo),
             product.addend ? product.addend.data<Out>() : nullptr);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cuda
