#pragma once

#include <cstddef>

namespace hybrid_trainer {

/// Returns the bytes that this thread has read by offset; the test program replaces the call.
std::size_t bytes_read_by_this_thread();

}  // namespace hybrid_trainer
