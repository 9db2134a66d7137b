#include "src/trainer/sharding/semiseparable_parts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/semiseparable.h"
#include "src/distributed/host_ranks.h"

namespace hybrid_trainer {
namespace {

using kernels::FactorType;
using kernels::Semiseparable;
using kernels::SemiseparableGradients;

Stream own_stream() { return Stream(MemoryPool::create("rank")); }

Tensor normal(const Shape& shape, std::uint64_t seed, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kParameters, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[i] = random_normal({seed, 0, 0}, static_cast<std::uint64_t>(i));
  return tensor;
}

Semiseparable matrix_of(std::int64_t size, std::int64_t rank, FactorType type,
                        const Stream& stream) {
  return kernels::with_factors({.diagonal = normal({size}, 1, stream),
                                .above = normal({size - 1}, 2, stream),
                                .below = normal({size - 1}, 3, stream),
                                .u = normal({rank, size}, 4, stream),
                                .v = normal({rank, size}, 5, stream)},
                               type, stream);
}

void expect_same_bits(const Tensor& x, const Tensor& y) {
  ASSERT_EQ(x.bytes(), y.bytes());
  EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0);
}

SemiseparableGradients gradients_of(std::int64_t rows_u, std::int64_t rows_v, const Tensor& x,
                                    const Stream& stream) {
  const std::int64_t size = x.size(1);
  return {.x = normal(x.shape(), 7, stream),
          .diagonal = normal({size}, 8, stream),
          .above = normal({size - 1}, 9, stream),
          .below = normal({size - 1}, 10, stream),
          .u = Tensor::zeros({rows_u, size}, DType::kF32, MemoryKind::kParameters, stream),
          .v = Tensor::zeros({rows_v, size}, DType::kF32, MemoryKind::kParameters, stream),
          .mode = kernels::GradientMode::kAccumulate};
}

/// Numbers of columns that are and are not divisible by the number of ranks.
TEST(SemiseparableParts, MatchesSingleRank) {
  constexpr std::int64_t kSize = 33;
  const Stream stream = own_stream();
  for (const FactorType type : {FactorType::kF32, FactorType::kBF16, FactorType::kI8}) {
    for (const auto& [rank, ranks] :
         {std::pair{6, 1}, std::pair{6, 3}, std::pair{11, 2}, std::pair{7, 4}, std::pair{3, 3}}) {
      const Semiseparable whole = matrix_of(kSize, rank, type, stream);
      const Tensor x = normal({5, kSize}, 6, stream), y = normal({5, kSize}, 7, stream);
      const SemiseparableGradients wanted = gradients_of(rank, rank, x, stream);
      kernels::semiseparable_backward(wanted, y, x, whole, stream);
      const Tensor product = Tensor::empty_like(x, MemoryKind::kActivations, stream);
      kernels::semiseparable_forward(product, x, whole, kernels::Transpose::kNo, stream);
      std::mutex one_at_a_time;
      std::size_t bytes = 0;
      run_thread_ranks(ranks, [&](Communicator& others) {
        const Stream mine = own_stream();
        const SemiseparableParts parts(whole, others, mine);
        const Shard u = parts.columns_of_u(), v = parts.columns_of_v();
        const Tensor got = Tensor::empty_like(x, MemoryKind::kActivations, mine);
        parts.forward(got, x, kernels::Transpose::kNo, mine);
        const SemiseparableGradients gradients = gradients_of(u.elements(), v.elements(), x, mine);
        parts.backward(gradients, y, x, mine);
        const std::lock_guard lock(one_at_a_time);
        bytes += parts.bytes();
        expect_same_bits(got, product);
        expect_same_bits(gradients.x, wanted.x);
        expect_same_bits(gradients.diagonal, wanted.diagonal);
        expect_same_bits(gradients.above, wanted.above);
        expect_same_bits(gradients.below, wanted.below);
        expect_same_bits(gradients.u, wanted.u.rows(u.first, u.last));
        expect_same_bits(gradients.v, wanted.v.rows(v.first, v.last));
      });
      const std::size_t factors = whole.u.bytes() + whole.v.bytes(),
                        others = kernels::semiseparable_bytes(whole) - factors;
      EXPECT_EQ(bytes, static_cast<std::size_t>(ranks) * others + factors);
    }
  }
}

TEST(SemiseparableParts, TwoRanksHoldAboutHalfEach) {
  const Stream stream = own_stream();
  const Semiseparable whole = matrix_of(2048, 11, FactorType::kF32, stream);
  run_thread_ranks(2, [&](Communicator& others) {
    const Stream mine = own_stream();
    EXPECT_EQ(SemiseparableParts(whole, others, mine).bytes(), 114'680u);
  });
}

TEST(SemiseparableParts, RejectsMoreRanksThanColumns) {
  const Stream stream = own_stream();
  const Semiseparable whole = matrix_of(9, 2, FactorType::kF32, stream);
  std::string message;
  try {
    run_thread_ranks(3, [&](Communicator& others) {
      const Stream mine = own_stream();
      const SemiseparableParts parts(whole, others, mine);
    });
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("U and V have 2 columns for 3 ranks"), std::string::npos) << message;
}

}  // namespace
}  // namespace hybrid_trainer
