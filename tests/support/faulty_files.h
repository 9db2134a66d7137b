#pragma once

#include <functional>
#include <optional>
#include <string>

namespace hybrid_trainer {

/// System calls that change or list files. This test program has its own version of them, which the
/// code under test and the C++ library call.
enum class FileCall { kOpen, kWrite, kSync, kClose, kRename, kMakeFolder, kRemove, kList };

/// What happens in place of a call: it fails; the process is killed, in the middle of the call if
/// it is a write; or the power is cut, which loses content that was not synced, and names that were
/// not synced or not. Or something else happens just before the call.
enum class FileAction { kFail, kKill, kPowerCut, kPowerCutWithNames, kMeanwhile };

inline constexpr FileAction kStops[] = {FileAction::kKill, FileAction::kPowerCut,
                                        FileAction::kPowerCutWithNames};

/// While it exists, counts the calls of one kind, or of all, and does `action` at call number `at`.
/// One at a time. Kills must be used in a process of their own.
class FileFault {
 public:
  static constexpr int kKilled = 42;  // exit code of the killed process
  struct Plan {
    int at = -1;    // from 0; -1: only counts
    int error = 0;  // errno of kFail
    std::optional<FileCall> only;
    FileAction action = FileAction::kFail;
    std::function<void()> meanwhile = {};
    bool can_exchange = true;  // false: renameat2 is not supported, as on some file systems
    std::string within = {};   // only calls for paths that contain it
  };
  explicit FileFault(const Plan& plan);
  ~FileFault();
  FileFault(const FileFault&) = delete;
  FileFault& operator=(const FileFault&) = delete;
  /// Calls so far.
  int calls() const;
};

/// Does `action` in a process of its own that is stopped at its file call `at`; false where it ends
/// before.
bool is_stopped(int at, FileAction stop, const std::function<void()>& action);

}  // namespace hybrid_trainer
