#pragma once

#include <cstdint>
#include <filesystem>

namespace hybrid_trainer {

/// SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE end the process from now on, also as the first
/// process of a container, for which the kernel has no default action. Other processes go on
/// ignoring those that they were started to ignore. Temporary paths are removed first. For the main
/// thread of a program.
void end_on_signals();

/// Removes temporary paths and ends the process, without destructors. Safe in a signal handler.
[[noreturn]] void end_process(int exit_code);

/// A file, or an empty folder, that end_process, exit() and signals that end the process remove
/// while this lives.
class TemporaryPath {
 public:
  explicit TemporaryPath(const std::filesystem::path& path);
  ~TemporaryPath();
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

 private:
  int place_ = -1;
};

/// Counts the work of this process so far, in kernels enqueued, pieces of files read or written and
/// lines of examples, so that another thread can tell whether it still does anything. A process has
/// one.
void count_progress() noexcept;
std::uint64_t progress_so_far() noexcept;

}  // namespace hybrid_trainer
