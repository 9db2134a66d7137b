#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace hybrid_trainer::testing {

/// Returns the peak resident memory of this process.
inline std::size_t most_resident_bytes() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<std::size_t>(use.ru_maxrss) * 1024;
}

}  // namespace hybrid_trainer::testing
