#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

using Values = std::vector<double>;

inline Stream cpu_stream() { return Stream(MemoryPool::create("test")); }

inline Tensor tensor_of(const Values& values, const Shape& shape, DType dtype,
                        const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, dtype, MemoryKind::kActivations, stream);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (dtype == DType::kF32) tensor.data<float>()[i] = value;
    if (dtype == DType::kBF16) tensor.data<BFloat16>()[i] = to_bfloat16(value);
    if (dtype == DType::kI32) tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  }
  return tensor;
}

inline Values values_of(const Tensor& tensor) {
  Values values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.dtype() == DType::kF64 ? tensor.data<double>()[i]
                : tensor.dtype() == DType::kF32
                    ? static_cast<double>(tensor.data<float>()[i])
                    : static_cast<double>(to_float(tensor.data<BFloat16>()[i]));
  }
  return values;
}

/// Normally distributed numbers times `size`, rounded to the dtype.
inline Tensor random_tensor(const Shape& shape, DType dtype, std::uint64_t seed,
                            const Stream& stream, double size = 1) {
  Values values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = size * static_cast<double>(random_normal({seed, 0, 0}, i));
  }
  return tensor_of(values, shape, dtype, stream);
}

/// Squares of normally distributed f32 numbers.
inline Tensor random_squares(const Shape& shape, std::uint64_t seed, const Stream& stream) {
  const Tensor x = random_tensor(shape, DType::kF32, seed, stream);
  for (std::int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] *= x.data<float>()[i];
  return x;
}

/// Integers in [0, bound).
inline Tensor random_ids(const Shape& shape, std::int64_t bound, std::uint64_t seed,
                         const Stream& stream) {
  Values values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<double>(random_below({seed, 1, 0}, i, static_cast<std::uint64_t>(bound)));
  }
  return tensor_of(values, shape, DType::kI32, stream);
}

inline Tensor clone(const Tensor& tensor, const Stream& stream) {
  const Tensor result = Tensor::empty_like(tensor, MemoryKind::kActivations, stream);
  copy(result, tensor, stream);
  return result;
}

/// Expects |value − wanted| <= tolerance · (1 + |wanted|) for all elements; reports the worst one.
inline void expect_close(const Tensor& tensor, const Values& wanted, double tolerance,
                         const std::string& what = "") {
  const Values values = values_of(tensor);
  ASSERT_EQ(values.size(), wanted.size()) << what;
  double worst = -1;
  std::size_t at = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(values[i] - wanted[i]) / (1 + std::abs(wanted[i]));
    if (!(error <= worst)) {
      worst = error;
      at = i;
      if (std::isnan(error)) break;
    }
  }
  if (wanted.empty()) return;
  EXPECT_LE(worst, tolerance) << what << ": element " << at << " is " << values[at] << ", want "
                              << wanted[at];
}

inline void expect_same_bits(const Tensor& x, const Tensor& y) {
  ASSERT_EQ(x.bytes(), y.bytes());
  EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0);
}

/// Derivative of sum(weights · f(x)) by each element of x, by central differences; f reads f32.
inline Values finite_differences(const Tensor& x, const Values& weights, double step,
                                 const std::function<Values()>& f) {
  Values result(static_cast<std::size_t>(x.elements()));
  float* const data = x.data<float>();
  const auto objective = [&] {
    const Values y = f();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float kept = data[i];
    data[i] = kept + static_cast<float>(step);
    const double above = objective();
    const double width_above = static_cast<double>(data[i]);
    data[i] = kept - static_cast<float>(step);
    const double below = objective();
    result[i] = (above - below) / (width_above - static_cast<double>(data[i]));
    data[i] = kept;
  }
  return result;
}

/// Tolerance for sums in f32; a bf16 result is also rounded to 8 bits.
inline double tolerance_of(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 1e-2; }
inline constexpr DType kRealTypes[] = {DType::kF32, DType::kBF16};

}  // namespace hybrid_trainer::kernels
