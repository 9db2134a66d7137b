#include "hybrid_trainer/core/interruption.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "src/core/threads.h"

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

// A handler on the stack of a oneDNN product would overwrite the heap.
TEST(Interruption, SignalsAreBlockedInComputeThreads) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) {
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

struct End {
  int exit_code = -1;
  std::string errors;
};

/// Sends the signals to a process with an Interruption, which exits with 0 half a second later.
End end_after(const std::vector<int>& signals, double seconds_apart, bool ends_immediately) {
  int ready[2], errors[2];
  EXPECT_EQ(pipe(ready) + pipe(errors), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(errors[1], STDERR_FILENO);
    const Interruption interruption("nothing was done");
    if (!ends_immediately) interruption.finish_steps_first("ended at once");
    if (write(ready[1], "r", 1) != 1) _exit(1);
    while (!interruption.requested()) usleep(1000);
    const double lasts = 0.5 + seconds_apart * static_cast<double>(signals.size() - 1);
    std::this_thread::sleep_for(std::chrono::duration<double>(lasts));
    _exit(0);
  }
  char text[100];
  EXPECT_EQ(read(ready[0], text, 1), 1);
  for (std::size_t i = 0; i < signals.size(); ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds_apart));
    kill(child, signals[i]);
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(errors[1]);
  const ssize_t length = read(errors[0], text, sizeof text);
  for (const int end : {ready[0], ready[1], errors[0]}) close(end);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          {text, static_cast<std::size_t>(std::max<ssize_t>(0, length))}};
}

// The timeout program signals its child and then the child's group.
TEST(Interruption, SignalsWithinOneSecondCountOnce) {
  EXPECT_EQ(end_after({SIGTERM, SIGTERM}, 0.02, false).exit_code, 0);
  EXPECT_EQ(end_after({SIGTERM, SIGINT, SIGTERM}, 0.2, false).exit_code, 0);
}

TEST(Interruption, HandlesHangupUnlessIgnored) {
  const auto is_taken = [] {
    struct sigaction now {};
    sigaction(SIGHUP, nullptr, &now);
    return now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
  };
  const auto given = std::signal(SIGHUP, SIG_DFL);
  {
    const Interruption interruption;
    EXPECT_TRUE(is_taken());
  }
  EXPECT_FALSE(is_taken());
  std::signal(SIGHUP, SIG_IGN);  // like nohup
  {
    const Interruption interruption;
    EXPECT_FALSE(is_taken());
  }
  std::signal(SIGHUP, given);
}

TEST(Interruption, RepeatedLauncherSignalsExitCleanly) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EQ(end_after({signal, signal}, 1.2, false).exit_code, 0) << signal;
}

TEST(Interruption, LaterSignalEndsImmediatelyWithMessage) {
  const End end = end_after({SIGINT, SIGINT}, 1.2, false);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_EQ(end.errors, "ended at once\n");
}

TEST(Interruption, FirstSignalEndsImmediatelyIfNothingToSave) {
  const End end = end_after({SIGTERM}, 0, true);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_EQ(end.errors, "nothing was done\n");
}

TEST(Interruption, HandlesIgnoredSignalAndRestoresIt) {
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
