#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hybrid_trainer {

/// What a power cut may take: content that was written since a file's last fsync, and names that
/// were made or changed since their folder's. Paths are absolute.
class UnsyncedFiles {
 public:
  enum class Names { kKept, kLost };
  void wrote(const std::string& path);
  void created(const std::string& path);
  /// A second name for a file that a renaming is about to replace; "" where there is none.
  std::string keep_aside(const std::string& path) const;
  void renamed(const std::string& from, const std::string& to, const std::string& replaced,
               bool exchanged);
  void synced(const std::string& path);
  /// Cuts the power: all that content is gone, and with kLost every change of names is undone.
  void lose(Names names);

 private:
  struct NameChange {
    std::string from;  // empty: `path` is new
    std::string path;
    std::string replaced;  // another name of the file that stood there, or empty
    bool exchanged = false;
  };
  static std::string path_after(const NameChange& change, const std::string& path);
  static void undo(const NameChange& change);

  std::vector<std::string> contents_;
  std::vector<NameChange> names_;  // in the order in which they were made
};

}  // namespace hybrid_trainer
