#include "hybrid_trainer/files/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/file_descriptor.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;

void sync_folder(const fs::path& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) throw IoError(system_problem(path, "cannot open the folder"));
  if (::fsync(folder.number()) != 0) throw IoError(system_problem(path, "fsync failed"));
}

void make_folders(const fs::path& path) try {
  std::vector<fs::path> parents;
  fs::path missing = fs::absolute(path).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();  // "folder/"
  for (; !fs::exists(missing); missing = missing.parent_path())
    parents.push_back(missing.parent_path());
  fs::create_directories(path);
  for (const fs::path& parent : parents) sync_folder(parent);
} catch (const fs::filesystem_error& error) {
  throw_cannot_create(error.code().value(),
                      concat(path.string(), ": cannot be made: ", error.code().message()));
}

void sync_tree(const fs::path& path) {
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) {
      sync_tree(entry.path());
      continue;
    }
    const FileDescriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0 || ::fsync(file.number()) != 0)
      throw IoError(system_problem(entry.path(), "fsync failed"));
  }
  sync_folder(path);
}

bool exchange_folder(const fs::path& from, const fs::path& to, const fs::path& aside) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return false;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return true;
  const bool moved = std::rename(to.c_str(), aside.c_str()) == 0;
  if (moved && std::rename(from.c_str(), to.c_str()) == 0) return true;
  const int error = errno;
  if (moved) std::rename(aside.c_str(), to.c_str());
  errno = error;
  return false;
}

}  // namespace hybrid_trainer
