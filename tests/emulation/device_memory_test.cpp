// Memory that a run leaves free on a CUDA device, for a product library of 700 MiB.

#include "src/trainer/planning/device_memory.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/trainer/memory_plan.h"
#include "src/run/benchmark.h"
#include "src/trainer/model_trainable.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20, kLibrary = 700 * kMiB;
constexpr Device kDevice{DeviceType::kCuda};

class DeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    emulation::restart_products();
    emulation::device().library_bytes = kLibrary;
  }
  void TearDown() override {
    emulation::restart_products();
    emulation::device().library_bytes = 0;
    emulation::device().memory_bytes = std::size_t{4} << 30;
  }

  /// Sets the device's size so that `bytes` are free.
  static void leave(std::size_t bytes) {
    emulation::device().memory_bytes = emulation::device().taken_bytes + bytes;
  }
  /// A config that needs 2.2 GiB or slightly more.
  static HybridTrainerConfig config() {
    HybridTrainerConfig config;
    config.device = "cuda";
    config.model = {.layers = 2, .heads = 4, .width = 256, .context = 1024, .vocabulary = 256};
    config.data = {.batch_size = 64, .sequence_length = 1024};
    config.phases.max_predict_steps = 0;
    while (simulate_memory(config, kDevice).device_bytes < 2250 * kMiB)
      config.data.batch_size += 16;
    return config;
  }
  static std::size_t need() {
    const std::size_t bytes = simulate_memory(config(), kDevice).device_bytes;
    EXPECT_LT(bytes, 3300 * kMiB);
    return bytes;
  }
  static void multiply(const Stream& stream) {
    const Tensor x = Tensor::zeros({8, 8}, DType::kF32, MemoryKind::kWorkspace, stream);
    const Tensor y = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
    kernels::matmul(y, x, kernels::Transpose::kNo, x, kernels::Transpose::kNo,
                    kernels::GradientMode::kOverwrite, stream);
    stream.synchronize();
  }
  /// Message and exit code of the OutOfMemory that `work` throws, or "" if it throws none.
  static std::string shortage_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.code(), ExitCode::kMemory);
      return error.what();
    }
    return "";
  }
  static void expect_says(const std::string& told, const std::string& part) {
    EXPECT_NE(told.find(part), told.npos) << told;
  }
};

TEST_F(DeviceMemory, LoadsLibraryBeforeReservingSlab) {
  leave(need() + kLibrary + kDeviceMargin);
  const Stream stream(make_device_pool(kDevice));
  prepare_device(stream);
  EXPECT_GE(emulation::device().taken_bytes, kLibrary);
  EXPECT_EQ(stream.pool()->use().fresh_total, 0u);
  reserve_device_memory(config(), stream, "less");
  EXPECT_GE(stream.pool()->use().fresh_total, need());
  EXPECT_EQ(shortage_of([&] { multiply(stream); }), "");
}

/// Without a margin the run would fit unchanged, but a library loaded afterwards would not.
TEST_F(DeviceMemory, PlanLeavesRoomForLibrary) {
  leave(kDeviceMargin + kLibrary + need() / 2);
  ASSERT_GT(emulation::device().memory_bytes - emulation::device().taken_bytes, need());
  const std::size_t budget = plannable_device_bytes(kDevice);
  EXPECT_EQ(budget, need() / 2);
  emulation::restart_products();
  const MemoryPlan plan = plan_memory(config(), kDevice, {.device = budget},
                                      {.flops_per_second = 1e12, .copy_bytes_per_second = 1e10});
  ASSERT_TRUE(plan.fits);
  const Stream stream(make_device_pool(kDevice));
  reserve_device_memory(plan.config, stream, "less");
  EXPECT_EQ(shortage_of([&] { multiply(stream); }), "");
}

TEST_F(DeviceMemory, PlannableBytesExcludeLibraryAndMargin) {
  leave(kLibrary + kDeviceMargin + 100 * kMiB);
  EXPECT_EQ(plannable_device_bytes(kDevice), 100 * kMiB);
  leave(kDeviceMargin / 2);
  EXPECT_EQ(plannable_device_bytes(kDevice), 0u);
}

