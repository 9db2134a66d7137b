#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/algorithm_cache.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/product_kind.h"

namespace hybrid_trainer::kernels::cuda {

/// A product whose descriptors and algorithm are ready; only the pointers change from call to call.
class ProductPlan {
 public:
  /// Throws DeviceError.
  explicit ProductPlan(const Product& product);

  /// What cuBLASLt proposes, in order of its own estimate; none if it has no kernel for this
  /// product. Throws DeviceError.
  std::vector<AlgorithmBits> candidates(cublasLtHandle_t handle);
  /// Makes `run` use this algorithm. False if it does not fit this product.
  bool take(cublasLtHandle_t handle, const AlgorithmBits& bits);
  /// False until an algorithm has been taken.
  bool usable() const { return usable_; }
  /// Enqueues a product of this kind. One thread at a time. Throws DeviceError.
  void run(cublasLtHandle_t handle, const Product& product, const Stream& stream);

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

  ProductKind kind_;
  Operation operation_;
  Layout a_, b_, c_;
  std::vector<cublasLtMatmulHeuristicResult_t> proposed_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
  bool usable_ = false;
};

}  // namespace hybrid_trainer::kernels::cuda
