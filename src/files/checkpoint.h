#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "hybrid_trainer/core/state.h"
#include "src/files/checksum.h"

namespace hybrid_trainer {

/// The ranks that save or read a checkpoint together in one folder; by default a single process.
class CheckpointRanks {
 public:
  /// Function that returns the bytes of all ranks, in the order of ranks. It is a collective.
  using Gather = std::function<std::vector<std::string>(const std::string&)>;

  CheckpointRanks() = default;
  CheckpointRanks(int rank, int size, Gather gather);
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool lead() const { return rank_ == 0; }
  bool are_several() const { return size_ > 1; }
  std::vector<std::string> gather(const std::string& mine) const;
  /// Calls `attempt` and gathers the results of all ranks. If `attempt` fails on a rank because of
  /// a file or memory, all ranks throw IoError "rank 2: PROBLEM". If there is only one rank, it
  /// throws the original error. Collective if there are several ranks.
  std::vector<std::string> attempt(const std::function<std::string()>& attempt) const;

 private:
  int rank_ = 0, size_ = 1;
  Gather gather_;
};

/// Elements [first, last) of a tensor, in row-major order, and their file.
struct StoredRange {
  std::string file;
  std::int64_t first = 0, last = 0;
};

/// A tensor of a checkpoint. Its ranges are consecutive and cover all elements.
struct StoredTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<StoredRange> ranges;
};

/// A checkpoint is a folder `step-0000000020` of files: model.safetensors (tensors named
/// "model."...), optimizer.safetensors ("optimizer."...), trainer.safetensors (other tensors),
/// state.bin (everything else of a State) and manifest.json, which records the size and the
/// checksum of each file and its own checksum. Equal states produce identical files.
///
/// Several ranks write rank-00000.safetensors and so on instead of the three tensor files. These
/// files contain ranges of elements, each stored as a vector under the name of its tensor. The
/// manifest lists the ranges. The contents of the tensors do not depend on the number of ranks.
struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  std::string config_hash;      // as passed to save_checkpoint
  std::string project_version;  // version of the program that wrote the checkpoint
  std::map<std::string, FileDigest> files;
  std::map<std::string, StoredTensor> tensors;  // set if several ranks wrote the checkpoint
  std::size_t bytes() const;                    // bytes of all files except the manifest
};

struct SavedCheckpoint {
  std::string path;
  /// Failures after the checkpoint was complete: old checkpoints or leftovers could not be removed.
  std::vector<std::string> warnings;
};

struct CheckpointSaveOptions {
  std::int64_t keep = 3;                  // number of newest checkpoints to keep, at least 1
  std::string config_hash;                // identifies the configuration of the checkpoint
  std::vector<std::int64_t> also_keep{};  // steps whose checkpoints are kept in addition
  std::optional<std::int64_t> best{};     // step named by the file `best` in the checkpoint folder
};

/// The part of a shared state that one rank writes. A single rank writes the whole state.
struct CheckpointShare {
  /// Ranges of tensors, consecutive by rank. Only rank 0 writes the numbers, series and texts.
  State state;
  std::map<std::string, Shape> shapes{};  // shapes of whole tensors by name; others are vectors
};

/// Commits a state as `folder`/step-NNNNNNNNNN. Writes and flushes all files to a temporary folder,
/// which is then renamed. If the process is killed or the power fails, the old checkpoints remain,
/// with or without the new checkpoint. Afterwards removes expired checkpoints and the files of
/// killed processes. If that fails, the next save tries again. Only one process, or the ranks of
/// one job, may save to a folder at a time. Throws IoError, for example if the disk is full. The
/// new checkpoint then does not exist, or it is complete if only the last fsync failed. Training
/// may continue after the error.
///
/// With several ranks, this is a collective: each rank writes a separate file, and rank 0 writes
/// the manifest once all files are written. If a rank cannot write, all ranks throw an IoError that
/// names it. All ranks return the same path. Only rank 0 returns the warnings.
SavedCheckpoint save_checkpoint(const std::string& folder, std::int64_t step,
                                const CheckpointShare& share, const CheckpointSaveOptions& options,
                                const CheckpointRanks& ranks = {});