TEST_F(DeviceMemory, RefusesRunWithoutRoomForLibraries) {
  const Stream stream(make_device_pool(kDevice));
  leave(need() + kLibrary + kDeviceMargin / 2 - 4 * kMiB);
  prepare_device(stream);
  const std::string told = shortage_of([&] { reserve_device_memory(config(), stream, "less"); });
  expect_says(told, "for CUDA's libraries");
  expect_says(told, "try less");
  HybridTrainerConfig own = config();
  own.memory.device_budget.bytes = need();
  EXPECT_EQ(shortage_of([&] { reserve_device_memory(own, stream, "less"); }), "")
      << "the user's own budget";
}

TEST_F(DeviceMemory, WarnsWhenBudgetLeavesLessThanMargin) {
  leave(kDeviceMargin + 100 * kMiB);
  EXPECT_EQ(margin_warning({}, kDevice), "");
  EXPECT_EQ(margin_warning(100 * kMiB, kDevice), "");
  EXPECT_EQ(margin_warning(std::size_t{1} << 40, {}), "") << "of a processor";
  expect_says(margin_warning(200 * kMiB, kDevice),
              "memory.device_budget leaves 969 MB of the 1.18 GB");
  expect_says(margin_warning(std::size_t{1} << 40, kDevice), "leaves 0 B");
}

TEST_F(DeviceMemory, LibraryAllocationFailureIsOutOfMemory) {
  leave(kLibrary - kMiB);
  const Stream stream(make_device_pool(kDevice));
  const std::string told = shortage_of([&] { prepare_device(stream); });
  expect_says(told, "CUBLAS_STATUS_ALLOC_FAILED: cuda:0 has ");
  expect_says(told, "lower memory.device_budget");
}

TEST_F(DeviceMemory, RunWarnsOfBudgetAndReportsLibraryFailure) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  HybridTrainerConfig tiny = tiny_config();
  tiny.device = "cuda";
  tiny.training.steps = 2;
  tiny.memory.device_budget.bytes = 600 * kMiB;
  leave(kLibrary + 800 * kMiB);
  std::string console;
  train_tiny(tiny, scratch / "data", scratch / "run", false, &console);
  expect_says(console, "memory.device_budget leaves ");
  emulation::restart_products();
  leave(kLibrary - kMiB);
  expect_says(shortage_of([&] { train_tiny(tiny, scratch / "data", scratch / "short"); }),
              "CUBLAS_STATUS_ALLOC_FAILED");
}

/// Smaller micro-batches would not free memory for the library.
TEST_F(DeviceMemory, LibraryFailureDoesNotHalveMicroBatches) {
  HybridTrainerConfig tiny = tiny_config();
  tiny.model.vocabulary = 64;
  const Stream stream(make_device_pool(kDevice));
  const auto model = make_model(tiny.model, 0, stream);
  ModelTrainable trainable(*model, tiny, stream, MemoryPool::create("host"),
                           [](const std::string&) {});
  const Tensor ids = Tensor::zeros({4, 16}, DType::kI32, MemoryKind::kData, stream);
  const Batch batch = token_batch(ids, ids);
  trainable.enter_phase(Phase::kFull);
  emulation::restart_products();
  leave(kLibrary - kMiB);
  expect_says(shortage_of([&] { trainable.wait_for_gradient(batch); }),
              "CUBLAS_STATUS_ALLOC_FAILED");
  EXPECT_EQ(trainable.micro_batches().of(batch), 1);
}

TEST_F(DeviceMemory, BenchmarkReservesSlabLikeRun) {
  BenchmarkSettings settings;
  settings.model = config().model;
  settings.batch = 1024;
  settings.sequence = 1024;
  Stream stream(make_device_pool(kDevice));
  const std::string told = shortage_of([&] { run_throughput_benchmark(settings, stream); });
  expect_says(told, "device memory: the run needs ");
  EXPECT_EQ(stream.pool()->use().fresh_total, 0u) << "before it computes anything";
}

}  // namespace
}  // namespace hybrid_trainer
