#include "tests/emulation/block.h"

#include <gtest/gtest.h>

#include <vector>

namespace hybrid_trainer::emulation {
namespace {

constexpr kernels::cuda::Grid kTwoWarps{.threads = 64};

/// Returns the other warp's value that each thread reads first, with or without barriers.
std::vector<int> exchange_in(Order order, bool waits_before_reading, bool waits_after_reading) {
  static thread_local int of_warp[2];
  of_warp[0] = of_warp[1] = -1;
  std::vector<int> found(64, -2);
  set_order(order);
  run_grid("exchange", kTwoWarps, [&] {
    const unsigned int warp = threadIdx.x / 32;
    for (int round = 0; round < 2; ++round) {
      of_warp[warp] = round;
      if (waits_before_reading) __syncthreads();
      found[threadIdx.x] = round == 0 ? of_warp[1 - warp] : found[threadIdx.x];
      if (waits_after_reading) __syncthreads();
      __syncwarp();
    }
  });
  set_order(Order::kForward);
  return found;
}

TEST(EmulatedBlock, BarriersMakeValuesVisible) {
  for (Order order : {Order::kForward, Order::kBackward, Order::kShuffled}) {
    EXPECT_EQ(exchange_in(order, true, true), std::vector<int>(64, 0));
  }
}

TEST(EmulatedBlock, MissingBarrierChangesResultInSomeOrder) {
  EXPECT_NE(exchange_in(Order::kForward, false, true), exchange_in(Order::kBackward, false, true));
  EXPECT_NE(exchange_in(Order::kForward, true, false), exchange_in(Order::kBackward, true, false));
}

TEST(EmulatedBlock, IncompleteBarrierThrows) {
  EXPECT_THROW(run_grid("half", kTwoWarps,
                        [] {
                          if (threadIdx.x % 2 == 0) return;
                          __syncwarp();
                        }),
               Error);
}

}  // namespace
}  // namespace hybrid_trainer::emulation
