#include <algorithm>
#include <cstdio>
#include <iterator>

#include "src/files/checkpoint_files.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;
namespace {

std::vector<std::string> names_in(const std::string& folder) try {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
} catch (const fs::filesystem_error& problem) {
  throw IoError(concat(folder, ": cannot list it: ", problem.code().message()));
}

/// Moves checkpoints to the trash. Throws IoError after moving all that it can.
void move_to_trash(const std::string& folder, const std::vector<std::int64_t>& steps) {
  std::string problem;
  for (const std::int64_t step : steps) {
    const std::string name = checkpoint_name(step), path = folder + "/" + name;
    if (std::rename(path.c_str(), (folder + "/" + kTrash + name).c_str()) != 0)
      problem = system_problem(path, "cannot move it to the trash");
  }
  if (!problem.empty()) throw IoError(problem);
}

/// Removes the checkpoints up to `step` that `options` do not keep. Throws like move_to_trash.
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

/// Removes the files of killed processes. Throws IoError after removing all that it can.
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

/// Verifies a checkpoint. Each rank reads a part of the files. If the checkpoint is undamaged on
/// all ranks, sets `found` and returns "". Otherwise returns the damage.
std::string damage_of(const std::string& path, std::int64_t step, const CheckpointRanks& ranks,
                      std::optional<CheckpointInfo>& found) {
  CheckpointInfo info;
  std::string mine;
  try {
    info = read_checkpoint_info(path);
    mine = info.step == step ? checkpoint_damage(info, ranks.rank(), ranks.size())
                             : concat("its manifest is for step ", info.step);
  } catch (const Error& problem) {
    mine = problem.what();
  }
  for (const std::string& damage : ranks.gather(mine)) {
    if (!damage.empty()) return damage;
  }
  found = std::move(info);
  return "";
}

}  // namespace

void clean_up_checkpoints(const std::string& folder, std::int64_t step,
                          const CheckpointSaveOptions& options,
                          std::vector<std::string>& warnings) {
  const auto try_to = [&](const auto& action) {
    try {
      action();
    } catch (const IoError& problem) {
      warnings.push_back(concat("cannot remove old checkpoints (", problem.what(),
                                "); the next save tries again"));
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
  return concat("cannot update the name of the best checkpoint: ", problem.what());
} catch (const fs::filesystem_error& problem) {
  return concat("cannot update the name of the best checkpoint: ", problem.what());
}

std::string discard_checkpoints_after(const std::string& folder, std::int64_t step) try {
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  std::erase_if(steps, [&](std::int64_t found) { return found <= step; });
  move_to_trash(folder, steps);
  remove_leftovers(folder);
  return "";
} catch (const IoError& problem) {
  return concat("cannot remove a checkpoint after a rollback: ", problem.what());
}

void remove_checkpoint_leftovers(const std::string& folder) {
  try {
    remove_leftovers(folder);
  } catch (const IoError&) {
    // Ignores failures, because leftover files only need space and every save tries again.
  }
}

std::vector<std::int64_t> checkpoint_steps(const std::string& folder) try {
  std::vector<std::int64_t> steps;
  if (!fs::exists(folder)) return steps;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::int64_t step = step_of_checkpoint_name(entry.path().filename().string());
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
} catch (const fs::filesystem_error& problem) {
  throw IoError(concat(folder, ": cannot list the checkpoints: ", problem.code().message()));
}

std::vector<std::int64_t> steps_of_checkpoints(const std::string& folder,
                                               const CheckpointRanks& ranks) {
  const std::vector<std::string> by_rank = ranks.attempt([&] {
    std::string text;
    if (!ranks.lead()) return text;
    for (const std::int64_t step : checkpoint_steps(folder)) text += concat(step, " ");
    return text;
  });
  std::istringstream text(by_rank.front());
  return {std::istream_iterator<std::int64_t>(text), std::istream_iterator<std::int64_t>()};
}

CheckpointInfo read_checkpoint_info(const std::string& path) {
  const std::string manifest = path + "/" + kManifestName;
  CheckpointInfo info;
  try {
    info = parse_manifest(read_file(manifest, kMaxManifestBytes), manifest);
  } catch (const MissingInput&) {
    throw DataError(manifest + ": does not exist or cannot be read");
  }
  info.path = path;
  return info;
}

std::optional<CheckpointInfo> find_newest_whole_checkpoint(const std::string& folder) {
  for (const std::int64_t step : checkpoint_steps(folder)) {
    try {
      CheckpointInfo info = read_checkpoint_info(folder + "/" + checkpoint_name(step));
      const auto is_whole = [&](const auto& file) {
        std::error_code missing;
        return fs::file_size(info.path + "/" + file.first, missing) == file.second.bytes;
      };
      if (std::all_of(info.files.begin(), info.files.end(), is_whole)) return info;
    } catch (const Error&) {  // an older checkpoint may be valid
    }
  }
  return {};
}

CheckpointInfo find_checkpoint(const std::string& folder, std::int64_t step) {
  std::string there;
  const std::vector<std::int64_t> steps = checkpoint_steps(folder);
  for (const std::int64_t one : steps) there += concat(there.empty() ? "" : ", ", one);
  if (std::ranges::count(steps, step) == 0)
    throw MissingInput(concat(folder, ": has no checkpoint of step ", step, "; ",
                              there.empty() ? "there is none" : "existing checkpoints: " + there,
                              " (checkpoint.keep and checkpoint.keep_best set how many are kept)"));
  std::optional<CheckpointInfo> found;
  const std::string path = folder + "/" + checkpoint_name(step);
  const std::string damage = damage_of(path, step, {}, found);
  if (found) return *found;
  throw DataError(concat(path, " is damaged (checksum check: ", damage, "); want one of ", there));
}

FoundCheckpoint find_newest_checkpoint(const std::string& folder, std::int64_t before,
                                       const CheckpointRanks& ranks) {
  FoundCheckpoint found;
  std::vector<std::int64_t> steps = steps_of_checkpoints(folder, ranks);
  std::erase_if(steps, [&](std::int64_t step) { return step >= before; });
  for (std::int64_t step : steps) {
    const std::string name = checkpoint_name(step);
    const std::string damage = damage_of(folder + "/" + name, step, ranks, found.checkpoint);
    if (found.checkpoint) {
      if (!found.warnings.empty()) found.warnings.back() += "; using " + name;
      return found;
    }
    found.warnings.push_back(
        concat("checkpoint ", name, " is damaged (checksum check: ", damage, ")"));
  }
  if (steps.empty()) return found;
  std::string all =
      folder +
      ": every checkpoint is damaged; start a new run, or restore a checkpoint from a copy";
  for (const std::string& warning : found.warnings) all += "\n" + warning;
  throw DataError(all);
}

}  // namespace hybrid_trainer
