#include "hybrid_trainer/files/output_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/file_descriptor.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/temporary_name.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

/// A hidden path beside `path`, with `what` in its name, that nothing has.
fs::path sibling(const fs::path& path, const char* what) {
  return path.parent_path() / concat(".", path.filename().string(), what, temporary_mark());
}

constexpr const char *kPartial = ".partial-", *kOld = ".old-";

/// Removes what processes that a signal or a power cut ended left beside `path`: partial folders,
/// and replaced ones if their successor is in place. What another host's may still write stays.
void remove_left_over(const fs::path& path) {
  const std::string hidden = concat(".", path.filename().string());
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path(), unreadable)) {
    const std::string name = entry.path().filename().string();
    for (const char* what : {kPartial, kOld}) {
      const std::string prefix = hidden + what;
      if (!name.starts_with(prefix) || (what == kOld && !fs::exists(path))) continue;
      std::error_code ignored;
      if (maker_has_ended(name.substr(prefix.size()))) fs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path, Existing existing) try
    : path_(fs::absolute(path).lexically_normal()), existing_(existing) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (fs::exists(path_)) path_ = fs::canonical(path_);
  partial_ = sibling(path_, kPartial);
} catch (const fs::filesystem_error& error) {
  throw CannotCreate(
      concat("output \"", path.string(), "\" cannot be looked at: ", error.code().message()));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void OutputFolder::require_free() const {
  std::error_code error;
  const bool is_free =
      !fs::exists(path_, error) || (fs::is_directory(path_, error) && fs::is_empty(path_, error));
  if (existing_ == Existing::kRefuse && !is_free) {
    throw CannotCreate(
        concat(path_.string(), " exists already and is not an empty folder; nothing was written"));
  }
  fs::path parent = path_.parent_path();
  while (!fs::exists(parent, error) && parent.has_relative_path()) parent = parent.parent_path();
  const bool is_folder = fs::is_directory(parent, error);
  if (is_folder && ::access(parent.c_str(), W_OK | X_OK) == 0) return;
  throw CannotCreate(concat(path_.string(), ": cannot be made, since ", parent.string(),
                            is_folder ? " may not be written to" : " is no folder"));
}

const fs::path& OutputFolder::create() {
  remove_left_over(path_);
  require_free();
  std::error_code error;
  fs::create_directories(partial_.parent_path(), error);
  if (error || !fs::create_directory(partial_, error)) {
    throw CannotCreate(
        concat("cannot create a folder beside ", path_.string(), ": ", error.message()));
  }
  return partial_;
}

void OutputFolder::commit() {
  sync_tree(partial_);
  const fs::path old = sibling(path_, kOld);
  const bool replaces = existing_ == Existing::kReplace;
  const bool done = replaces ? exchange_folder(partial_, path_, old)
                             : std::rename(partial_.c_str(), path_.c_str()) == 0;
  if (!done) {
    const bool exists = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    const std::string problem =
        system_problem(path_, concat("cannot rename ", partial_.string(), " to it").c_str());
    if (exists) throw CannotCreate(problem);
    throw IoError(problem);
  }
  sync_folder(path_.parent_path());
  std::error_code ignored;
  for (const fs::path& replaced : {old, partial_}) fs::remove_all(replaced, ignored);
}

}  // namespace hybrid_trainer
