#pragma once

#include <cstddef>

namespace hybrid_trainer {

/// Bytes that this thread has read from files by their offset, as InputFile does. This test program
/// has its own version of the system call.
std::size_t bytes_read_by_this_thread();

}  // namespace hybrid_trainer
