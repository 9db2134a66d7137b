#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/stream.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer {
namespace {

/// Blocks a stream until it is opened.
class Gate {
 public:
  explicit Gate(const Stream& stream) {
    emulation::enqueue(stream.native(), [opened = opened_.get_future().share()] { opened.wait(); });
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

bool comes_to(const Event& event) {
  for (int i = 0; i < 2000 && !event.reached(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return event.reached();
}

/// A wait refers to the latest record at the time of the call, as in CUDA. If it referred to later
/// records, two streams that wait for each other's events could deadlock.
TEST(EmulatedEvents, WaitUsesLatestRecordAtCallTime) {
  const auto pool = make_device_pool({DeviceType::kCuda});
  const Stream recorded(pool), waiting(pool);
  Event event, waited;
  EXPECT_TRUE(event.reached());
  event.record(recorded);
  Gate late(waiting);
  waiting.order_after(event);
  waited.record(waiting);
  Gate again(recorded);
  event.record(recorded);
  late.open();
  EXPECT_TRUE(comes_to(waited));
  EXPECT_FALSE(event.reached());
  again.open();
  EXPECT_TRUE(comes_to(event));
}

}  // namespace
}  // namespace hybrid_trainer
