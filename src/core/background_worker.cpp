#include "hybrid_trainer/core/background_worker.h"

#include <utility>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/started_thread.h"
#include "hybrid_trainer/core/thread_team.h"

namespace hybrid_trainer {

void BackgroundWorker::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWorker::submit(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  ++submitted_;
  jobs_.push_back(std::move(job));
  if (!beside_) return do_next(lock);
  if (!thread_.joinable()) {
    thread_ = start_thread([this] {
      return std::jthread([this, device = CallersDevice()](std::stop_token stop) {
        device.use();
        run(stop);
      });
    });
  }
  changed_.notify_all();
}

void BackgroundWorker::run(const std::stop_token& stop) {
  compute_beside_the_team(threads_);
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !jobs_.empty(); })) do_next(lock);
}

void BackgroundWorker::do_next(std::unique_lock<std::mutex>& lock) {
  const std::function<void()> job = std::move(jobs_.front());
  jobs_.pop_front();
  std::exception_ptr failure = failure_;
  const auto begin = Clock::now();
  lock.unlock();
  try {
    if (!failure) job();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  seconds_ += seconds_since(begin);
  failure_ = failure;
  ++done_;
  changed_.notify_all();
}

std::int64_t BackgroundWorker::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

double BackgroundWorker::wait_until_done(std::int64_t jobs) {
  std::unique_lock lock(mutex_);
  double waited = 0;
  if (done_ < jobs) {
    const auto begin = Clock::now();
    changed_.wait(lock, [&] { return done_ >= jobs; });
    waited = seconds_since(begin);
  }
  if (failure_) {
    changed_.wait(lock, [&] { return done_ == submitted_; });
    std::rethrow_exception(failure_);
  }
  return waited;
}

double BackgroundWorker::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

}  // namespace hybrid_trainer
