#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "src/core/cuda_runtime.h"
#include "src/core/recording.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// Errors of a device, after which the CPU remains usable.
class CudaErrors : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(scratch_ / "data"); }
  void TearDown() override {
    emulation::device().refuses.clear();
    emulation::device().fails.clear();
    unsetenv("CUDA_LAUNCH_BLOCKING");
    emulation::device().memory_bytes = std::size_t{4} << 30;
  }

  /// Trains and returns the error that ends the run.
  template <class Wanted>
  std::string error_of(const std::string& device, ExitCode code) {
    HybridTrainerConfig config = tiny_config();
    config.device = device;
    try {
      train_tiny(config, scratch_ / "data", scratch_ / concat("run", ++runs_));
    } catch (const Wanted& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  void expect_processor_works() {
    HybridTrainerConfig config = tiny_config();
    config.device = "cpu";
    EXPECT_EQ(train_tiny(config, scratch_ / "data", scratch_ / "cpu").end, RunEnd::kFinished);
  }

  TemporaryFolder scratch_;
  int runs_ = 0;
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << text << " lacks " << part;
  }
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(CudaErrors, ReportsLowMemoryBeforeFirstStep) {
  emulation::device().memory_bytes = std::size_t{1} << 20;
  expect_parts(error_of<OutOfMemory>("cuda", ExitCode::kMemory),
               {"device memory", "CUDA's libraries", "data.batch_size"});
  expect_processor_works();
}

TEST_F(CudaErrors, LaunchFailureNamesKernel) {
  emulation::device().refuses = "layer_norm_forward";
  expect_parts(error_of<DeviceError>("cuda", ExitCode::kDevice), {"CUDA", "layer_norm_forward"});
  expect_processor_works();
}

TEST_F(CudaErrors, RecordingFailureReportsCauseAndRecovers) {
  const Stream stream(make_device_pool({DeviceType::kCuda, 0}));
  const Tensor from = Tensor::zeros({8}, DType::kF32, MemoryKind::kActivations, stream);
  const Tensor to = Tensor::empty({8}, DType::kBF16, MemoryKind::kActivations, stream);
  const auto record = [&] {
    return Recording(stream, [&](const Stream& recorded) { kernels::cast(to, from, recorded); });
  };
  emulation::device().refuses = "cast";
  try {
    record();
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& error) {
    expect_parts(error.what(), {"launch of cast"});
  }
  emulation::device().refuses.clear();
  record().replay(stream);
  stream.synchronize();
  EXPECT_EQ(to_float(wait_for_host(to, stream).data<BFloat16>()[7]), 0.0f);
}

/// Error of a cast that fails while it runs, followed by an add and by `end`.
std::string error_of_a_failing_cast() {
  const Stream stream(make_device_pool({DeviceType::kCuda, 0}));
  const Tensor from = Tensor::zeros({8}, DType::kF32, MemoryKind::kActivations, stream);
  const Tensor to = Tensor::empty({8}, DType::kBF16, MemoryKind::kActivations, stream);
  emulation::device().fails = "cast";
  try {
    kernels::cast(to, from, stream);
    while (cuda_runtime().failure().empty()) std::this_thread::yield();
    kernels::add(from, from, from, stream);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST_F(CudaErrors, EarlierFailureIsNotBlamedOnNextKernel) {
  expect_parts(error_of_a_failing_cast(),
               {"an earlier kernel or copy failed", "detected at the launch of add",
                "CUDA_LAUNCH_BLOCKING=1 to find the kernel"});
}

TEST_F(CudaErrors, BlockingLaunchesNameFailedKernel) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const std::string error = error_of_a_failing_cast();
  expect_parts(error, {"CUDA: cast failed with an error that the test wants"});
  EXPECT_EQ(error.find("earlier"), error.npos) << error;
}

TEST_F(CudaErrors, FailurePersistsInLaterCalls) {
  error_of_a_failing_cast();
  const Stream stream(make_device_pool({DeviceType::kCuda, 0}));
  const auto expect_failure = [](const char* call, const std::function<void()>& make) {
    try {
      make();
      ADD_FAILURE() << call << ": no error";
    } catch (const DeviceError& error) {
      expect_parts(error.what(),
                   {"an earlier kernel or copy failed", concat("detected at ", call)});
    }
  };
  const Tensor x = Tensor::empty({8}, DType::kF32, MemoryKind::kActivations, stream);
  Event event;
  for (int i = 0; i < 2; ++i) {
    expect_failure("cudaStreamSynchronize", [&] { stream.synchronize(); });
    expect_failure("cudaMemsetAsync", [&] { fill_zero(x, stream); });
    expect_failure("cudaEventCreate", [&] { event.record(stream); });
  }
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  expect_failure("cudaStreamIsCapturing", [&] { kernels::add(x, x, x, stream); });
}

TEST_F(CudaErrors, EventAfterFailedWorkThrows) {
  const Stream stream(make_device_pool({DeviceType::kCuda, 0}));
  Event event;
  emulation::enqueue(stream.native(), [] { throw std::runtime_error("a fault"); });
  const auto record_and_wait = [&] {  // the failure may precede the event
    event.record(stream);
    event.synchronize();
  };
  EXPECT_THROW(record_and_wait(), DeviceError);
}

TEST_F(CudaErrors, MissingDeviceReportsDeviceCount) {
  expect_parts(error_of<DeviceError>("cuda:7", ExitCode::kDevice), {"cuda:7", "4 CUDA devices"});
}

TEST(FindDevice, ResolvesDeviceNames) {
  EXPECT_EQ(find_device("cpu"), Device{});
  EXPECT_EQ(find_device("auto"), (Device{DeviceType::kCuda, 0}));
  EXPECT_EQ(find_device("cuda"), find_device("cuda:0"));
  EXPECT_EQ(find_device("cuda", 2), find_device("cuda:2"));
  EXPECT_EQ(find_device("auto", 5), find_device("cuda:1"));  // of four devices
  EXPECT_EQ(find_device("cuda:3", 1), find_device("cuda:3"));
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CUDA", ""}) {
    EXPECT_THROW(find_device(name), ConfigError) << name;
    EXPECT_FALSE(is_device_name(name)) << name;
  }
}

}  // namespace
}  // namespace hybrid_trainer
