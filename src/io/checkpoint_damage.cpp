#include <algorithm>

#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/io/checkpoint_files.h"
#include "src/io/checkpoint_tensors.h"

namespace hybrid_trainer {
namespace {

std::string damage_of_file(const CheckpointInfo& checkpoint, const std::string& name,
                           const FileDigest& want) {
  try {
    const std::string path = checkpoint.path + "/" + name;
    if (const std::size_t bytes = InputFile(path).bytes(); bytes != want.bytes)
      return concat(name, " has ", bytes, " bytes, want ", want.bytes);
    if (const std::string checksum = checksum_of_file(path); checksum != want.checksum)
      return concat(name, " has ", checksum, ", want ", want.checksum);
    if (is_rank_file_name(name)) open_checkpoint_file(checkpoint, name);
    return "";
  } catch (const MissingInput&) {
    return name + " is missing or cannot be read";
  } catch (const Error& problem) {
    return problem.what();
  }
}

/// Which rank verifies each file: the next largest goes to whoever has least to read.
std::map<std::string, int> verifiers(const CheckpointInfo& checkpoint, int ranks) {
  std::vector<std::pair<std::size_t, std::string>> files;
  for (const auto& [name, digest] : checkpoint.files) files.emplace_back(digest.bytes, name);
  std::sort(files.rbegin(), files.rend());
  std::vector<std::size_t> bytes(static_cast<std::size_t>(ranks));
  std::map<std::string, int> by_file;
  for (const auto& [size, name] : files) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    by_file[name] = narrow<int>(least - bytes.begin());
    *least += size;
  }
  return by_file;
}

}  // namespace

std::string checkpoint_damage(const CheckpointInfo& checkpoint) {
  return checkpoint_damage(checkpoint, 0, 1);
}

std::string checkpoint_damage(const CheckpointInfo& checkpoint, int rank, int ranks) {
  const std::map<std::string, int> whose = verifiers(checkpoint, ranks);
  for (const auto& [name, want] : checkpoint.files) {
    if (whose.at(name) != rank) continue;
    if (std::string damage = damage_of_file(checkpoint, name, want); !damage.empty()) return damage;
  }
  return "";
}

}  // namespace hybrid_trainer
