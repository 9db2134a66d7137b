#include "hybrid_trainer/core/short_turns.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <thread>

namespace hybrid_trainer {
namespace {

/// Of this thread, as the system tells it: its slice lies after size, policy, flags, nice, priority.
std::uint64_t slice() {
  std::array<char, 48> attributes{};
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0), 0);
  std::uint64_t runtime = 0;
  std::memcpy(&runtime, attributes.data() + 24, sizeof runtime);
  return runtime;
}

int nice_of_thread() { return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid))); }

TEST(ShortTurns, AreTakenByOneThreadWhichStaysAsNice) {
  const std::uint64_t before = slice();
  std::thread([&] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 3);
    if (!take_short_turns()) GTEST_SKIP() << "the system does not let it";
    EXPECT_EQ(nice_of_thread(), 3);
    if (before != 0) {
      EXPECT_EQ(slice(), 100'000u);  // older systems tell no slice
    }
  }).join();
  EXPECT_EQ(slice(), before);
}

}  // namespace
}  // namespace hybrid_trainer
