#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/shared_library.h"

namespace hybrid_trainer {

/// One of NVIDIA's libraries that is opened when it is needed.
struct CudaLibrary {
  std::string name;  // "cuBLASLt"
  bool found = false;
  std::string version;  // "13.1.0"; of NVML the driver's; empty where it was not found
  std::string path;     // of the file; empty where it was not found
  std::string problem;  // why it is of no use and the way out; empty where it is
};

/// cuBLASLt, cuDNN, NCCL and NVML, as this machine has them. Opens each for a moment; needs no
/// device. Throws nothing.
std::vector<CudaLibrary> look_for_cuda_libraries();

/// The library that products of matrices need.
WantedLibrary cublaslt_library();

/// Folders that may hold NVIDIA's libraries where the loader does not know them: of CUDA_HOME, of
/// /usr/local/cuda and of the Python packages nvidia-*.
std::vector<std::string> cuda_library_folders();

}  // namespace hybrid_trainer
