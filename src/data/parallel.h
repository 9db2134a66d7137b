#pragma once

#include <omp.h>

#include <cstdint>
#include <exception>

#include "hybrid_trainer/core/processor.h"

namespace hybrid_trainer {

/// f(i, worker) for i in [0, count) on all threads, 0 <= worker < threads(); after all have
/// finished, rethrows the exception of the smallest i that failed.
template <class F>
void parallel_for(std::int64_t count, const F& f) {
  std::exception_ptr failure;
  std::int64_t failed = count;
#pragma omp parallel num_threads(threads())
  {
    const int worker = omp_get_thread_num();
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i) {
      try {
        f(i, worker);
      } catch (...) {
#pragma omp critical(hybrid_trainer_data_failure)
        if (i < failed) {
          failed = i;
          failure = std::current_exception();
        }
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace hybrid_trainer
