#include "hybrid_trainer/memory/activation_placement.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/transformer_block.h"
#include "support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kTime = 8, kWidth = 16;

struct Result {
  std::vector<Tensor> gradients;
  std::size_t device_bytes = 0, host_bytes = 0;  // between forward and backward
};

class ActivationPlacementTest : public ::testing::TestWithParam<const char*> {
 protected:
  Result run(const std::string& where) {
    const Stream host(MemoryPool::create("host"));
    MemoryConfig config;
    config.activations = where;
    ActivationPlacement placement(config, host);
    TransformerBlock block(0, {.width = kWidth, .heads = 2, .head_size = 8, .inner_width = 64},
                           stream_);
    const auto visit_all = [&](const ParameterVisitor& visit) { block.visit_parameters(visit); };
    randomize(visit_all, stream_);
    StepGradients step(visit_all, stream_);
    Result result;
    step.begin(2);
    for (std::uint64_t part = 0; part < 2; ++part) {  // the second reuses the file
      const auto tape = placement.make_tape({}, Rebuild::kNo);
      const std::size_t before = stream_.pool()->use().live_total;
      Tensor x = normal_tensor({2, kTime, kWidth}, 5 + part, stream_);
      const Tensor dy = normal_tensor(x.shape(), 9 + part, stream_);
      block.forward(x, *tape, stream_);
      x = {};
      result.device_bytes = stream_.pool()->use().live_total - before - dy.bytes();
      result.host_bytes = host.pool()->use().live_total;
      result.gradients.push_back(block.backward(dy, *tape, stream_));
      EXPECT_TRUE(tape->empty());
    }
    visit_all([&](Parameter& p) { result.gradients.push_back(clone(p.gradient(), stream_)); });
    return result;
  }
  const Stream stream_ = test_stream();
};

TEST_P(ActivationPlacementTest, ChangesNoBitAndLeavesTheDeviceFree) {
  const Result device = run("device"), away = run(GetParam());
  for (std::size_t i = 0; i < device.gradients.size(); ++i)
    EXPECT_TRUE(same_bits(away.gradients[i], device.gradients[i])) << i;
  EXPECT_GT(device.device_bytes, 10000u);
  EXPECT_EQ(away.device_bytes, 0u);
  EXPECT_EQ(device.host_bytes, 0u);
  EXPECT_EQ(away.host_bytes >= device.device_bytes, std::string(GetParam()) == "host");
}

INSTANTIATE_TEST_SUITE_P(Away, ActivationPlacementTest, ::testing::Values("host", "file"));

TEST(ActivationPlacement, NamesTheFolderThatCannotHoldAFile) {
  const Stream host(MemoryPool::create("host"));
  MemoryConfig config;
  config.activations = "file";
  config.folder = "/nonexistent/folder";
  try {
    ActivationPlacement placement(config, host);
    FAIL() << "no error";
  } catch (const CannotCreate& error) {
    EXPECT_NE(std::string(error.what()).find("memory.folder: cannot make a file in /nonexistent"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
