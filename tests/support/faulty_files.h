#pragma once

#include <functional>
#include <optional>
#include <string>

namespace hybrid_trainer {

/// System calls on files, which the test program replaces for the tested code and the C++ library.
enum class FileCall { kOpen, kWrite, kSync, kClose, kRename, kMakeFolder, kRemove, kList };

/// Replaces a call: kFail fails it, kKill kills the process (in the middle of a write), kPowerCut
/// loses unsynced content, and kPowerCutWithNames also loses unsynced names. kMeanwhile runs a
/// function just before the call.
enum class FileAction { kFail, kKill, kPowerCut, kPowerCutWithNames, kMeanwhile };

inline constexpr FileAction kStops[] = {FileAction::kKill, FileAction::kPowerCut,
                                        FileAction::kPowerCutWithNames};

/// While alive, counts the calls of one kind, or of all kinds, and does `action` at call number
/// `at`. At most one FileFault exists at a time. Use a child process for kills.
class FileFault {
 public:
  static constexpr int kKilled = 42;  // exit code of the killed process
  struct Plan {
    int at = -1;    // counted from 0; -1 only counts
    int error = 0;  // errno of kFail
    std::optional<FileCall> only;
    FileAction action = FileAction::kFail;
    std::function<void()> meanwhile = {};
    bool can_exchange = true;  // false: renameat2 is not supported, as on some file systems
    std::string within = {};   // limits it to calls whose path contains this text
  };
  explicit FileFault(const Plan& plan);
  ~FileFault();
  FileFault(const FileFault&) = delete;
  FileFault& operator=(const FileFault&) = delete;
  /// Returns the number of calls so far.
  int calls() const;
};

/// A change of files, reported after the call. Paths are absolute.
struct FileChange {
  enum class Kind {
    kCreate,
    kMakeFolder,
    kWrite,
    kTruncate,
    kSync,
    kRename,
    kExchange,
    kLink,
    kRemove
  };
  Kind kind = Kind::kCreate;
  std::string path;
  std::string to{};        // new name of kRename and kLink, other name of kExchange
  std::size_t offset = 0;  // position of kWrite, size after kTruncate
  std::string bytes{};     // written bytes
};

/// Reports all changes while alive. Threads report one at a time. At most one exists at a time.
class FileObserver {
 public:
  explicit FileObserver(std::function<void(const FileChange&)> report);
  ~FileObserver();
  FileObserver(const FileObserver&) = delete;
  FileObserver& operator=(const FileObserver&) = delete;
};

/// Runs `action` in a child process that stops at file call `at`; returns false if it ends before.
bool is_stopped(int at, FileAction stop, const std::function<void()>& action);

}  // namespace hybrid_trainer
