#include "hybrid_trainer/core/interruption.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "hybrid_trainer/core/thread_team.h"

namespace hybrid_trainer {
namespace {

bool blocks(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

bool is_requested_soon(const Interruption& interruption) {
  for (int i = 0; i < 5000 && !interruption.requested(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return interruption.requested();
}

// A handler on the stack of a product of oneDNN's would overwrite the heap.
TEST(Interruption, IsTakenByNoThreadThatComputes) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Interruption interruption;
    EXPECT_FALSE(interruption.requested());
    EXPECT_TRUE(blocks(signal));
    std::thread([&] { EXPECT_TRUE(blocks(signal)); }).join();
    run_tasks(64, [&](std::int64_t, std::int64_t) { EXPECT_TRUE(blocks(signal)); });
    kill(getpid(), signal);
    EXPECT_TRUE(is_requested_soon(interruption));
  }
  EXPECT_FALSE(blocks(SIGINT));
}

TEST(Interruption, TakesWhatWasIgnoredAndLeavesItIgnored) {
  std::signal(SIGTERM, SIG_IGN);
  {
    const Interruption interruption;
    kill(getpid(), SIGTERM);
    EXPECT_TRUE(is_requested_soon(interruption));
  }
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace hybrid_trainer
