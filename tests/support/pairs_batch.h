#pragma once

#include "hybrid_trainer/core/batch.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {

/// Returns three sequences of 50 positions with two, one and one pairs, targets only in answers.
inline Batch pairs_batch(std::int64_t vocabulary, const Stream& stream) {
  const Shape shape{3, 50};
  const Tensor tokens = random_tokens(shape, vocabulary, 3, stream);
  const Tensor targets = random_tokens(shape, vocabulary, 4, stream);
  const auto integers = [&] {
    return Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream);
  };
  const Tensor positions = integers(), halves = integers();
  const Tensor references = normal_tensor(shape, 6, stream, 3);
  std::fill_n(halves.data<std::int32_t>(), shape.elements(), -1);
  std::fill_n(positions.data<std::int32_t>(), shape.elements(), 0);
  const auto add = [&](std::int64_t b, std::int64_t begin, std::int64_t first, std::int64_t end,
                       std::int32_t half) {
    for (std::int64_t t = begin; t < end; ++t) {
      positions.data<std::int32_t>()[b * 50 + t] = static_cast<std::int32_t>(t - begin);
      if (t >= first) halves.data<std::int32_t>()[b * 50 + t] = half;
    }
  };
  add(0, 0, 5, 12, 0), add(0, 12, 17, 20, 1), add(0, 20, 26, 33, 2), add(0, 33, 39, 50, 3);
  add(1, 0, 3, 25, 0), add(1, 25, 28, 50, 1);
  add(2, 0, 9, 14, 0), add(2, 14, 23, 30, 1);
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    if (halves.data<std::int32_t>()[i] < 0) targets.data<std::int32_t>()[i] = kNoTarget;
  Batch batch({{"tokens", tokens},
               {"targets", targets},
               {"positions", positions},
               {"halves", halves},
               {"references", references}},
              50);
  batch.set_targets(4);
  return batch;
}

}  // namespace hybrid_trainer::testing
