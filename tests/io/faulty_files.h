#pragma once

#include <optional>

namespace hybrid_trainer {

/// What changes or lists files. This test program has its own version of the system's calls, which
/// the code under test and the C++ library call.
enum class FileCall { kOpen, kWrite, kSync, kClose, kRename, kMakeFolder, kRemove, kList };

/// While it lives, counts the calls of one kind, or of all, and lets the one of number `at` fail
/// with `error`. One at a time.
class FileFault {
 public:
  struct Plan {
    int at = -1;  // from 0; -1: only counts
    int error = 0;
    std::optional<FileCall> only;
  };
  explicit FileFault(const Plan& plan);
  ~FileFault();
  FileFault(const FileFault&) = delete;
  FileFault& operator=(const FileFault&) = delete;
  /// Calls so far.
  int calls() const;
};

}  // namespace hybrid_trainer
