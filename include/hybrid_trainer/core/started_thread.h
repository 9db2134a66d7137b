#pragma once

#include <system_error>

namespace hybrid_trainer {

/// Throws Error(ExitCode::kMemory), which names the limits on the number of threads of this process.
[[noreturn]] void throw_thread_refused();

/// Calls `start`, which starts a thread, and returns its result. Throws as throw_thread_refused if the system
/// refuses one. Every thread is started through it.
template <class Start>
auto start_thread(const Start& start) {
  try {
    return start();
  } catch (const std::system_error&) {
    throw_thread_refused();
  }
}

/// Throws as throw_thread_refused if `count` more threads cannot run at once: for libraries that end
/// the process then.
void require_more_threads(int count);

}  // namespace hybrid_trainer
