#include "hybrid_trainer/files/folder.h"

#include <fcntl.h>
#include <unistd.h>

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

void make_folders(const fs::path& path) {
  std::vector<fs::path> parents;
  fs::path missing = fs::absolute(path).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();  // "folder/"
  for (; !fs::exists(missing); missing = missing.parent_path())
    parents.push_back(missing.parent_path());
  fs::create_directories(path);
  for (const fs::path& parent : parents) sync_folder(parent);
}

}  // namespace hybrid_trainer
