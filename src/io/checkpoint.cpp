#include "hybrid_trainer/io/checkpoint.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/output_file.h"
#include "src/io/checkpoint_files.h"
#include "src/io/safetensors_header.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTemporary = ".tmp-";
constexpr const char* kTrash = ".trash-";

bool begins_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

/// A folder that is removed with its contents at the end of the scope, unless it was renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {
    fs::create_directory(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

IoError not_written(std::int64_t step, const std::exception& problem) {
  return IoError(concat("the checkpoint of step ", step, " is not written (", problem.what(),
                        "); earlier checkpoints are untouched"));
}

std::map<std::string, std::vector<NamedTensor>> tensors_by_file(const State& state) {
  std::map<std::string, std::vector<NamedTensor>> files;
  for (const auto& [name, tensor] : state.tensors) {
    const char* file = begins_with(name, "model.")       ? kModelName
                       : begins_with(name, "optimizer.") ? kOptimizerName
                                                         : kTrainerName;
    files[file].push_back({name, tensor});
  }
  return files;
}

/// Throws IoError before anything is written if the disk cannot hold it.
void check_free_space(const std::string& folder, const State& state) {
  constexpr std::size_t kReserve = std::size_t{1} << 20;
  std::size_t needed = kReserve;
  for (const auto& [name, tensor] : state.tensors) needed += tensor.bytes();
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const std::size_t free = static_cast<std::size_t>(disk.f_bavail) * disk.f_frsize;
  if (free < needed) {
    throw IoError(concat(folder, ": no space left: the checkpoint needs ", needed >> 20, " MiB, ",
                         free >> 20, " MiB are free"));
  }
}

std::size_t write_files(const std::string& folder, std::int64_t step, const State& state,
                        const std::string& config_hash) {
  CheckpointInfo info;
  info.step = step;
  info.config_hash = config_hash;
  info.project_version = HT_PROJECT_VERSION;
  for (auto& [name, tensors] : tensors_by_file(state)) {
    OutputFile file(folder + "/" + name);
    info.files[name] = append_safetensors(file, std::move(tensors), {{"format", "pt"}});
    file.sync_and_close();
  }
  const auto write_text = [&](const char* name, const std::string& text) {
    OutputFile file(folder + "/" + name);
    file.write(text);
    file.sync_and_close();
  };
  const std::string numbers = state_bytes(state);
  write_text(kStateName, numbers);
  info.files[kStateName] = {numbers.size(), checksum_of(numbers)};
  write_text(kManifestName, manifest_text(info));
  return info.bytes();
}

/// Throws IoError.
std::vector<std::string> names_in(const std::string& folder) try {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
} catch (const fs::filesystem_error& problem) {
  throw IoError(concat(folder, ": cannot list it: ", problem.code().message()));
}

/// Moves the checkpoints up to `step` beyond the newest `keep` to the trash. Those of later steps
/// are another run's or damaged: they stay. Throws IoError if one could not be moved, after moving
/// all others.
void rotate(const std::string& folder, std::int64_t step, std::int64_t keep) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    const std::int64_t found = step_of_checkpoint_name(name);
    if (found >= 0 && found <= step) steps.push_back(found);
  }
  std::sort(steps.rbegin(), steps.rend());
  std::string problem;
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) {
    const std::string name = checkpoint_name(steps[i]), path = folder + "/" + name;
    if (std::rename(path.c_str(), (folder + "/" + kTrash + name).c_str()) != 0)
      problem = system_problem(path, "cannot move it to the trash");
  }
  if (!problem.empty()) throw IoError(problem);
}

/// Throws IoError if something could not be removed, after removing everything else.
void remove_leftovers(const std::string& folder) {
  std::string problem;
  for (const std::string& name : names_in(folder)) {
    if (!begins_with(name, kTemporary) && !begins_with(name, kTrash)) continue;
    std::error_code error;
    fs::remove_all(folder + "/" + name, error);
    if (error) problem = concat(folder, "/", name, ": cannot remove it: ", error.message());
  }
  if (!problem.empty()) throw IoError(problem);
}

/// The checkpoint of `step` is already safe: a failure here must not end the training.
void clean_up(const std::string& folder, std::int64_t step, std::int64_t keep,
              std::vector<std::string>& warnings) {
  const auto try_to = [&](const auto& action) {
    try {
      action();
    } catch (const IoError& problem) {
      warnings.push_back(concat("old checkpoints are left behind (", problem.what(),
                                "); the next save tries to remove them again"));
    }
  };
  try_to([&] { rotate(folder, step, keep); });
  try_to([&] { remove_leftovers(folder); });
}

}  // namespace

std::size_t CheckpointInfo::bytes() const {
  std::size_t total = 0;
  for (const auto& [name, file] : files) total += file.bytes;
  return total;
}

void remove_checkpoint_leftovers(const std::string& folder) {
  try {
    remove_leftovers(folder);
  } catch (const IoError&) {
    // They only take up space, and every save tries again.
  }
}

SavedCheckpoint save_checkpoint(const std::string& folder, std::int64_t step, const State& state,
                                const CheckpointSaveOptions& options) {
  require(options.keep >= 1 && step >= 0,
          "save_checkpoint: keep must be at least 1 and step not negative");
  const auto start = Clock::now();
  const std::string name = checkpoint_name(step);
  SavedCheckpoint saved;
  saved.path = folder + "/" + name;
  try {
    make_folders(folder);
    remove_checkpoint_leftovers(folder);
    check_free_space(folder, state);
    const TemporaryFolder temporary(concat(folder, "/", kTemporary, step, "-", ::getpid()));
    saved.bytes = write_files(temporary.path(), step, state, options.config_hash);
    sync_folder(temporary.path());
    if (!exchange_folder(temporary.path(), saved.path, folder + "/" + kTrash + name))
      throw IoError(system_problem(saved.path, "cannot rename the finished checkpoint"));
    sync_folder(folder);
  } catch (const IoError& problem) {
    throw not_written(step, problem);
  } catch (const fs::filesystem_error& problem) {
    throw not_written(step, problem);
  }
  clean_up(folder, step, options.keep, saved.warnings);
  saved.seconds = seconds_since(start);
  return saved;
}

}  // namespace hybrid_trainer
