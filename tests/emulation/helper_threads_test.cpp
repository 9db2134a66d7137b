// Threads of the project use the device of the thread that starts them.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/stream.h"
#include "src/core/cuda_runtime.h"
#include "src/core/threads.h"
#include "src/distributed/host_ranks.h"
#include "src/distributed/rank_watch.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer {
namespace {

/// Error of a call in a thread that has not used a device.
std::string error_in_a_thread(const std::function<void()>& call) {
  std::string told;
  std::thread([&] {
    try {
      call();
    } catch (const DeviceError& error) {
      told = error.what();
    }
  }).join();
  return told;
}

TEST(HelperThreads, RefuseAndCountCallsWithoutDevice) {
  const Stream stream(make_device_pool({DeviceType::kCuda, 2}));
  Event event;
  event.record(stream);
  event.synchronize();
  const auto expect_call = [](const std::string& told, const std::string& call) {
    EXPECT_EQ(told.find("CUDA: " + call + " in a thread that has used no device"), 0u) << told;
  };
  expect_call(error_in_a_thread([&] { event.reached(); }), "cudaEventQuery");
  expect_call(error_in_a_thread([&] { stream.synchronize(); }), "cudaStreamSynchronize");
  EXPECT_EQ(emulation::device().strays.exchange(0), 2);
  const CallerDevice device;
  EXPECT_EQ(error_in_a_thread([&] {
              device.use();
              event.reached();
              stream.synchronize();
            }),
            "");
}

TEST(HelperThreads, WorkerUsesDeviceOfItsCaller) {
  cuda_runtime().use(3);
  int device = -1;
  BackgroundWorker worker(1, true);
  worker.submit([&] { device = CudaRuntime::current_device(); });
  worker.wait_until_idle();
  EXPECT_EQ(device, 3);
}

TEST(HelperThreads, RankWatchUsesDeviceOfItsRank) {
  std::atomic<int> right = 0, wrong = 0;
  run_thread_ranks(2, [&](Communicator& ranks) {
    const int device = 1 + ranks.rank();
    cuda_runtime().use(device);
    std::atomic<bool> asked = false;
    const RankWatch watch(ranks,
                          {.limits = {.heartbeat = std::chrono::milliseconds(5)},
                           .secret = "a test",
                           .progress =
                               [&] {
                                 if (!asked.exchange(true))
                                   ++(CudaRuntime::current_device() == device ? right : wrong);
                                 return RankProgress{};
                               },
                           .report = [](const std::string&, bool) {},
                           .end = [] {}});
    while (!asked) std::this_thread::yield();
  });
  EXPECT_EQ(right, 2);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hybrid_trainer
