#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "hybrid_trainer/files/file_descriptor.h"
#include "src/io/checkpoint_files.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace {

/// Throws IoError.
std::vector<std::string> names_in(const std::string& folder) try {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
} catch (const fs::filesystem_error& problem) {
  throw IoError(concat(folder, ": cannot list it: ", problem.code().message()));
}

/// Moves the checkpoints up to `step` but those to keep to the trash. Those of later steps are
/// another run's or damaged: they stay. Throws IoError if one could not be moved, after moving
/// all others.
void rotate(const std::string& folder, std::int64_t step, const CheckpointSaveOptions& options) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    const std::int64_t found = step_of_checkpoint_name(name);
    if (found >= 0 && found <= step) steps.push_back(found);
  }
  std::sort(steps.rbegin(), steps.rend());
  std::string problem;
  const std::vector<std::int64_t>& kept = options.also_keep;
  for (std::size_t i = static_cast<std::size_t>(options.keep); i < steps.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), steps[i]) != kept.end()) continue;
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
    if (!name.starts_with(kTemporary) && !name.starts_with(kTrash)) continue;
    std::error_code error;
    fs::remove_all(folder + "/" + name, error);
    if (error) problem = concat(folder, "/", name, ": cannot remove it: ", error.message());
  }
  if (!problem.empty()) throw IoError(problem);
}

}  // namespace

void clean_up_checkpoints(const std::string& folder, std::int64_t step,
                          const CheckpointSaveOptions& options,
                          std::vector<std::string>& warnings) {
  const auto try_to = [&](const auto& action) {
    try {
      action();
    } catch (const IoError& problem) {
      warnings.push_back(concat("old checkpoints are left behind (", problem.what(),
                                "); the next save tries to remove them again"));
    }
  };
  try_to([&] { rotate(folder, step, options); });
  try_to([&] { remove_leftovers(folder); });
}

void remove_checkpoint_leftovers(const std::string& folder) {
  try {
    remove_leftovers(folder);
  } catch (const IoError&) {
    // They only take up space, and every save tries again.
  }
}

}  // namespace hybrid_trainer
