#include "src/optim/state_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer::testing {
namespace {

/// Memory that says so where it is copied to, or refuses.
class WatchedMemory final : public MemorySource {
 public:
  explicit WatchedMemory(std::atomic<int>& writes, const std::atomic<bool>& fails)
      : writes_(writes), fails_(fails) {}
  void* take(std::size_t bytes) noexcept override { return memory_->take(bytes); }
  void give(void* data, std::size_t bytes) noexcept override { memory_->give(data, bytes); }
  Device device() const override { return {}; }
  bool copy_in(void* own, const void* from, std::size_t bytes) override {
    if (fails_) throw IoError("no disk");
    ++writes_;
    std::memcpy(own, from, bytes);
    return true;
  }

 private:
  std::unique_ptr<MemorySource> memory_ = system_memory();
  std::atomic<int>& writes_;
  const std::atomic<bool>& fails_;
};

class StateQueueTest : public ::testing::Test {
 protected:
  Tensor state(float value, std::int64_t count = 1000) const {
    const Tensor made = Tensor::zeros({count}, DType::kF32, MemoryKind::kOptimizerState, home_);
    std::fill_n(made.data<float>(), count, value);
    return made;
  }
  std::size_t live() const { return stream_.pool()->use().live_total; }
  /// Adds one to each.
  void update(StateQueue& queue, const std::vector<Tensor>& of_weight) {
    std::vector<Tensor> here;
    for (const Tensor& tensor : of_weight) here.push_back(queue.acquire(tensor, stream_));
    for (const Tensor& tensor : here) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) ++tensor.data<float>()[i];
      queue.release();
    }
  }
  static void expect_all(const Tensor& tensor, float value) {
    for (const float got : numbers(tensor)) ASSERT_EQ(got, value);
  }

  std::atomic<int> writes_ = 0;
  std::atomic<bool> fails_ = false;
  const Stream stream_ = test_stream();
  const Stream home_{
      MemoryPool::create("home", {}, std::make_unique<WatchedMemory>(writes_, fails_))};
};

TEST_F(StateQueueTest, ChangesWhatIsAtHomeInWhateverOrderWeightsCome) {
  const std::vector<std::vector<Tensor>> weights{
      {state(0), state(10, 3)}, {state(20)}, {state(30), state(40)}, {state(50)}};
  StateQueue queue;
  const std::vector<std::vector<std::size_t>> orders{
      {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 2, 3}, {3, 2, 1, 0}, {3, 2, 1, 0}, {3, 2}, {3, 2, 1, 0}};
  std::vector<float> times(4, 0);
  for (const auto& order : orders) {
    queue.begin_update();
    for (const std::size_t weight : order) {
      update(queue, weights[weight]);
      ++times[weight];
    }
    queue.end_update();
    EXPECT_EQ(live(), 0u);
    expect_all(weights[0][0], times[0]);
    expect_all(weights[0][1], 10 + times[0]);
    expect_all(weights[1][0], 20 + times[1]);
    expect_all(weights[2][1], 40 + times[2]);
    expect_all(weights[3][0], 50 + times[3]);
  }
}

TEST_F(StateQueueTest, HoldsTheWeightBeforeAndFromTheSecondUpdateOnTheOneAfter) {
  std::vector<Tensor> weights;
  for (int i = 0; i < 6; ++i) weights.push_back(state(0, 16384));
  StateQueue queue;
  const auto most_live = [&] {
    stream_.pool()->reset_peaks();
    queue.begin_update();
    for (const Tensor& weight : weights) update(queue, {weight});
    queue.end_update();
    return stream_.pool()->use().peak_total / weights[0].bytes();
  };
  EXPECT_EQ(most_live(), 2u);
  EXPECT_EQ(most_live(), 3u);
  const std::size_t taken = stream_.pool()->use().fresh_total;
  EXPECT_EQ(most_live(), 3u);
  EXPECT_EQ(stream_.pool()->use().fresh_total, taken);
  EXPECT_EQ(writes_, 18);
}

TEST_F(StateQueueTest, HoldsOneAtATimeWhereMemoryIsTooSmallForMore) {
  std::vector<Tensor> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(state(0, 16384));
  const Stream small(MemoryPool::create("small", weights[0].bytes()));
  StateQueue queue;
  for (float step = 1; step <= 3; ++step) {
    queue.begin_update();
    for (const Tensor& weight : weights) {
      const Tensor here = queue.acquire(weight, small);
      for (std::int64_t i = 0; i < here.elements(); ++i) ++here.data<float>()[i];
      queue.release();
    }
    queue.end_update();
    for (const Tensor& weight : weights) expect_all(weight, step);
  }
}

TEST_F(StateQueueTest, ReportsADiskThatFailsAtTheLatestAtTheEndOfTheUpdate) {
  const std::vector<Tensor> weights{state(0), state(0)};
  StateQueue queue;
  queue.begin_update();
  fails_ = true;
  EXPECT_THROW(
      {
        for (const Tensor& weight : weights) update(queue, {weight});
        queue.end_update();
      },
      IoError);
  fails_ = false;
  EXPECT_THROW(queue.begin_update(), IoError) << "what is at home is of two updates";
}

TEST_F(StateQueueTest, GivesEachOptimizerTheBitsOfStateThatStays) {
  for (const char* name : {"adamw", "sgd", "lion", "muon", "adafactor"}) {
    SCOPED_TRACE(name);
    OptimizerConfig config;
    config.name = name;
    ParameterSet near(stream_), far(stream_);
    const auto stays = make_optimizer(config, near.pointers(), stream_);
    const auto moves =
        make_optimizer(config, far.pointers(), stream_, home_, {}, StateTraffic::kBeside);
    writes_ = 0;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const std::size_t without = step == 3 ? 2 : 100;
      near.set_gradients(step, without);
      far.set_gradients(step, without);
      stays->step(0.01f, 1, stream_);
      moves->step(0.01f, 1, stream_);
    }
    EXPECT_TRUE(far.has_values(near.copies()));
    EXPECT_GT(writes_, 20);
    std::map<std::string, Tensor> wanted;
    stays->visit_state(
        [&](const StateLabel& label, Tensor& tensor) { wanted[label.name] = tensor; });
    moves->visit_state([&](const StateLabel& label, Tensor& tensor) {
      EXPECT_TRUE(same_bits(tensor, wanted.at(label.name))) << label.name;
    });
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
