#include <algorithm>
#include <filesystem>

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/safetensors.h"
#include "src/io/checkpoint_files.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxManifestBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxStateBytes = std::size_t{1} << 30;

/// Steps of all checkpoints, newest first.
std::vector<std::int64_t> steps_in(const std::string& folder) try {
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

std::string damage_of(const std::string& path, std::int64_t step,
                      std::optional<CheckpointInfo>& found) {
  try {
    CheckpointInfo info = read_checkpoint_info(path);
    if (info.step != step) return concat("its manifest is of step ", info.step);
    std::string damage = checkpoint_damage(info);
    if (damage.empty()) found = std::move(info);
    return damage;
  } catch (const Error& problem) {
    return problem.what();
  }
}

/// Size and checksum of a file as it is now.
FileDigest digest_of_file(const std::string& path) {
  const InputFile file(path);
  Checksum checksum;
  std::vector<char> chunk(std::min(file.bytes(), std::size_t{8} << 20));
  for (std::size_t at = 0; at < file.bytes(); at += chunk.size()) {
    const std::size_t bytes = std::min(file.bytes() - at, chunk.size());
    file.read_at(chunk.data(), bytes, at);
    checksum.add(chunk.data(), bytes);
  }
  return {file.bytes(), checksum.text()};
}

MemoryKind kind_of(const std::string& file) {
  if (file == kModelName) return MemoryKind::kParameters;
  return file == kOptimizerName ? MemoryKind::kOptimizerState : MemoryKind::kSnapshot;
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

std::string checkpoint_damage(const CheckpointInfo& checkpoint) {
  for (const auto& [name, want] : checkpoint.files) {
    try {
      const FileDigest got = digest_of_file(checkpoint.path + "/" + name);
      if (got.bytes != want.bytes)
        return concat(name, " has ", got.bytes, " bytes, want ", want.bytes);
      if (got.checksum != want.checksum) {
        return concat(name, " has ", got.checksum, ", want ", want.checksum);
      }
    } catch (const MissingInput&) {
      return name + " is missing or cannot be read";
    } catch (const Error& problem) {
      return problem.what();
    }
  }
  return "";
}

FoundCheckpoint find_newest_checkpoint(const std::string& folder, std::int64_t before) {
  FoundCheckpoint found;
  std::vector<std::int64_t> steps = steps_in(folder);
  std::erase_if(steps, [&](std::int64_t step) { return step >= before; });
  for (std::int64_t step : steps) {
    const std::string name = checkpoint_name(step);
    const std::string damage = damage_of(folder + "/" + name, step, found.checkpoint);
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

State load_checkpoint(const CheckpointInfo& checkpoint, const Stream& stream, CheckpointPart part) {
  State state;
  for (const auto& [name, digest] : checkpoint.files) {
    const std::string path = checkpoint.path + "/" + name;
    if (name == kStateName) {
      const std::string bytes = read_file(path, kMaxStateBytes);
      if (checksum_of(bytes) != digest.checksum)
        throw DataError(path + ": changed while it was read");
      read_state_bytes(bytes, state);
    } else if (part == CheckpointPart::kAll || name == kModelName || name == kTrainerName) {
      const SafetensorsFile file(path);
      for (const SafetensorsEntry& entry : file.entries()) {
        const bool weight = name == kModelName || entry.name.starts_with("snapshot.");
        if (part == CheckpointPart::kWeights && !weight) continue;
        if (part == CheckpointPart::kAverage && !entry.name.starts_with("average.")) continue;
        state.tensors[entry.name] = file.load(entry.name, kind_of(name), stream);
      }
    }
  }
  return state;
}

}  // namespace hybrid_trainer
