#pragma once

#include <cstdint>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Replaces a matrix by the nearest one whose singular values are all near 1 (0.7 to 1.2), with
/// five Newton–Schulz steps X ← a·X + (b·G + c·G²)·X, G = X·Xᵀ, from X = U/‖U‖. Allocates its
/// memory once, for bf16 with the first such matrix. In f32, one whose sides are as 2 to 1 or more
/// iterates on G alone and is multiplied by what came of it, the same within 3e-3 in spectral norm;
/// bf16 would lose G's small eigenvalues. Source: Jordan et al. 2024, "Muon: an optimizer for
/// hidden layers in neural networks".
class Orthogonalizer {
 public:
  /// Room for matrices of at most `max_elements` elements and `max_side` rows or columns, whichever
  /// is fewer.
  Orthogonalizer(std::int64_t max_elements, std::int64_t max_side, const Stream& stream);

  /// An f32 (rows, columns) view of the workspace for the caller to fill, until the next call.
  Tensor input(std::int64_t rows, std::int64_t columns) const;
  /// The orthogonalized `matrix`, which came from input() and is overwritten. Does not block. Zeros
  /// stay zeros. `products`: the dtype that operands of products are rounded to; sums are f32.
  Tensor orthogonal(const Tensor& matrix, DType products, const Stream& stream) {
    return orthogonal_blocks(matrix, matrix.size(0), products, stream);
  }
  /// The same of each block of so many rows, the last of which may have fewer.
  Tensor orthogonal_blocks(const Tensor& matrix, std::int64_t block_rows, DType products,
                           const Stream& stream);
  /// Operations of the products in orthogonal_blocks.
  static double flops(const Shape& matrix, std::int64_t block_rows, DType products);

 private:
  static bool iterates_on_gram(const Shape& matrix, DType products);
  void orthogonalize(const Tensor& result, const Tensor& matrix, DType products,
                     const Stream& stream);
  void iterate(const Tensor& result, const Tensor& matrix, DType products, const Stream& stream);
  void iterate_on_gram(const Tensor& result, const Tensor& x, const Stream& stream);
  Tensor factor(const Tensor& matrix, const Tensor& rounded, const Stream& stream) const;

  Tensor input_;
  Tensor other_;
  Tensor gram_;
  Tensor polynomial_;
  Tensor rounded_input_, rounded_gram_;  // bf16
};

}  // namespace hybrid_trainer
