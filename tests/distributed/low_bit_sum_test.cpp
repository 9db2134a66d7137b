#include "src/distributed/delayed_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "src/distributed/host_ranks.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kSummed = 1000;
constexpr int kSumming = 3;

float summand(int rank, std::int64_t i) {
  const float size = i < 300 ? 1e-3f : 1.0f;
  return size *
         random_normal({static_cast<std::uint64_t>(rank), 0, 0}, static_cast<std::uint64_t>(i));
}

double exact_sum(std::int64_t i) {
  double sum = 0;
  for (int rank = 0; rank < kSumming; ++rank) sum += static_cast<double>(summand(rank, i));
  return sum;
}

/// Repeats the same sum `rounds` times and returns each rank's accumulated results.
std::array<std::vector<double>, kSumming> sums_of(std::int64_t bits, int rounds) {
  std::array<std::vector<double>, kSumming> got;
  run_thread_ranks(kSumming, [&](Communicator& ranks) {
    const Stream stream{MemoryPool::create("device")};
    const QuantizationErrors errors(kSummed, bits, ranks, stream);
    std::vector<double>& sums = got[static_cast<std::size_t>(ranks.rank())];
    sums.resize(kSummed);
    for (int round = 0; round < rounds; ++round) {
      const Tensor mine = Tensor::zeros({errors.message_error.elements()}, DType::kF32,
                                        MemoryKind::kWorkspace, stream);
      for (std::int64_t i = 0; i < kSummed; ++i) mine.data<float>()[i] = summand(ranks.rank(), i);
      kernels::axpy(mine, mine, -1, errors.message_error, stream);
      DelayedSum sum(mine, errors, {1.5}, ranks, stream);
      const Tensor summed = sum.wait();
      const float* const total = summed.data<float>();
      EXPECT_EQ(sum.sum_of(0), 1.5 * kSumming);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(total[i]);
    }
  });
  return got;
}

double largest_error(const std::vector<double>& sums, int rounds, std::int64_t first,
                     std::int64_t last) {
  double worst = 0;
  for (std::int64_t i = first; i < last; ++i)
    worst = std::max(worst, std::abs(sums[static_cast<std::size_t>(i)] - rounds * exact_sum(i)));
  return worst;
}

TEST(QuantizedSum, AgreesAcrossRanksWithSmallError) {
  for (const std::int64_t bits : {8, 4}) {
    const auto got = sums_of(bits, 1);
    for (const auto& one : got) EXPECT_EQ(one, got[0]) << bits;
    // Half of the widest gap between quantized values, for the summands and the sum, in blocks with
    // a maximum of 4.
    const double space = bits == 8 ? 0.0075 : 0.155;
    EXPECT_LT(largest_error(got[0], 1, 0, kSummed), space * 4 * (kSumming + 2)) << bits;
    EXPECT_GT(largest_error(got[0], 1, 0, kSummed), 0) << bits;
  }
}

TEST(QuantizedSum, UsesScalePerBlock) {
  EXPECT_LT(largest_error(sums_of(4, 1)[0], 1, 0, 256), 0.155 * 4e-3 * (kSumming + 2));
}

/// Without error feedback, forty sums would have forty times the error of one.
TEST(QuantizedSum, FeedsBackRoundingErrors) {
  for (const std::int64_t bits : {8, 4}) {
    const double once = largest_error(sums_of(bits, 1)[0], 1, 0, kSummed);
    const double often = largest_error(sums_of(bits, 40)[0], 40, 0, kSummed);
    EXPECT_LT(often, 4 * once) << bits;
  }
}

TEST(QuantizedSum, SendsCodesAndScales) {
  for (const std::int64_t bits : {8, 4}) {
    run_thread_ranks(kSumming, [&](Communicator& ranks) {
      const Stream stream{MemoryPool::create("device")};
      const QuantizationErrors errors(kSummed, bits, ranks, stream);
      const Tensor mine = Tensor::zeros({errors.message_error.elements()}, DType::kF32,
                                        MemoryKind::kWorkspace, stream);
      DelayedSum(mine, errors, {1}, ranks, stream).wait();
      // Shards of 334 elements, rounded up to blocks of 256 or 64.
      const std::uint64_t shard = bits == 8 ? 512 + 2 * 4 : 384 / 2 + 6 * 4;
      EXPECT_EQ(ranks.use().bytes_sent, (2 * shard + 2 * 8) * (kSumming - 1))
          << "includes the words";
    });
  }
}

}  // namespace
}  // namespace hybrid_trainer
