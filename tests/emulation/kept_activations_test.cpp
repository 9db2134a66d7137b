// On CUDA too, backward recomputes activation functions only if the run requests it.

#include <map>
#include <mutex>

#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

class KeptActivations : public ::testing::Test {
 protected:
  void SetUp() override {
    prepare_tiny_data(scratch_ / "data");
    emulation::device().sees_launch = [this](const std::string& kernel, const auto&) {
      std::lock_guard lock(mutex_);
      ++launches_[kernel];
    };
  }
  void TearDown() override { emulation::device().sees_launch = nullptr; }

  static HybridTrainerConfig config(bool keeps) {
    HybridTrainerConfig config = tiny_config();
    config.device = "cuda";
    config.training.steps = 8;
    config.phases.max_predict_steps = 0;
    config.memory.recompute = keeps ? 0 : 0.2;
    config.model.vocabulary = 17;
    return config;
  }
  /// Number of separate GELU kernels launched in a run.
  int launches(bool keeps) {
    launches_.clear();
    const auto run = scratch_ / (keeps ? "kept" : "computed");
    train_tiny(config(keeps), scratch_ / "data", run);
    loss_[keeps] = records_of(run).back().loss;
    return launches_["gelu_forward"];
  }

  TemporaryFolder scratch_;
  std::mutex mutex_;
  std::map<std::string, int> launches_;
  std::map<bool, double> loss_;
};

TEST_F(KeptActivations, AreNotRecomputed) {
  EXPECT_EQ(launches(true), 0);
  EXPECT_EQ(launches(false), 8);
  EXPECT_NEAR(loss_[true], loss_[false], 1e-3);
}

TEST_F(KeptActivations, IncreasePlannedMemory) {
  const Device device{DeviceType::kCuda, 0};
  EXPECT_GT(simulate_memory(config(true), device).device_bytes,
            simulate_memory(config(false), device).device_bytes);
}

}  // namespace
}  // namespace hybrid_trainer
