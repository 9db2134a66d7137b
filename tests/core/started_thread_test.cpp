#include "src/core/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;
#else
constexpr bool kLimitsMemory = true;
#endif

/// Error message of `start` in a process without room for another thread stack, or "none".
std::string refusal_of(const std::function<void()>& start) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string said = "none";
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * 4096 + (rlim_t{1} << 20);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    try {
      start();
    } catch (const Error& error) {
      said = concat(static_cast<int>(error.code()), " ", error.what());
    }
    _exit(write(ends[1], said.data(), said.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  char text[1024];
  const ssize_t length = read(ends[0], text, sizeof text);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

TEST(StartedThread, RefusalReportsLimits) {
  if (!kLimitsMemory) GTEST_SKIP() << "sanitizers use up the address space";
  constexpr int kMoreThanStacksThatAreKept = 64;
  const std::function<void()> ways[] = {
      [] {
        auto& never_joined = *new std::vector<std::jthread>;
        for (int i = 0; i < kMoreThanStacksThatAreKept; ++i)
          never_joined.push_back(start_thread([] { return std::jthread([] { pause(); }); }));
      },
      [] { require_more_threads(kMoreThanStacksThatAreKept); },
  };
  for (const auto& start : ways) {
    const std::string said = refusal_of(start);
    EXPECT_TRUE(said.starts_with("71 the system does not allow more threads (")) << said;
    for (const char* const part : {"ulimit -v: ", "ulimit -u", "pids.max", "training.threads"})
      EXPECT_NE(said.find(part), said.npos) << said;
  }
}

TEST(StartedThread, RequireMoreThreadsAcceptsSmallCounts) {
  EXPECT_NO_THROW(require_more_threads(0));
  EXPECT_NO_THROW(require_more_threads(3));
}

}  // namespace
}  // namespace hybrid_trainer
