#include "kernels/cuda/cublaslt.h"

#include "hybrid_trainer/core/cuda_libraries.h"
#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::kernels::cuda {

CublasLt::CublasLt() : library(SharedLibrary::open(cublaslt_library())) {
  const auto find = [this](auto*& function, const char* name) {
    function = library.function<std::remove_reference_t<decltype(*function)>>(name);
  };
  find(version, "cublasLtGetVersion");
  find(name_of_status, "cublasLtGetStatusName");
  find(create, "cublasLtCreate");
  find(create_operation, "cublasLtMatmulDescCreate");
  find(destroy_operation, "cublasLtMatmulDescDestroy");
  find(set_operation, "cublasLtMatmulDescSetAttribute");
  find(create_layout, "cublasLtMatrixLayoutCreate");
  find(destroy_layout, "cublasLtMatrixLayoutDestroy");
  find(create_preference, "cublasLtMatmulPreferenceCreate");
  find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
  find(choose, "cublasLtMatmulAlgoGetHeuristic");
  find(check_algorithm, "cublasLtMatmulAlgoCheck");
  find(multiply, "cublasLtMatmul");
}

void CublasLt::check(cublasStatus_t answer, const char* call) const {
  if (answer == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(concat("cuBLASLt: ", call, " answered ", name_of_status(answer),
                           "; `hybrid doctor` shows the device and ", library.path(),
                           ", --device cpu works without them"));
}

const CublasLt& cublaslt() {
  // Never closed: at program exit CUDA may be gone already.
  static const CublasLt* const opened = new CublasLt;
  return *opened;
}

}  // namespace hybrid_trainer::kernels::cuda
