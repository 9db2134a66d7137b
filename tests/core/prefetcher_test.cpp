#include "src/core/prefetcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "tests/support/watched_memory.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kElements = 16384;
constexpr std::size_t kBytes = 4 * kElements;

/// Tensors whose primary location is memory that counts writes.
class PrefetcherTest : public ::testing::Test {
 protected:
  Tensor made(float value) const {
    const Tensor tensor =
        Tensor::empty({kElements}, DType::kF32, MemoryKind::kOptimizerState, home_);
    std::fill_n(tensor.data<float>(), kElements, value);
    return tensor;
  }
  std::vector<Tensor> all_of(const std::vector<float>& values) const {
    std::vector<Tensor> tensors;
    for (const float value : values) tensors.push_back(made(value));
    return tensors;
  }
  std::size_t live() const { return stream_.pool()->use().live_total / kBytes; }
  std::size_t most_live() const { return stream_.pool()->use().peak_total / kBytes; }
  static void expect_all(const Tensor& tensor, float value) {
    for (std::int64_t i = 0; i < kElements; ++i) ASSERT_EQ(tensor.data<float>()[i], value);
  }
  /// Loads a group and adds one to each tensor if `changes`.
  void use(const std::vector<Tensor>& group, bool changes, const Stream& stream) {
    std::vector<Tensor> here;
    for (const Tensor& home : group) here.push_back(prefetcher_.acquire(home, stream));
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (std::int64_t at = 0; changes && at < kElements; ++at) ++here[i].data<float>()[at];
      prefetcher_.release(group[i], here[i], changes, stream);
    }
  }
  void use(const std::vector<Tensor>& group, bool changes) { use(group, changes, stream_); }
  /// Loads one tensor and returns its value.
  float value_of(const Tensor& home) {
    const StagedTensor here(home, Use::kRead, stream_, true, &prefetcher_);
    const Tensor& tensor = here;
    return tensor.data<float>()[kElements - 1];
  }

  std::atomic<int> writes_ = 0;
  std::atomic<bool> fails_ = false;
  const Stream stream_{MemoryPool::create("device")};
  const Stream home_{
      MemoryPool::create("home", {}, std::make_unique<testing::WatchedMemory>(writes_, fails_))};
  Prefetcher prefetcher_;
};

TEST_F(PrefetcherTest, ReadsCorrectValuesInAnyOrder) {
  const std::vector<Tensor> all = all_of({0, 1, 2, 3});
  for (const int i : {0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0, 2, 0, 3, 1, 0, 1, 3})
    EXPECT_EQ(value_of(all[static_cast<std::size_t>(i)]), static_cast<float>(i));
}

TEST_F(PrefetcherTest, WritesChangesBackInAnyGroupOrder) {
  const std::vector<std::vector<Tensor>> groups{all_of({0, 10}), all_of({20}), all_of({30, 40}),
                                                all_of({50})};
  const std::vector<std::vector<std::size_t>> orders{
      {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 2, 3}, {3, 2, 1, 0}, {3, 2, 1, 0}, {3, 2}, {3, 2, 1, 0}};
  std::vector<float> times(4, 0);
  for (const auto& order : orders) {
    prefetcher_.begin_pass();
    for (const std::size_t group : order) {
      use(groups[group], true);
      ++times[group];
    }
    prefetcher_.drain();
    EXPECT_EQ(live(), 0u);
    expect_all(groups[0][0], times[0]);
    expect_all(groups[0][1], 10 + times[0]);
    expect_all(groups[1][0], 20 + times[1]);
    expect_all(groups[2][1], 40 + times[2]);
    expect_all(groups[3][0], 50 + times[3]);
  }
}

TEST_F(PrefetcherTest, HoldsAdjacentGroupsFromSecondPass) {
  std::vector<std::vector<Tensor>> groups;
  for (int i = 0; i < 6; ++i) groups.push_back(all_of({0, 0}));
  const auto pass = [&] {
    stream_.pool()->reset_peaks();
    prefetcher_.begin_pass();
    for (const auto& group : groups) use(group, true);
    prefetcher_.drain();
    return most_live();
  };
  EXPECT_EQ(pass(), 4u);
  EXPECT_EQ(pass(), 6u);
  const std::size_t taken = stream_.pool()->use().fresh_total;
  EXPECT_EQ(pass(), 6u);
  EXPECT_EQ(stream_.pool()->use().fresh_total, taken);
  EXPECT_EQ(writes_, 36);
}

/// A forward and backward pass visits each position twice, with a different successor each time.
TEST_F(PrefetcherTest, ReadsAheadFromSecondPass) {
  const std::vector<Tensor> all = all_of({0, 1, 2, 3});
  const auto pass = [&] {
    for (const std::size_t i : {0u, 1u, 2u, 3u, 2u, 1u}) value_of(all[i]);
  };
  pass();
  EXPECT_EQ(most_live(), 1u) << "nothing is known yet";
  pass();
  EXPECT_EQ(most_live(), 2u);
  EXPECT_EQ(live(), 1u) << "the first tensor of the next pass";
  prefetcher_.drain();
  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(writes_, 0) << "nothing was changed";
}

