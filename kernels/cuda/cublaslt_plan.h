#pragma once

#include <cublasLt.h>

#include <memory>
#include <optional>
#include <vector>

#include "hybrid_trainer/core/shared_library.h"
#include "kernels/cuda/algorithm_cache.h"
#include "kernels/cuda/product_kind.h"

namespace hybrid_trainer::kernels::cuda {

/// The cuBLASLt functions that this project calls, from the library opened at run time.
struct CublasLt {
  /// Throws DeviceError if the library is missing or too old.
  CublasLt();

  SharedLibrary library;
  decltype(cublasLtGetVersion)* version;
  decltype(cublasLtGetStatusName)* name_of_status;
  decltype(cublasLtCreate)* create;
  decltype(cublasLtMatmulDescCreate)* create_operation;
  decltype(cublasLtMatmulDescDestroy)* destroy_operation;
  decltype(cublasLtMatmulDescSetAttribute)* set_operation;
  decltype(cublasLtMatrixLayoutCreate)* create_layout;
  decltype(cublasLtMatrixLayoutDestroy)* destroy_layout;
  decltype(cublasLtMatmulPreferenceCreate)* create_preference;
  decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference;
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference;
  decltype(cublasLtMatmulAlgoGetHeuristic)* choose;
  decltype(cublasLtMatmulAlgoCheck)* check_algorithm;
  decltype(cublasLtMatmul)* multiply;

  /// Throws DeviceError with the call and its result; OutOfMemory where `device`, on which it would
  /// have loaded kernels, has no memory for them.
  void check(cublasStatus_t answer, const char* call, std::optional<int> device = {}) const;
};

/// Opens the library on the first call. Thread-safe. Throws DeviceError.
const CublasLt& cublaslt();

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
  /// Enqueues a product of this kind. One thread at a time. Throws DeviceError, OutOfMemory.
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
