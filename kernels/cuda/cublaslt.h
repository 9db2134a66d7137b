#pragma once

#include <cublasLt.h>

#include "hybrid_trainer/core/shared_library.h"

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

  /// Throws DeviceError with the call and its result.
  void check(cublasStatus_t answer, const char* call) const;
};

/// Opens the library on the first call. Thread-safe. Throws DeviceError.
const CublasLt& cublaslt();

}  // namespace hybrid_trainer::kernels::cuda
