#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hybrid_trainer {

/// Tracks the changes that a power cut may lose: content written since a file's last fsync, and
/// names changed since their folder's last fsync. Paths are absolute.
class UnsyncedFiles {
 public:
  enum class Names { kKept, kLost };
  void wrote(const std::string& path);
  void created(const std::string& path);
  /// Links a second name to the file at `path`, to be replaced. Returns it; "" without a file.
  std::string preserve(const std::string& path) const;
  void renamed(const std::string& from, const std::string& to, const std::string& replaced,
               bool exchanged);
  void synced(const std::string& path);
  /// Simulates a power cut: truncates unsynced content and, with kLost, undoes unsynced names.
  void lose(Names names);

 private:
  struct NameChange {
    std::string from;  // empty if `path` is new
    std::string path;
    std::string replaced;  // second name of the replaced file, or empty
    bool exchanged = false;
  };
  static std::string path_after(const NameChange& change, const std::string& path);
  static void undo(const NameChange& change);

  std::vector<std::string> contents_;
  std::vector<NameChange> names_;  // in chronological order
};

}  // namespace hybrid_trainer
