#pragma once

#include <functional>
#include <optional>

namespace hybrid_trainer {

/// What changes or lists files. This test program has its own version of the system's calls, which
/// the code under test and the C++ library call.
enum class FileCall { kOpen, kWrite, kSync, kClose, kRename, kMakeFolder, kRemove, kList };

/// What happens at a call in place of it: it fails; the process is killed, in the midst of the call
/// where it is a write; or the power is cut, which takes content that was not synced, and names
/// that were not synced or not. Or something else happens just before it.
enum class FileAction { kFail, kKill, kPowerCut, kPowerCutWithNames, kMeanwhile };

/// While it lives, counts the calls of one kind, or of all, and does `action` at the one of number
/// `at`. One at a time. Whoever kills does so in a process of its own.
class FileFault {
 public:
  static constexpr int kKilled = 42;  // what the killed process answers with
  struct Plan {
    int at = -1;    // from 0; -1: only counts
    int error = 0;  // errno of kFail
    std::optional<FileCall> only;
    FileAction action = FileAction::kFail;
    std::function<void()> meanwhile = {};
    bool can_exchange = true;  // false: renameat2 is not known, as on some file systems
  };
  explicit FileFault(const Plan& plan);
  ~FileFault();
  FileFault(const FileFault&) = delete;
  FileFault& operator=(const FileFault&) = delete;
  /// Calls so far.
  int calls() const;
};

}  // namespace hybrid_trainer
