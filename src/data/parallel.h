#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/core/thread_team.h"

namespace hybrid_trainer {

/// f(i, worker) for i in [0, count) on all threads, 0 <= worker < threads(); after all have
/// finished, rethrows the exception of the smallest i that failed.
template <class F>
void parallel_for(std::int64_t count, const F& f) {
  std::mutex mutex;
  std::exception_ptr failure;
  std::int64_t failed = count;
  run_tasks(count, [&](std::int64_t worker, std::int64_t i) {
    try {
      f(i, narrow<int>(worker));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (i < failed) {
        failed = i;
        failure = std::current_exception();
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace hybrid_trainer
