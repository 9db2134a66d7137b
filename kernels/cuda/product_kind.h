#pragma once

#include <array>
#include <compare>
#include <string>

#include "kernels/cuda/product.h"

namespace hybrid_trainer::kernels::cuda {

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
