#pragma once

#include <cstdint>

namespace hybrid_trainer {

/// What this process has done so far, in kernels enqueued, pieces of files read or written and lines
/// of examples, so
/// that another thread can tell whether it still does anything. A process has one.
void count_progress() noexcept;
std::uint64_t progress_so_far() noexcept;

}  // namespace hybrid_trainer
