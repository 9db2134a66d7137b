#include "hybrid_trainer/kernels/attention.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(Rotary, RotatesFirstHeadsByPosition) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t half : {1, 3, 16}) {
      const std::int64_t size = 2 * half, width = 3 * size + 1, first = 2;
      const Tensor x = random_tensor({2, 5, width}, dtype, 1, stream);
      const Tensor table = random_tensor({8, size}, DType::kF32, 2, stream);
      Values wanted = values_of(x);
      const Values angles = values_of(table);
      for (std::int64_t row = 0; row < 10; ++row) {
        for (std::int64_t head = 0; head < 2; ++head) {
          for (std::int64_t i = 0; i < half; ++i) {
            const auto at = static_cast<std::size_t>(row * width + head * size + i);
            const auto angle = static_cast<std::size_t>((first + row % 5) * size + i);
            const double u = wanted[at], v = wanted[at + static_cast<std::size_t>(half)];
            const double c = angles[angle], s = angles[angle + static_cast<std::size_t>(half)];
            wanted[at] = u * c - v * s;
            wanted[at + static_cast<std::size_t>(half)] = v * c + u * s;
          }
        }
      }
      rotate(x, 2, table, first, Tensor(), Rotation::kForward, stream);
      expect_close(x, wanted, tolerance_of(dtype));
    }
  }
}

TEST(Rotary, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({1, 3, 8}, DType::kF32, 1, stream);
  const Tensor table = random_tensor({3, 4}, DType::kF32, 2, stream);
  const Tensor dy = random_tensor({1, 3, 8}, DType::kF32, 3, stream);
  const Values wanted = finite_differences(x, values_of(dy), 1e-2, [&] {
    const Tensor turned = clone(x, stream);
    rotate(turned, 2, table, 0, Tensor(), Rotation::kForward, stream);
    return values_of(turned);
  });
  rotate(dy, 2, table, 0, Tensor(), Rotation::kBackward, stream);
  expect_close(dy, wanted, 1e-3);
}

TEST(Rotary, RotatesByGivenPositions) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({1, 4, 8}, DType::kF32, 1, stream), other = clone(x, stream);
  const Tensor table = random_tensor({4, 4}, DType::kF32, 2, stream);
  const Tensor positions = tensor_of({0, 1, 0, 1}, {1, 4}, DType::kI32, stream);
  rotate(x, 2, table, 0, positions, Rotation::kForward, stream);
  rotate(other.view({2, 2, 8}), 2, table, 0, Tensor(), Rotation::kForward, stream);
  expect_same_bits(x, other);
  EXPECT_THROW(rotate(x.view({2, 2, 8}), 2, table, 0, positions, Rotation::kForward, stream),
               ShapeMismatch);
}

TEST(Rotary, RotatesOnlyFirstChannelsOfWideHeads) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({1, 3, 16}, DType::kF32, 1, stream), whole = clone(x, stream);
  const Tensor table = random_tensor({3, 4}, DType::kF32, 2, stream);
  rotate(x, {2, 8}, table, 0, Tensor(), Rotation::kForward, stream);
  Values wanted = values_of(whole);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t head = 0; head < 2; ++head) {  // the first four channels, as a head of four
      const Tensor part = Tensor::empty({1, 3, 4}, DType::kF32, MemoryKind::kActivations, stream);
      for (std::size_t i = 0; i < 4; ++i)
        part.data<float>()[row * 4 + i] = static_cast<float>(wanted[row * 16 + head * 8 + i]);
      rotate(part, 1, table, 0, Tensor(), Rotation::kForward, stream);
      for (std::size_t i = 0; i < 4; ++i)
        wanted[row * 16 + head * 8 + i] = part.data<float>()[row * 4 + i];
    }
  }
  expect_close(x, wanted, 0);
  EXPECT_THROW(rotate(x, {3, 8}, table, 0, Tensor(), Rotation::kForward, stream), ShapeMismatch);
  EXPECT_THROW(rotate(x, {2, 3}, table, 0, Tensor(), Rotation::kForward, stream), ShapeMismatch);
}

TEST(Rotary, AdjacentPairsEqualHalvesOfPermutedChannels) {
  const Stream stream = cpu_stream();
  constexpr std::int64_t kTurned = 6, kHead = 8;
  for (const Rotation rotation : {Rotation::kForward, Rotation::kBackward}) {
    const Tensor adjacent = random_tensor({1, 3, 2 * kHead}, DType::kF32, 1, stream);
    const Tensor halves = clone(adjacent, stream);
    const Tensor table = random_tensor({3, kTurned}, DType::kF32, 2, stream);
    // Channel i of the first order is channel halves_of(i) of the second.
    const auto halves_of = [](std::int64_t i) {
      const std::int64_t head = i / kHead * kHead, channel = i % kHead;
      if (channel >= kTurned) return i;
      return head + channel / 2 + channel % 2 * kTurned / 2;
    };
    const auto at = [](const Tensor& x, std::int64_t row, std::int64_t i) -> float& {
      return x.data<float>()[row * 2 * kHead + i];
    };
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t i = 0; i < 2 * kHead; ++i)
        at(halves, row, halves_of(i)) = at(adjacent, row, i);
    rotate(adjacent, {2, kHead, true}, table, 0, Tensor(), rotation, stream);
    rotate(halves, {2, kHead}, table, 0, Tensor(), rotation, stream);
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t i = 0; i < 2 * kHead; ++i)
        EXPECT_EQ(at(adjacent, row, i), at(halves, row, halves_of(i))) << row << " " << i;
  }
}

TEST(Rotary, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({1, 3, 8}, DType::kF32, 1, stream);
  const Tensor table = random_tensor({4, 4}, DType::kF32, 2, stream);
  EXPECT_THROW(rotate(x, 3, table, 0, Tensor(), Rotation::kForward, stream), ShapeMismatch);
  EXPECT_THROW(rotate(x, 2, table, 2, Tensor(), Rotation::kForward, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
