#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "src/io/checkpoint_files.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
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

namespace {

/// "" where all ranks find their part of the files sound: then it is `found`.
std::string damage_of(const std::string& path, std::int64_t step, const CheckpointRanks& ranks,
                      std::optional<CheckpointInfo>& found) {
  CheckpointInfo info;
  std::string mine;
  try {
    info = read_checkpoint_info(path);
    mine = info.step == step ? checkpoint_damage(info, ranks.rank(), ranks.size())
                             : concat("its manifest is of step ", info.step);
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

CheckpointInfo read_checkpoint_info(const std::string& path) {
  const std::string manifest = path + "/" + kManifestName;
  CheckpointInfo info;
  try {
    info = parse_manifest(read_file(manifest, kMaxManifestBytes), manifest);
  } catch (const MissingInput&) {
    throw DataError(manifest + ": is missing or cannot be read");
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
    } catch (const Error&) {  // the one before it may be whole
    }
  }
  return {};
}

CheckpointInfo find_checkpoint(const std::string& folder, std::int64_t step) {
  std::string there;
  const std::vector<std::int64_t> steps = checkpoint_steps(folder);
  for (const std::int64_t one : steps) there += concat(there.empty() ? "" : ", ", one);
  if (std::ranges::count(steps, step) == 0)
    throw MissingInput(concat(folder, ": holds no checkpoint of step ", step, "; ",
                              there.empty() ? "there is none" : "there are those of " + there,
                              " (checkpoint.keep and keep_best say which stay)"));
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
      folder + ": every checkpoint is damaged; start a new run, or bring one back from a copy";
  for (const std::string& warning : found.warnings) all += "\n" + warning;
  throw DataError(all);
}

}  // namespace hybrid_trainer
