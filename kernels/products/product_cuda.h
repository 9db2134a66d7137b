#pragma once

#include <compare>

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/machine.h"

namespace hybrid_trainer::kernels::cuda {

/// Device memory that one product may use besides its matrices: twice what NVIDIA recommends for
/// Hopper, so that it rules no kernel out.
constexpr std::size_t kMostWorkspaceBytes = std::size_t{64} << 20;

/// What is applied to each element of a product, in f32, before it is rounded and written.
enum class Epilogue {
  kNone,
  kGelu,       // written to `aux` if that is defined, then GELU
  kGeluSlope,  // · gelu'(aux)
  kRowSums     // nothing; `bias` gets the sums of op(A)'s rows
};

/// C = epilogue(op(A)·op(B) + addend + bias).
/// op(A): (M, K), op(B): (K, N), C, addend and aux: (M, N), bias: (N), all row-major. A and B are
/// of one dtype, f32 (multiplied in full f32) or bf16; sums are in f32. C is of the inputs' dtype
/// or f32; addend, bias and aux are of C's.
struct Product {
  Tensor c;
  Tensor a;
  Transpose transpose_a = Transpose::kNo;
  Tensor b;
  Transpose transpose_b = Transpose::kNo;
  Tensor addend = {};  // undefined for none; may be C itself
  Tensor bias = {};    // undefined for none; none with kGeluSlope; (M) and an output with kRowSums
  Epilogue epilogue = Epilogue::kNone;
  Tensor aux = {};  // undefined, or what the epilogue needs

  std::int64_t m() const { return c.size(0); }
  std::int64_t n() const { return c.size(1); }
  std::int64_t k() const { return a.size(transpose_a == Transpose::kNo ? 1 : 0); }
};

/// Enqueues the product; equal inputs give bit-identical results. False, without doing anything, if
/// the library has no kernel for it. Throws DeviceError, and OutOfMemory where the device has no
/// memory for the library's kernels.
[[nodiscard]] bool try_multiply(const Product& product, const Stream& stream);

/// Enqueues a product that has neither bias nor epilogue, of any sizes, for which the library has no
/// kernel: much slower than one of the library's, and warned of once for each kind. Sums are added
/// up in the order of K.
void multiply_without_library(const Product& product, const Stream& stream);

/// From here on products on the device choose their algorithms for this run, those that ran before
/// included. Throws DeviceError.
void begin_products(const ProductRun& run, int device);

/// What distinguishes one prepared product from another.
struct ProductKind {
  explicit ProductKind(const Product& product);
  std::string text() const;  // its name in the file of measured algorithms
  auto operator<=>(const ProductKind&) const = default;

  double operations() const { return 2.0 * static_cast<double>(m * n) * static_cast<double>(k); }

  std::int64_t m, n, k;
  Transpose transpose_a, transpose_b;
  DType inputs, output;
  bool adds, has_bias, has_aux;
  Epilogue epilogue;
  /// Of A, B, C, addend, bias and aux, in bytes, at most 256, which every block of device memory
  /// has: where a pool puts its blocks must not change which kernel runs, nor the last bits.
  std::array<int, 6> alignments;
};

}  // namespace hybrid_trainer::kernels::cuda
