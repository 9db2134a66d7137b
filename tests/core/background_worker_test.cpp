#include "src/core/threads.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace hybrid_trainer {
namespace {

TEST(BackgroundWorker, LimitsLibraryThreadsOnlyInWorker) {
  const int callers = omp_get_max_threads();
  for (const int threads : {1, 2, 5}) {
    int seen = 0;
    BackgroundWorker worker(threads, true);
    worker.submit([&] { seen = omp_get_max_threads(); });
    worker.wait_until_idle();
    EXPECT_EQ(seen, threads);
  }
  EXPECT_EQ(omp_get_max_threads(), callers);
}

TEST(BackgroundWorker, RunsJobsInOrderInBothModes) {
  for (const bool background : {true, false}) {
    std::vector<int> done;
    std::thread::id by;
    BackgroundWorker worker(1, background);
    for (int i = 0; i < 20; ++i) {
      worker.submit([&, i] {
        done.push_back(i);
        by = std::this_thread::get_id();
      });
    }
    worker.wait_until_done(20);
    EXPECT_EQ(worker.submitted(), 20);
    EXPECT_EQ(by == std::this_thread::get_id(), !background);
    ASSERT_EQ(done.size(), 20u);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
  }
}

/// One thread submits jobs while another waits for those submitted so far.
TEST(BackgroundWorker, WaitWorksDuringConcurrentSubmits) {
  constexpr int kJobs = 2000;
  std::atomic<int> done = 0;
  BackgroundWorker worker(1, true);
  std::thread giver([&] {
    for (int i = 0; i < kJobs; ++i) worker.submit([&] { ++done; });
  });
  for (std::int64_t given = 0; given < kJobs; given = worker.submitted()) {
    worker.wait_until_done(given);
    EXPECT_GE(done, given);
    worker.wait_until_idle();
  }
  giver.join();
  worker.wait_until_idle();
  EXPECT_EQ(done, kJobs);
}

TEST(BackgroundWorker, FailureIsRethrownAndCancelsLaterJobs) {
  BackgroundWorker worker(1, true);
  bool went_on = false;
  worker.submit([] { throw std::runtime_error("the disk is gone"); });
  worker.submit([&] { went_on = true; });
  for (int i = 0; i < 2; ++i) {
    try {
      worker.wait_until_idle();
      FAIL() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the disk is gone");
    }
  }
  EXPECT_FALSE(went_on);
}

}  // namespace
}  // namespace hybrid_trainer
