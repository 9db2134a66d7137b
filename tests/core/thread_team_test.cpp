#include "src/core/threads.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "src/core/machine.h"

namespace hybrid_trainer {
namespace {

/// Number of runs of each of `count` tasks, or {-1} if a task had an invalid worker index.
std::vector<int> runs_of(std::int64_t count) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  std::atomic<bool> is_worker = true;
  const int workers = threads();
  run_tasks(count, [&](std::int64_t worker, std::int64_t i) {
    ++runs[static_cast<std::size_t>(i)];
    if (worker < 0 || worker >= workers) is_worker = false;
  });
  if (!is_worker) return {-1};
  return {runs.begin(), runs.end()};
}

TEST(ThreadTeam, RunsEachTaskOnce) {
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const std::int64_t count = repeat % 7;
    ASSERT_EQ(runs_of(count), std::vector<int>(static_cast<std::size_t>(count), 1)) << repeat;
  }
}

TEST(ThreadTeam, TasksAndCallerSeeEachOthersWrites) {
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::vector<int> in(4, repeat), out(4);
    run_tasks(4, [&](std::int64_t, std::int64_t i) {
      out[static_cast<std::size_t>(i)] = in[static_cast<std::size_t>(i)] + 1;
    });
    ASSERT_EQ(out, std::vector<int>(4, repeat + 1));
  }
}

TEST(ThreadTeam, RunsLongTasksConcurrently) {
  if (threads() < 2) GTEST_SKIP() << "one thread";
  std::atomic<int> begun = 0;
  run_tasks(2, [&](std::int64_t, std::int64_t) {  // each waits for the other
    ++begun;
    begun.notify_all();
    for (int seen = begun; seen < 2; seen = begun) begun.wait(seen);
  });
  EXPECT_EQ(begun, 2);
}

TEST(ThreadTeam, WakesThreadsThatJustFinished) {
  if (threads() < 2) GTEST_SKIP() << "one thread";
  for (int repeat = 0; repeat < 500; ++repeat) {
    std::atomic<int> begun = 0;
    run_tasks(2, [&](std::int64_t, std::int64_t) {  // like the first call
      ++begun;
      while (begun < 2) std::this_thread::yield();
    });
  }
}

TEST(ThreadTeam, RethrowsTaskExceptionAfterAllTasks) {
  for (const std::int64_t count : {1, 2, 64}) {
    std::atomic<int> runs = 0;
    const auto fails = [&](std::int64_t, std::int64_t i) {
      ++runs;
      if (i == count - 1) throw std::runtime_error("task");
    };
    EXPECT_THROW(run_tasks(count, fails), std::runtime_error);
    EXPECT_EQ(runs, count);
    EXPECT_EQ(runs_of(count), std::vector<int>(static_cast<std::size_t>(count), 1));
  }
}

TEST(ThreadTeam, RethrowsFailureOfSmallestIndex) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    try {
      run_tasks(64, [](std::int64_t, std::int64_t i) {
        if (i >= 3) throw i;
      });
      FAIL();
    } catch (const std::int64_t i) {
      EXPECT_EQ(i, 3);
    }
  }
}

TEST(ThreadTeam, RunsNestedTasksOnSameThread) {
  std::atomic<int> runs = 0;
  run_tasks(4, [&](std::int64_t, std::int64_t) {
    const auto self = std::this_thread::get_id();
    EXPECT_EQ(omp_get_max_threads(), 1);
    run_tasks(5, [&](std::int64_t worker, std::int64_t) {
      EXPECT_EQ(worker, 0);
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++runs;
    });
  });
  EXPECT_EQ(runs, 20);
}

TEST(ThreadTeam, SingleTaskHasOneLibraryThread) {
  run_tasks(1, [](std::int64_t, std::int64_t) { EXPECT_EQ(omp_get_max_threads(), 1); });
}

TEST(ThreadTeam, KeepsThreadCount) {
  const int before = threads();
  run_tasks(3, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(threads(), before);
}

TEST(ThreadTeam, ServesConcurrentCallers) {
  std::vector<std::thread> callers;
  std::atomic<int> runs = 0;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 500; ++repeat)
        run_tasks(4, [&](std::int64_t, std::int64_t) { ++runs; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 6000);
}

TEST(ThreadTeam, WorksAfterFork) {
  runs_of(8);
  const pid_t child = fork();
  if (child == 0) _exit(runs_of(8) == std::vector<int>(8, 1) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace hybrid_trainer
