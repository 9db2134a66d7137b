#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hybrid_trainer {

/// What a power cut may lose: content written since a file's last fsync, and names made or changed
/// since their folder's last fsync. Paths are absolute.
class UnsyncedFiles {
 public:
  enum class Names { kKept, kLost };
  void wrote(const std::string& path);
  void created(const std::string& path);
  /// A second name for a file that a rename is about to replace; "" if there is none.
  std::string keep_aside(const std::string& path) const;
  void renamed(const std::string& from, const std::string& to, const std::string& replaced,
               bool exchanged);
  void synced(const std::string& path);
  /// Cuts the power: all that content is lost, and with kLost every change of names is undone.
  void lose(Names names);

 private:
  struct NameChange {
    std::string from;  // empty: `path` is new
    std::string path;
    std::string replaced;  // another name of the file that was there, or empty
    bool exchanged = false;
  };
  static std::string path_after(const NameChange& change, const std::string& path);
  static void undo(const NameChange& change);

  std::vector<std::string> contents_;
  std::vector<NameChange> names_;  // in the order in which they were made
};

}  // namespace hybrid_trainer
