#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/faulty_files.h"

namespace hybrid_trainer {

/// Contents of a folder by relative path. A folder has a path that ends with '/'.
using FolderContents = std::map<std::string, std::string>;

FolderContents read_folder(const std::filesystem::path& folder);

/// Writes the contents to `folder`, which is removed before.
void write_folder(const FolderContents& contents, const std::filesystem::path& folder);

/// Describes the first difference, or returns "".
std::string difference(const FolderContents& got, const FolderContents& want);

/// The changes that an action made below a folder, and the states in which a crash can leave it.
///
/// The disk keeps everything up to the last fsync: contents by fsync of the file, names by fsync of
/// their folder. It may keep or lose each later change, in any combination. A write that it keeps
/// may be torn, and a write that it loses may leave zeros.
class FileHistory {
 public:
  /// Faults of an action, planted by changing the history of its calls.
  enum class Planted {
    kNothing,
    kNoFileSync,         // fsync of files does nothing
    kNoFolderSync,       // fsync of folders does nothing
    kNoLastFolderSync,   // the last fsync of a folder does nothing
    kRenameBeforeSync,   // each file is renamed before its fsync, and folders likewise
    kNoSyncOfOneFile,    // fsync of the largest file does nothing
    kLastWriteUnsynced,  // the last write to each file comes after its fsync
    kWriteInPlace,       // files are written under their last names
  };

  /// Records the changes of `action` in `folder`.
  static FileHistory record(const std::filesystem::path& folder,
                            const std::function<void(FileHistory&)>& action);

  /// Marks the current position, so that `marks_before` can tell which part of the action is done.
  void mark();
  std::size_t marks_before(std::size_t position) const;

  std::size_t size() const { return changes_.size(); }
  FileHistory with(Planted fault) const;

  /// Returns the contents after the first `position` changes; by default after all.
  FolderContents contents(std::size_t position) const;

  struct Crash {
    std::size_t position = 0;  // changes made before the crash
    std::vector<bool> kept;    // for each of the changes whether the disk has it
    std::size_t torn = 0;      // a write of which the disk has only the first bytes:
    std::size_t torn_at = 0;   // their number; 0 if no write is torn
    bool zeros = false;        // lost writes leave zeros
  };
  /// Returns the contents after a crash.
  FolderContents contents(const Crash& crash) const;

  /// Returns crashes at each position: each combination if at most `exhaustive` changes are not yet
  /// synced; otherwise none, all, each one lost, each one kept, each prefix, and `random` others.
  std::vector<Crash> crashes(std::size_t position, std::size_t exhaustive, std::size_t random,
                             std::mt19937_64& generator) const;
  std::string text(const Crash& crash) const;

 private:
  static constexpr int kNone = -1;
  struct Node {
    bool is_folder = false;
    std::map<std::string, int> names;
    std::string bytes;
  };
  /// One entry of a folder is set to a node, or removed.
  struct NameChange {
    int folder = 0;
    std::string name;
    int node = kNone;
  };
  struct Change {
    enum class Kind { kNames, kWrite, kTruncate, kSync } kind = Kind::kNames;
    int node = 0;
    std::vector<NameChange> names{};
    std::size_t offset = 0;
    std::string bytes{};
    std::string text{};
  };
  struct Disk {
    std::vector<Node> nodes;
    void apply(const Change& change);
    void add(int folder, const std::string& path, FolderContents& contents) const;
  };

  void load(const std::filesystem::path& folder, int node);
  void add(const FileChange& change);
  void add_names(const FileChange& change);
  void take(Change change);
  int find(const std::string& path, bool create);
  std::pair<int, std::string> place(const std::string& path);
  int new_node(bool is_folder);
  void find_syncs();

  std::string root_;
  Disk initial_, now_;  // both have all nodes
  std::vector<Change> changes_;
  std::vector<std::size_t> synced_by_;  // for each change the first position at which it is safe
  std::vector<std::size_t> marks_;
};

}  // namespace hybrid_trainer
