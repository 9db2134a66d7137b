#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "hybrid_trainer/kernels/matmul.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {

inline constexpr auto kAdd = GradientMode::kAccumulate;
inline const Shape kOne{1}, kRow{4}, kMatrix{4, 4}, kCube{2, 4, 4}, kWide{2, 4, 12};

struct Argument {
  const char* name;
  Shape shape;
  DType dtype = DType::kF32;
};

/// A kernel call with tensors of the arguments' shapes and dtypes.
struct DeviceCase {
  const char* kernel;
  std::vector<Argument> arguments;
  std::function<void(const Tensors&, const Stream&)> call;
};

/// Parameter: a list of calls. Every tensor of a call must be on the stream's device.
class CheckDevice : public ::testing::TestWithParam<const std::vector<DeviceCase>*> {};

}  // namespace hybrid_trainer::kernels
