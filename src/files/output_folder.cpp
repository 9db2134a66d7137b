#include "hybrid_trainer/files/output_folder.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

/// A hidden path beside `path`, with `what` and the process id in its name.
fs::path sibling(const fs::path& path, const char* what) {
  return path.parent_path() / concat(".", path.filename().string(), ".", what, "-", ::getpid());
}

/// Removes the partial folders beside `path` of processes that a signal or a power cut ended.
void remove_left_over(const fs::path& path) {
  const std::string prefix = concat(".", path.filename().string(), ".partial-");
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path(), unreadable)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const int process = std::atoi(name.c_str() + prefix.size());
    std::error_code ignored;
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH)
      fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path, Existing existing) try
    : path_(fs::absolute(path).lexically_normal()), existing_(existing) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (fs::exists(path_)) path_ = fs::canonical(path_);
  partial_ = sibling(path_, "partial");
} catch (const fs::filesystem_error& error) {
  throw CannotCreate(
      concat("output \"", path.string(), "\" cannot be looked at: ", error.code().message()));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

const fs::path& OutputFolder::create() {
  remove_left_over(path_);
  std::error_code error;
  fs::create_directories(partial_, error);
  if (error) {
    throw CannotCreate(
        concat("cannot create a folder beside ", path_.string(), ": ", error.message()));
  }
  return partial_;
}

void OutputFolder::commit() {
  std::error_code error;
  const fs::path old = sibling(path_, "old");
  const bool replaces =
      existing_ == Existing::kReplace && fs::exists(path_) && !fs::is_empty(path_);
  if (replaces) fs::rename(path_, old, error);
  if (!error) fs::rename(partial_, path_, error);
  if (error) {
    throw IoError(
        concat("cannot rename ", partial_.string(), " to ", path_.string(), ": ", error.message()));
  }
  if (replaces) fs::remove_all(old, error);
}

}  // namespace hybrid_trainer
