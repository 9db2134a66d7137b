#include "output_folder.h"

#include <unistd.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

/// A hidden path beside `path`, with `what` and the process id in its name.
fs::path sibling(const fs::path& path, const char* what) {
  return path.parent_path() / concat(".", path.filename().string(), ".", what, "-", ::getpid());
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path, Existing existing)
    : path_(fs::absolute(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  partial_ = sibling(path_, "partial");
  if (!fs::exists(path_)) return;
  if (!fs::is_directory(path_)) {
    throw CannotCreate(
        concat("output ", path.string(), " is a file; give a folder that does not exist"));
  }
  const bool is_data = fs::exists(path_ / "data.json");
  if (fs::is_empty(path_) || (is_data && existing == Existing::kReplaceData)) return;
  throw CannotCreate(concat("output folder ", path.string(),
                            " exists and is not empty; remove it or give another --output"));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

const fs::path& OutputFolder::create() {
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
  const bool replaces = fs::exists(path_) && !fs::is_empty(path_);
  if (replaces) fs::rename(path_, old, error);
  if (!error) fs::rename(partial_, path_, error);
  if (error) {
    throw IoError(
        concat("cannot rename ", partial_.string(), " to ", path_.string(), ": ", error.message()));
  }
  if (replaces) fs::remove_all(old, error);
}

}  // namespace hybrid_trainer
