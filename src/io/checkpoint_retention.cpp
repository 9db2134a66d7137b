#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "hybrid_trainer/files/file_descriptor.h"
#include "hybrid_trainer/files/output_file.h"
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

/// Throws IoError if one could not be moved, after moving all others.
void move_to_trash(const std::string& folder, const std::vector<std::int64_t>& steps) {
  std::string problem;
  for (const std::int64_t step : steps) {
    const std::string name = checkpoint_name(step), path = folder + "/" + name;
    if (std::rename(path.c_str(), (folder + "/" + kTrash + name).c_str()) != 0)
      problem = system_problem(path, "cannot move it to the trash");
  }
  if (!problem.empty()) throw IoError(problem);
}

/// Moves the checkpoints up to `step` but those to keep to the trash. Those of later steps are
/// another run's or damaged: they stay. Throws IoError if one could not be moved, after moving
/// all others.
void rotate(const std::string& folder, std::int64_t step, const CheckpointSaveOptions& options) {
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  std::erase_if(steps, [&](std::int64_t found) { return found > step; });
  const auto newest = std::min(steps.size(), static_cast<std::size_t>(options.keep));
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(newest));
  const std::vector<std::int64_t>& kept = options.also_keep;
  std::erase_if(steps, [&](std::int64_t found) {
    return std::find(kept.begin(), kept.end(), found) != kept.end();
  });
  move_to_trash(folder, steps);
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
  if (const std::string problem = name_best_checkpoint(folder, options.best); !problem.empty())
    warnings.push_back(problem);
  try_to([&] { rotate(folder, step, options); });
  try_to([&] { remove_leftovers(folder); });
}

std::string name_best_checkpoint(const std::string& folder, std::optional<std::int64_t> step) try {
  const std::string file = folder + "/best";
  if (step) {
    replace_file(file, checkpoint_name(*step) + "\n");
  } else if (fs::is_regular_file(file)) {
    fs::remove(file);
  }
  return "";
} catch (const IoError& problem) {
  return concat("the best checkpoint is not named: ", problem.what());
} catch (const fs::filesystem_error& problem) {
  return concat("the best checkpoint is not named: ", problem.what());
}

std::string discard_checkpoints_after(const std::string& folder, std::int64_t step) try {
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  std::erase_if(steps, [&](std::int64_t found) { return found <= step; });
  move_to_trash(folder, steps);
  remove_leftovers(folder);
  return "";
} catch (const IoError& problem) {
  return concat("a checkpoint that this run went back from is left behind: ", problem.what());
}

void remove_checkpoint_leftovers(const std::string& folder) {
  try {
    remove_leftovers(folder);
  } catch (const IoError&) {
    // They only take up space, and every save tries again.
  }
}

}  // namespace hybrid_trainer
