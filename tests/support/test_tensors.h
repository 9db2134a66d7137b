#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::testing {

inline Stream test_stream() { return Stream(MemoryPool::create("test")); }

/// Returns normally distributed f32 values from `seed`, times `size`.
inline Tensor normal_tensor(const Shape& shape, std::uint64_t seed, const Stream& stream,
                            float size = 1) {
  Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.data<float>()[i] = size * random_normal({seed, 0, 0}, static_cast<std::uint64_t>(i));
  }
  return tensor;
}

/// Returns random i32 token ids in [0, bound).
inline Tensor random_tokens(const Shape& shape, std::int64_t bound, std::uint64_t seed,
                            const Stream& stream) {
  Tensor tensor = Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::uint64_t token = random_below({seed, 1, 0}, static_cast<std::uint64_t>(i),
                                             static_cast<std::uint64_t>(bound));
    tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(token);
  }
  return tensor;
}

inline Tensor clone(const Tensor& tensor, const Stream& stream) {
  Tensor other = Tensor::empty_like(tensor, MemoryKind::kWorkspace, stream);
  copy(other, tensor, stream);
  return other;
}

inline bool same_bits(const Tensor& x, const Tensor& y) {
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

/// Returns the elements of an f32 or bf16 tensor.
inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.dtype() == DType::kBF16 ? to_float(tensor.data<BFloat16>()[i])
                                               : tensor.data<float>()[i];
  }
  return values;
}

inline double dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

/// Returns the relative error ‖x − y‖ / ‖y‖, or the norm of x if y is 0.
inline double relative_error(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() != y.size()) return HUGE_VAL;
  std::vector<double> difference(x.size());
  std::transform(x.begin(), x.end(), y.begin(), difference.begin(), std::minus<>());
  const double wanted = std::sqrt(dot(y, y));
  constexpr double kZero = 1e-15;  // residue of sums that cancel
  return std::sqrt(dot(difference, difference)) / (wanted > kZero ? wanted : 1);
}
inline double relative_error(const Tensor& x, const Tensor& y) {
  return relative_error(values_of(x), values_of(y));
}

}  // namespace hybrid_trainer::testing
