#pragma once

#include <array>
#include <compare>
#include <memory>
#include <string>

#include "kernels/cuda/algorithm_cache.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/product.h"

namespace hybrid_trainer::kernels {

/// What distinguishes one prepared product from another.
struct ProductKind {
  explicit ProductKind(const Product& product);
  std::string text() const;  // its name in the file of measured algorithms
  auto operator<=>(const ProductKind&) const = default;

  std::int64_t m, n, k;
  Transpose transpose_a, transpose_b;
  DType inputs, output;
  bool adds, has_bias, has_aux;
  Epilogue epilogue;
  /// Of A, B, C, addend, bias and aux, in bytes, 16 at most: no kernel asks for more, and where a
  /// pool puts its blocks must not change which kernel runs, nor with that the bits.
  std::array<int, 6> alignments;
};

/// A product whose descriptors and algorithm are ready; only the pointers change from call to call.
class ProductPlan {
 public:
  /// Takes the measured algorithm if there is one that still fits, else what cuBLASLt holds for
  /// best. Throws DeviceError.
  ProductPlan(cublasLtHandle_t handle, const Product& product, const AlgorithmBits* measured);

  /// False where the library has no kernel for this product.
  bool usable() const { return usable_; }
  /// Enqueues it. One thread at a time. Throws DeviceError.
  void run(cublasLtHandle_t handle, Cuda cuda, const Product& product);

 private:
  struct DestroyOperation {
    void operator()(cublasLtMatmulDesc_t at) const { cublaslt().destroy_operation(at); }
  };
  struct DestroyLayout {
    void operator()(cublasLtMatrixLayout_t at) const { cublaslt().destroy_layout(at); }
  };
  using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyOperation>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;

  static Operation operation_for(const Product& product);
  static Layout layout_of(const Tensor& matrix);
  void point_to(const Product& product);
  void choose(cublasLtHandle_t handle, const ProductKind& kind);
  bool take(cublasLtHandle_t handle, const AlgorithmBits& measured);

  Operation operation_;
  Layout a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
  bool usable_ = false;
};

}  // namespace hybrid_trainer::kernels
