#include "tests/support/unsynced_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace {

bool is_within(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

std::string folder_of(const std::string& path) { return fs::path(path).parent_path(); }

}  // namespace

void UnsyncedFiles::wrote(const std::string& path) {
  if (std::ranges::find(contents_, path) == contents_.end()) contents_.push_back(path);
}

void UnsyncedFiles::created(const std::string& path) {
  names_.push_back({.from = "", .path = path, .replaced = ""});
}

std::string UnsyncedFiles::preserve(const std::string& path) const {
  if (!fs::is_regular_file(path)) return "";
  const std::string aside =
      folder_of(folder_of(path)) + "/.replaced-" + std::to_string(names_.size());
  std::error_code taken;
  fs::remove(aside, taken);
  fs::create_hard_link(path, aside);
  return aside;
}

void UnsyncedFiles::renamed(const std::string& from, const std::string& to,
                            const std::string& replaced, bool exchanged) {
  names_.push_back({.from = from, .path = to, .replaced = replaced, .exchanged = exchanged});
  for (std::string& path : contents_) path = path_after(names_.back(), path);
}

void UnsyncedFiles::synced(const std::string& path) {
  std::erase(contents_, path);
  std::vector<NameChange> left;
  for (const NameChange& change : names_) {
    if (folder_of(change.path) != path) {
      left.push_back(change);
      continue;
    }
    // Undoing the earlier changes now has to use the paths that follow this change.
    for (NameChange& earlier : left) earlier.path = path_after(change, earlier.path);
  }
  names_ = left;
}

std::string UnsyncedFiles::path_after(const NameChange& change, const std::string& path) {
  if (change.from.empty()) return path;
  if (is_within(path, change.from)) return change.path + path.substr(change.from.size());
  if (change.exchanged && is_within(path, change.path))
    return change.from + path.substr(change.path.size());
  return path;
}

void UnsyncedFiles::undo(const NameChange& change) {
  std::error_code gone;  // a file removed since stays removed
  if (change.from.empty()) {
    fs::remove_all(change.path, gone);
  } else if (change.exchanged) {
    ::renameat2(AT_FDCWD, change.from.c_str(), AT_FDCWD, change.path.c_str(), RENAME_EXCHANGE);
  } else {
    fs::rename(change.path, change.from, gone);
    if (!change.replaced.empty()) fs::rename(change.replaced, change.path, gone);
  }
}

void UnsyncedFiles::lose(Names names) {
  for (const std::string& path : contents_) {
    if (::truncate(path.c_str(), 0) != 0) continue;  // removed since
  }
  if (names == Names::kKept) return;
  for (auto change = names_.rbegin(); change != names_.rend(); ++change) undo(*change);
}

}  // namespace hybrid_trainer
