#pragma once

#include <cstdint>
#include <filesystem>

namespace hybrid_trainer {

/// Makes SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE remove temporary paths and end the process,
/// also as process 1 of a container, for which signals have no default actions. Signals ignored at
/// the start stay ignored, except SIGINT and SIGTERM in process 1. Call it from the main thread.
void end_on_signals();

/// Removes temporary paths and ends the process, without destructors. Safe in a signal handler.
[[noreturn]] void end_process(int exit_code);

/// A file or an empty folder that end_process, exit() and fatal signals remove during the lifetime
/// of this object.
class TemporaryPath {
 public:
  explicit TemporaryPath(const std::filesystem::path& path);
  ~TemporaryPath();
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

 private:
  int place_ = -1;
};

/// Counts one unit of work (a kernel, file chunk or line), so that a watchdog can detect a stall.
void count_progress() noexcept;
std::uint64_t progress_so_far() noexcept;

}  // namespace hybrid_trainer