TEST_F(PrefetcherTest, DoesNotReadAheadPastEndOfPass) {
  const std::vector<Tensor> all = all_of({0, 1, 2});
  for (int round = 0; round < 3; ++round) {
    prefetcher_.begin_pass();
    for (const Tensor& one : all) value_of(one);
    EXPECT_EQ(live(), 0u);
  }
}

TEST_F(PrefetcherTest, LaterReadsSeeChanges) {
  const std::vector<Tensor> all = all_of({0, 1, 2, 3});
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(value_of(all[i]), static_cast<float>(i) + static_cast<float>(round));
      use({all[i]}, true);
    }
  }
  use({all[3]}, true);
  EXPECT_EQ(value_of(all[3]), 8) << "just written";
  prefetcher_.drain();
  expect_all(all[3], 8);
}

TEST_F(PrefetcherTest, DoesNotReadAheadTensorsBeingChanged) {
  const std::vector<Tensor> all = all_of({0, 1});
  for (int round = 1; round <= 3; ++round) {
    const Tensor held = prefetcher_.acquire(all[0], stream_);
    value_of(all[1]);
    std::fill_n(held.data<float>(), kElements, static_cast<float>(round));
    prefetcher_.release(all[0], held, true, stream_);
    EXPECT_EQ(value_of(all[0]), static_cast<float>(round));
  }
}

TEST_F(PrefetcherTest, RereadsAfterWriteWithinGroup) {
  const std::vector<Tensor> all = all_of({0, 1, 2});
  for (float round = 1; round <= 3; ++round) {
    prefetcher_.begin_pass();
    value_of(all[2]);
    const StagedTensor held(all[0], Use::kRead, stream_, true, &prefetcher_);
    use({all[1]}, true);
    use({all[1]}, true);
    EXPECT_EQ(value_of(all[1]), 1 + 2 * round);
  }
}

TEST_F(PrefetcherTest, SmallMemoryHoldsOneTensorAtATime) {
  const std::vector<Tensor> all = all_of({0, 0, 0, 0});
  const Stream small(MemoryPool::create("small", kBytes));
  for (float pass = 1; pass <= 3; ++pass) {
    prefetcher_.begin_pass();
    for (const Tensor& one : all) use({one}, true, small);
    prefetcher_.drain();
    for (const Tensor& one : all) expect_all(one, pass);
  }
}

TEST_F(PrefetcherTest, ReportsDiskFailureAndStaysFailed) {
  const std::vector<Tensor> all = all_of({0, 0});
  prefetcher_.begin_pass();
  fails_ = true;
  EXPECT_THROW(
      {
        for (const Tensor& one : all) use({one}, true);
        prefetcher_.drain();
      },
      IoError);
  fails_ = false;
  EXPECT_THROW(prefetcher_.begin_pass(), IoError) << "the primary location mixes two passes";
}

TEST_F(PrefetcherTest, TakesExpectedAndWritesGivenTensors) {
  const std::vector<Tensor> homes = all_of({0, 0, 0});
  for (std::size_t i = 0; i < 3; ++i) {
    prefetcher_.finish_writes();
    EXPECT_EQ(live(), 0u);
    const Tensor here = Tensor::empty_like(homes[i], homes[i].kind(), stream_);
    std::fill_n(here.data<float>(), kElements, static_cast<float>(i));
    prefetcher_.wait_for_write(prefetcher_.write(homes[i], here, stream_));
    expect_all(homes[i], static_cast<float>(i));
    EXPECT_EQ(live(), 1u) << "held until finish_writes";
  }
  for (std::size_t i = 3; i-- > 0;) {
    const Tensor here = prefetcher_.take(homes[i], stream_);
    prefetcher_.finish_writes();
    expect_all(here, static_cast<float>(i));
    if (i == 0) break;
    prefetcher_.expect(homes[i - 1], stream_);
    prefetcher_.expect(homes[i - 1], stream_);
    EXPECT_EQ(live(), 2u) << "a tensor expected twice is read once";
  }
}

TEST_F(PrefetcherTest, InStreamModeDoesNotReadAhead) {
  Prefetcher in_stream(Copies::kInStream);
  const std::vector<Tensor> all = all_of({0, 1});
  for (float round = 1; round <= 3; ++round) {
    for (std::size_t i = 0; i < 2; ++i) {
      in_stream.expect(all[i], stream_);
      EXPECT_EQ(live(), 0u);
      const Tensor here = in_stream.acquire(all[i], stream_);
      EXPECT_EQ(live(), 1u);
      std::fill_n(here.data<float>(), kElements, round);
      in_stream.release(all[i], here, true, stream_);
      expect_all(all[i], round);
    }
  }
}

TEST_F(PrefetcherTest, ForgetReleasesTensor) {
  std::vector<Tensor> all = all_of({0, 1, 2});
  for (int round = 0; round < 2; ++round)
    for (const Tensor& one : all) value_of(one);
  const std::size_t at_home = home_.pool()->use().live_total;
  prefetcher_.forget(all[1]);
  all.erase(all.begin() + 1);
  EXPECT_EQ(home_.pool()->use().live_total, at_home - kBytes);
  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(value_of(all[1]), 2);
}

}  // namespace
}  // namespace hybrid_trainer