/// Writes the name of the checkpoint of `step` to the file `best` of the folder, or removes this
/// file if `step` is nullopt. Returns the error, or "" if there is none.
std::string name_best_checkpoint(const std::string& folder, std::optional<std::int64_t> step);

/// Returns the steps of all checkpoints in the folder, newest first, as seen by rank 0. Collective.
std::vector<std::int64_t> steps_of_checkpoints(const std::string& folder,
                                               const CheckpointRanks& ranks = {});

/// Returns the verified checkpoint of one step. Throws MissingInput, which lists the existing
/// steps, if there is no checkpoint of this step. Throws DataError if the checkpoint is damaged.
CheckpointInfo find_checkpoint(const std::string& folder, std::int64_t step);

void remove_checkpoint_leftovers(const std::string& folder);

inline constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

struct FoundCheckpoint {
  /// nullopt if the folder contains no checkpoint or does not exist
  std::optional<CheckpointInfo> checkpoint;
  /// "checkpoint step-… is damaged (checksum check: …); using step-…"
  std::vector<std::string> warnings;
};

/// Returns the newest checkpoint of a step less than `before` whose manifest and files verify.
/// Collective: each rank verifies some of the files. Throws DataError, which names all checkpoints,
/// if all are damaged, and IoError if the folder cannot be listed.
FoundCheckpoint find_newest_checkpoint(const std::string& folder, std::int64_t before = kAnyStep,
                                       const CheckpointRanks& ranks = {});

/// Removes the checkpoints of steps after `step`. It is called when a run rolls back to `step`, so
/// that none of these checkpoints counts as the newest. Returns the error, or "" if there is none.
std::string discard_checkpoints_after(const std::string& folder, std::int64_t step);

/// Returns the newest checkpoint with a verified manifest and files of the recorded sizes, or
/// nullopt. Does not read the files, so it is only suitable for naming a checkpoint.
std::optional<CheckpointInfo> find_newest_whole_checkpoint(const std::string& folder);

/// Reads only a checkpoint's manifest. Throws DataError if it is damaged.
CheckpointInfo read_checkpoint_info(const std::string& path);

/// Returns the damage, "model.safetensors has CHECKSUM, want CHECKSUM", or "". Reads every file.
std::string checkpoint_damage(const CheckpointInfo& checkpoint);
/// Returns the damage in the files that `rank` verifies; all ranks read about as many bytes.
std::string checkpoint_damage(const CheckpointInfo& checkpoint, int rank, int ranks);

/// Name prefix of the routers' state other than weights, which is complete and equal on all ranks.
inline constexpr const char* kRoutingState = "routing.";

enum class CheckpointPart { kAll, kWeights, kAverage, kNumbers };

/// Loads a verified checkpoint into new tensors from the stream's pool. kWeights loads only the
/// tensors "model.", "snapshot." (the accepted weights of a checkpoint taken in Predict) and
/// "routing."; kAverage loads only "average." and "routing.". kNumbers loads no tensors.
State load_checkpoint(const CheckpointInfo& checkpoint, const Stream& stream,
                      CheckpointPart part = CheckpointPart::kAll);

/// Elements [first, last) of a tensor, to load as a tensor of `shape`.
struct WantedElements {
  std::int64_t first = 0, last = 0;
  Shape shape;
};

/// Loads the given elements of each tensor. Reads only the bytes of these elements.
State load_checkpoint(
    const CheckpointInfo& checkpoint, const Stream& stream,
    const std::function<WantedElements(const std::string&, const StoredTensor&)>& wanted);

struct TensorDigest {
  std::string name;
  std::string checksum;  // checksum of the elements; see Checksum
};

struct CheckpointDigest {
  std::vector<TensorDigest> tensors;  // in the order of names
  /// Checksum of the names, dtypes, shapes and elements of all tensors.
  std::string all;
};

/// Verifies the checkpoint, then reads its tensors one by one. Throws DataError if it is damaged.
CheckpointDigest digest_of(const CheckpointInfo& checkpoint);

}  // namespace hybrid_trainer
