#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/shared_library.h"

namespace hybrid_trainer {

/// One of NVIDIA's libraries that are loaded on demand.
struct CudaLibrary {
  std::string name;  // "cuBLASLt"
  bool found = false;
  std::string version;  // "13.1.0"; for NVML the driver's; empty if not found
  std::string path;     // of the file; empty if not found
  std::string problem;  // why it cannot be used and how to fix that; empty if it can
};

/// cuBLASLt, cuDNN, NCCL and NVML as installed on this machine. Opens each briefly; needs no
/// device. Never throws.
std::vector<CudaLibrary> look_for_cuda_libraries();

/// The library for matrix products.
WantedLibrary cublaslt_library();
/// The library for sending between devices, and its oldest version that is used: 22700 is 2.27.0,
/// the first for CUDA 13.
WantedLibrary nccl_library();
inline constexpr int kOldestNccl = 22700;

/// Folders that may hold NVIDIA's libraries outside the loader's search path: those of CUDA_HOME,
/// /usr/local/cuda and the Python packages nvidia-*.
std::vector<std::string> cuda_library_folders();

}  // namespace hybrid_trainer
