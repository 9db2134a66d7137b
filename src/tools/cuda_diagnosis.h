#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "hybrid_trainer/core/cuda_libraries.h"
#include "hybrid_trainer/core/cuda_runtime.h"

namespace hybrid_trainer {

/// What `hybrid doctor` reports about one CUDA device.
struct CudaDeviceDiagnosis {
  CudaProperties properties;
  double fp32_flops_per_second = 0;
  double bf16_flops_per_second = 0;
  double copy_bytes_per_second = 0;
  std::string problem;  // why it could not be measured, or ""
};

/// What `hybrid doctor` reports about CUDA.
struct CudaDiagnosis {
  std::string problem;  // why there is none and how to fix that, or ""
  std::string driver, runtime;
  std::vector<CudaDeviceDiagnosis> devices;
  std::vector<CudaLibrary> libraries;
};

/// Looks for driver, devices and libraries, and measures each device. Device errors do not throw.
CudaDiagnosis diagnose_cuda();
void print(const CudaDiagnosis& found);
boost::json::object as_json(const CudaDiagnosis& found);

}  // namespace hybrid_trainer
