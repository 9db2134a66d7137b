#pragma once

#include <compare>

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/machine.h"

namespace hybrid_trainer::kernels::cuda {

/// Device memory that one product may use in addition to its matrices. Twice NVIDIA's
/// recommendation for Hopper, so that no kernel is excluded.
constexpr std::size_t kMaxWorkspaceBytes = std::size_t{64} << 20;

/// Operation applied to each element of a product, in f32, before rounding and writing.
enum class Epilogue {
  kNone,
  kGelu,       // writes its input to `aux` if that is defined, then applies GELU
  kGeluSlope,  // multiplies by gelu'(aux)
  kRowSums     // no operation; `bias` receives the sums of op(A)'s rows
};

/// C = epilogue(op(A)·op(B) + addend + bias).
/// op(A): (M, K), op(B): (K, N), C, addend and aux: (M, N), bias: (N), all row-major. A and B have
/// one dtype, f32 (multiplied in full f32) or bf16. Sums are f32. C has the dtype of the inputs or
/// f32; addend, bias and aux have the dtype of C.
struct Product {
  Tensor c;
  Tensor a;
  Transpose transpose_a = Transpose::kNo;
  Tensor b;
  Transpose transpose_b = Transpose::kNo;
  Tensor addend = {};  // undefined if there is none; may be C itself
  Tensor bias = {};    // undefined if there is none, and for kGeluSlope; for kRowSums an output (M)
  Epilogue epilogue = Epilogue::kNone;
  Tensor aux = {};  // undefined if the epilogue does not use it

  std::int64_t m() const { return c.size(0); }
  std::int64_t n() const { return c.size(1); }
  std::int64_t k() const { return a.size(transpose_a == Transpose::kNo ? 1 : 0); }
};

/// Enqueues the product; equal inputs give equal bits. Returns false, without any effect, if the
/// library has no kernel for it. Throws DeviceError, OutOfMemory.
[[nodiscard]] bool try_multiply(const Product& product, const Stream& stream);

/// Enqueues a product without bias and epilogue, of any sizes, for which the library has no kernel.
/// Much slower than the library; warns once for each kind. Sums are added in the order of K.
void multiply_without_library(const Product& product, const Stream& stream);

/// Makes all later products on the device select algorithms for this run. Throws DeviceError.
void begin_products(const ProductRun& run, int device);

struct ProductKind {
  explicit ProductKind(const Product& product);
  std::string text() const;  // name in the file of measured algorithms
  auto operator<=>(const ProductKind&) const = default;

  double operations() const { return 2.0 * static_cast<double>(m * n) * static_cast<double>(k); }

  std::int64_t m, n, k;
  Transpose transpose_a, transpose_b;
  DType inputs, output;
  bool adds, has_bias, has_aux;
  Epilogue epilogue;
  /// Alignments in bytes, at most 256 as in a pool, so that addresses do not change the bits.
  std::array<int, 6> alignments;
};

}  // namespace hybrid_trainer::kernels::cuda
