#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace hybrid_trainer {

/// A thread that does one job after another, in the order in which they were given, on the CUDA
/// device of the thread that gave the first.
class BackgroundWorker {
 public:
  /// `threads`: for the products of its jobs. Not `beside`: jobs are done where they are given.
  BackgroundWorker(int threads, bool beside) : threads_(threads), beside_(beside) {}
  ~BackgroundWorker() { stop(); }
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  void submit(std::function<void()> job);
  std::int64_t submitted() const;
  /// Blocks until so many jobs are done; returns the seconds that it took, 0 where nothing was left
  /// to do. Throws what a job threw, from then on each time; later jobs, which would build on it,
  /// are given up.
  double wait_until_done(std::int64_t jobs);
  double wait_until_idle() { return wait_until_done(submitted()); }
  /// After the jobs that there are; then no more may be given.
  void stop();
  double seconds() const;  // of all jobs done

 private:
  void run(const std::stop_token& stop);
  void do_next(std::unique_lock<std::mutex>& lock);

  const int threads_;
  const bool beside_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> jobs_;
  std::int64_t submitted_ = 0, done_ = 0;
  double seconds_ = 0;
  std::exception_ptr failure_;
  std::jthread thread_;  // from the first job on
};

}  // namespace hybrid_trainer
