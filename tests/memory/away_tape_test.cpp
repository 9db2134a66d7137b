#include "hybrid_trainer/memory/away_tape.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/nn/transformer_block.h"
#include "support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kTime = 8, kWidth = 16;

struct Result {
  std::vector<Tensor> gradients;
  std::size_t device_bytes = 0, home_bytes = 0;  // between forward and backward
};

class AwayTapeTest : public ::testing::TestWithParam<const char*> {
 protected:
  Result run(const std::string& where) {
    MemoryPlaces places({}, stream_, MemoryPool::create("host"));
    const Stream& home = places.at(where);
    TransformerBlock block(0, {.width = kWidth, .heads = 2, .head_size = 8, .inner_width = 64},
                           stream_);
    const auto visit_all = [&](const ParameterVisitor& visit) { block.visit_parameters(visit); };
    randomize(visit_all, stream_);
    StepGradients step(visit_all, stream_);
    Result result;
    step.begin(2);
    for (std::uint64_t part = 0; part < 2; ++part) {  // the second reuses the file
      const auto tape = make_tape({}, Rebuild::kNo, home, stream_);
      const std::size_t before = stream_.pool()->use().live_total;
      Tensor x = normal_tensor({2, kTime, kWidth}, 5 + part, stream_);
      const Tensor dy = normal_tensor(x.shape(), 9 + part, stream_);
      block.forward(x, *tape, stream_);
      x = {};
      result.device_bytes = stream_.pool()->use().live_total - before - dy.bytes();
      result.home_bytes = home.pool() == stream_.pool() ? 0 : home.pool()->use().live_total;
      result.gradients.push_back(block.backward(dy, *tape, stream_));
      EXPECT_TRUE(tape->empty());
    }
    visit_all([&](Parameter& p) { result.gradients.push_back(clone(p.gradient(), stream_)); });
    return result;
  }
  const Stream stream_ = test_stream();
};

TEST_P(AwayTapeTest, ChangesNoBitAndLeavesTheDeviceFree) {
  const Result device = run("device"), away = run(GetParam());
  for (std::size_t i = 0; i < device.gradients.size(); ++i)
    EXPECT_TRUE(same_bits(away.gradients[i], device.gradients[i])) << i;
  EXPECT_GT(device.device_bytes, 10000u);
  EXPECT_EQ(away.device_bytes, 0u);
  EXPECT_EQ(device.home_bytes, 0u);
  EXPECT_GE(away.home_bytes, device.device_bytes);
}

INSTANTIATE_TEST_SUITE_P(Away, AwayTapeTest, ::testing::Values("host", "file"));

}  // namespace
}  // namespace hybrid_trainer::testing
