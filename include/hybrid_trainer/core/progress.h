#pragma once

#include <cstdint>

namespace hybrid_trainer {

/// Counts the work of this process so far, in kernels enqueued, pieces of files read or written and
/// lines of examples, so that another thread can tell whether it still does anything. A process has
/// one.
void count_progress() noexcept;
std::uint64_t progress_so_far() noexcept;

}  // namespace hybrid_trainer
