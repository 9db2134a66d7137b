#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels::cpu {

/// A tap of a window along one dimension: `offset` places from the window's first, and which of the
/// kernel's it is.
struct SlidingTap {
  std::int64_t offset, index;
};

/// Windows along one dimension: window o begins at place o·step + origin, which may be outside, and its
/// result goes to place first + o·spread.
struct SlidingDimension {
  std::int64_t places = 1;  // of what is read
  std::int64_t windows = 1, step = 1, origin = 0;
  std::vector<SlidingTap> taps{{0, 0}};  // from the first on
  std::int64_t results = 1, first = 0, spread = 1;
  std::int64_t reach() const { return taps.empty() ? 0 : taps.back().offset + 1; }
};

/// Element (output, tap, input) of a group's weight, by strides.
struct SlidingWeight {
  const void* first = nullptr;  // of group 0
  std::int64_t group = 0;       // elements from group to group
  std::int64_t output = 0, tap = 0, input = 0;
};

/// result[.., output] = bias + Σ over taps and inputs of weight·x[.., input], both channels last and in
/// equal groups; outside x are zeros.
struct SlidingProduct {
  DType dtype = DType::kF32;
  std::int64_t batch = 1, groups = 1;
  std::int64_t inputs = 1, outputs = 1;  // channels of a group
  std::array<SlidingDimension, 3> dimensions{};
  std::int64_t kernel[3] = {1, 1, 1};  // taps that the weight has
  const void* x = nullptr;
  SlidingWeight weight{};
  const float* bias = nullptr;
  void* result = nullptr;
};

/// Writes the results of all windows of products that are independent of each other. Their bits depend
/// on the sizes alone.
void multiply_sliding(std::span<const SlidingProduct> products, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
