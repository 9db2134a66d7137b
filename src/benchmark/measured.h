#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "hybrid_trainer/core/cuda_runtime.h"

namespace hybrid_trainer {

/// Of an even count the upper one. `values`: not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// "cpu" or the CUDA device's name.
inline std::string name_of_hardware(Device device) {
  return device.type == DeviceType::kCpu ? "cpu" : cuda_runtime().properties(device.index).name;
}

}  // namespace hybrid_trainer
