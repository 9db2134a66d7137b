#pragma once

#include <cstddef>

namespace hybrid_trainer {

/// Returns the number of bytes that this thread has read from files by offset, as InputFile does.
/// The test program replaces the system call.
std::size_t bytes_read_by_this_thread();

}  // namespace hybrid_trainer
