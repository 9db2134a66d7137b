#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/io/checksum.h"

namespace hybrid_trainer {

/// A checkpoint is a folder `step-0000000020` of files: model.safetensors (tensors named
/// "model."...), optimizer.safetensors ("optimizer."...), trainer.safetensors (other tensors),
/// state.bin (everything else of a State) and manifest.json, which records the size and checksum of
/// each and its own checksum. Equal states give identical files.
struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  std::string config_hash;      // as given when it was saved
  std::string project_version;  // of the program that wrote it
  std::map<std::string, FileDigest> files;
  std::size_t bytes() const;  // of all files but the manifest
};

struct SavedCheckpoint {
  std::string path;
  std::size_t bytes = 0;
  double seconds = 0;
  /// What failed after the checkpoint was safe: older ones or leftovers that could not be removed.
  std::vector<std::string> warnings;
  double megabytes_per_second() const {
    return seconds > 0 ? static_cast<double>(bytes) / 1e6 / seconds : 0;
  }
};

struct CheckpointSaveOptions {
  std::int64_t keep = 3;    // newest checkpoints that stay, at least 1
  std::string config_hash;  // to recognise a checkpoint of another configuration
};

/// Commits `state` as `folder`/step-NNNNNNNNNN: everything is written beside it and made durable
/// before one rename makes it visible, so a kill or a power cut leaves the old checkpoints, with or
/// without the new one. Then removes the oldest beyond `keep` and the leftovers of killed savers;
/// if that fails, the next save tries again. Only one process may save to a folder at a time.
/// Throws IoError (disk full, for example): then nothing of the new checkpoint is left, or all of
/// it if only the last fsync failed; all others remain, and training may go on.
SavedCheckpoint save_checkpoint(const std::string& folder, std::int64_t step, const State& state,
                                const CheckpointSaveOptions& options);

/// Removes what killed savers left in `folder`.
void remove_checkpoint_leftovers(const std::string& folder);

struct FoundCheckpoint {
  /// None where the folder holds no checkpoint or does not exist.
  std::optional<CheckpointInfo> checkpoint;
  /// "checkpoint step-… is damaged (checksum check: …); using step-…"
  std::vector<std::string> warnings;
};

/// The newest checkpoint, of those of a step less than `before`, whose manifest and files verify.
/// Throws DataError, which names all of them, if all are damaged; IoError if the folder cannot be
/// listed.
FoundCheckpoint find_newest_checkpoint(
    const std::string& folder, std::int64_t before = std::numeric_limits<std::int64_t>::max());

/// Reads a checkpoint's manifest alone. Throws DataError if it is damaged.
CheckpointInfo read_checkpoint_info(const std::string& path);

/// "" or what is damaged: "model.safetensors has CHECKSUM, want CHECKSUM". Reads every file.
std::string checkpoint_damage(const CheckpointInfo& checkpoint);

enum class CheckpointPart { kAll, kWeights, kAverage };

/// The contents of a verified checkpoint; new tensors from the stream's pool. kWeights skips all
/// tensors but "model."... and "snapshot."...: a checkpoint taken in Predict has both, and there
/// the snapshot holds the accepted weights. kAverage skips all but "average."....
State load_checkpoint(const CheckpointInfo& checkpoint, const Stream& stream,
                      CheckpointPart part = CheckpointPart::kAll);

}  // namespace hybrid_trainer
