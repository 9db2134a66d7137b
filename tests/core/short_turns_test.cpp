#include "src/core/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <thread>

namespace hybrid_trainer {
namespace {

/// Scheduling slice of this thread, the field after priority; 0 on older systems.
std::uint64_t slice() {
  std::array<char, 48> attributes{};
  if (syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0) != 0) return 0;
  std::uint64_t runtime = 0;
  std::memcpy(&runtime, attributes.data() + 24, sizeof runtime);
  return runtime;
}

int nice_of_thread() { return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid))); }

TEST(ShortTurns, AffectOneThreadAndKeepNiceness) {
  const std::uint64_t before = slice();
  std::thread([&] {
    const auto thread = static_cast<id_t>(syscall(SYS_gettid));
    static_cast<void>(setpriority(PRIO_PROCESS, thread, std::max(3, nice_of_thread())));
    const int nice = nice_of_thread();
    if (!use_short_time_slices()) GTEST_SKIP() << "the system does not allow short slices";
    EXPECT_EQ(nice_of_thread(), nice);
    if (before != 0) {
      EXPECT_EQ(slice(), 100'000u);
    }
  }).join();
  EXPECT_EQ(slice(), before);
}

}  // namespace
}  // namespace hybrid_trainer
