#pragma once

#include <algorithm>

#include "hybrid_trainer/kernels/texts.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {

inline constexpr Pooling kPoolings[] = {Pooling::kFirst, Pooling::kMean, Pooling::kLast};
inline constexpr ContrastiveRows kContrastiveRows[] = {ContrastiveRows::kAnchors,
                                                       ContrastiveRows::kPositives};

/// Three sequences of 9 tokens, in 4 slots: two texts that fill one, three texts, and no text.
struct PackedCase {
  static constexpr std::int64_t kSequences = 3, kSlots = 4, kLength = 9;
  static constexpr std::int64_t kRows = kSequences * kSlots, kTokens = kSequences * kLength;
  static Tensor ends(const Stream& stream) {
    return tensor_of({4, 9, 0, 0, 1, 3, 8, 0, 0, 0, 0, 0}, {kSequences, kSlots}, DType::kI32,
                     stream);
  }
};

/// Two sequences with examples of two and three texts, in 8 slots.
struct RolesCase {
  static constexpr std::int64_t kSlots = 16;
  static Values values() { return {0, 1, 0, 1, 2, 0, 1, -1, 0, 1, 2, 3, 0, 1, -1, -1}; }
  static bool has(std::int64_t slot, double role) {
    return slot >= 0 && slot < kSlots && values()[static_cast<std::size_t>(slot)] == role;
  }
  static Tensor roles(const Stream& stream) {
    return tensor_of(values(), {2, 8}, DType::kI32, stream);
  }
  /// Labels with a tie, and other numbers in slots of other roles.
  static Tensor labels(const Stream& stream) {
    return tensor_of({0.25, 9, 1, -9, 7, 0.25, 9, 9, 0, 9, 9, 9, 0.75, 9, -9, 9}, {2, 8},
                     DType::kF32, stream);
  }
};

inline Tensor empty_f32(const Shape& shape, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kActivations, stream);
  std::fill_n(tensor.data<float>(), tensor.elements(), std::nanf(""));
  return tensor;
}

}  // namespace hybrid_trainer::kernels
