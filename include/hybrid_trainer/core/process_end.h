#pragma once

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

}  // namespace hybrid_trainer
