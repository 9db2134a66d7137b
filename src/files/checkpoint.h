#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "hybrid_trainer/core/state.h"
#include "src/files/checksum.h"

namespace hybrid_trainer {

/// The processes that save or read a checkpoint together, as seen by one of them. They share the
/// checkpoint's folder. The default is one process.
class CheckpointRanks {
 public:
  /// Returns the bytes of each rank, by rank. A collective.
  using Gather = std::function<std::vector<std::string>(const std::string&)>;

  CheckpointRanks() = default;
  CheckpointRanks(int rank, int size, Gather gather);
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool lead() const { return rank_ == 0; }
  bool are_several() const { return size_ > 1; }
  /// Returns the text of each rank, by rank. Collective if there are several ranks.
  std::vector<std::string> gather(const std::string& mine) const;
  /// Calls `attempt` and gathers the result of each rank. If `attempt` fails on a rank because of a
  /// file or memory, all ranks throw IoError "rank 2: PROBLEM"; a single rank throws the original
  /// error. Collective if there are several ranks.
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

/// A tensor of a checkpoint; its ranges are consecutive and cover all elements.
struct StoredTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<StoredRange> ranges;
};

/// A checkpoint is a folder `step-0000000020` of files: model.safetensors (tensors named
/// "model."...), optimizer.safetensors ("optimizer."...), trainer.safetensors (other tensors),
/// state.bin (everything else of a State) and manifest.json, which records the size and checksum of
/// each and its own checksum. Equal states give identical files.
///
/// Several ranks write rank-00000.safetensors and so on instead of the three tensor files. These
/// files contain ranges of elements, each stored as a vector under the name of its tensor. The
/// manifest lists the ranges. The contents of the tensors do not depend on the number of ranks.
struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  std::string config_hash;      // as passed to the save
  std::string project_version;  // of the program that wrote it
  std::map<std::string, FileDigest> files;
  std::map<std::string, StoredTensor> tensors;  // if several ranks wrote it
  std::size_t bytes() const;                    // of all files except the manifest
};

struct SavedCheckpoint {
  std::string path;
  /// Failures once the checkpoint was safe: old checkpoints or leftovers could not be removed.
  std::vector<std::string> warnings;
};

struct CheckpointSaveOptions {
  std::int64_t keep = 3;                  // newest checkpoints to keep, at least 1
  std::string config_hash;                // to recognize a checkpoint of another configuration
  std::vector<std::int64_t> also_keep{};  // steps whose checkpoints are also kept
  std::optional<std::int64_t> best{};     // step named by the file `best` in the checkpoint folder
};

/// The part of a shared state that one of several ranks writes; a single rank writes all.
struct CheckpointShare {
  /// Ranges of tensors, consecutive by rank. Numbers, series and texts are written from rank 0.
  State state;
  /// Shapes of whole tensors, by name; other tensors are vectors.
  std::map<std::string, Shape> shapes{};
};

/// Commits a state as `folder`/step-NNNNNNNNNN. Writes everything durably to a temporary folder,
/// then renames it once. A kill or a power cut leaves the old checkpoints, with or without the new
/// one. Afterwards removes expired checkpoints and the leftovers of killed processes; if that
/// fails, the next save tries again. Only one process, or the ranks of one job, may save to a
/// folder at a time. Throws IoError, for example if the disk is full. Then nothing of the new
/// checkpoint remains, or all of it if only the last fsync failed. Training may then continue.
///
/// With several ranks, this is a collective: each rank writes a separate file, and rank 0 writes
/// the manifest once all files are written. If a rank cannot write, all throw an IoError that names
/// it. All return the same path; only rank 0 returns the warnings.
SavedCheckpoint save_checkpoint(const std::string& folder, std::int64_t step,
                                const CheckpointShare& share, const CheckpointSaveOptions& options,
                                const CheckpointRanks& ranks = {});

/// Writes the name of the checkpoint of `step` to the file `best` of the folder, or removes the
/// file if `step` is none. Returns "" or the error.
std::string name_best_checkpoint(const std::string& folder, std::optional<std::int64_t> step);

/// Returns the steps of all checkpoints in the folder, newest first, as seen by rank 0. Collective.
std::vector<std::int64_t> steps_of_checkpoints(const std::string& folder,
                                               const CheckpointRanks& ranks = {});

/// Returns the verified checkpoint of one step. Throws MissingInput listing the existing steps if
/// there is none, DataError if it is damaged.
CheckpointInfo find_checkpoint(const std::string& folder, std::int64_t step);

void remove_checkpoint_leftovers(const std::string& folder);

inline constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

struct FoundCheckpoint {
  /// none if the folder contains no checkpoint or does not exist
  std::optional<CheckpointInfo> checkpoint;
  /// "checkpoint step-… is damaged (checksum check: …); using step-…"
  std::vector<std::string> warnings;
};

/// Returns the newest checkpoint of a step less than `before` whose manifest and files verify.
/// Collective: each rank verifies some of the files, and all return the same checkpoint. Throws
/// DataError naming all checkpoints if all are damaged; IoError if the folder cannot be listed.
FoundCheckpoint find_newest_checkpoint(const std::string& folder, std::int64_t before = kAnyStep,
                                       const CheckpointRanks& ranks = {});

/// Removes the checkpoints of steps after `step` when a run rolls back to it, so that none of them
/// counts as the newest. Returns "" or the error.
std::string discard_checkpoints_after(const std::string& folder, std::int64_t step);

/// Returns the newest checkpoint whose manifest verifies and whose files have the recorded sizes,
/// or nullopt. Fast, since it does not read the files: use it only to name a checkpoint.
std::optional<CheckpointInfo> find_newest_whole_checkpoint(const std::string& folder);

/// Reads only a checkpoint's manifest. Throws DataError if it is damaged.
CheckpointInfo read_checkpoint_info(const std::string& path);

/// Returns "" or the damage: "model.safetensors has CHECKSUM, want CHECKSUM". Reads every file.
std::string checkpoint_damage(const CheckpointInfo& checkpoint);
/// Returns the damage in the files that `rank` verifies; each rank reads about the same amount.
std::string checkpoint_damage(const CheckpointInfo& checkpoint, int rank, int ranks);

/// Returns the tensors of a checkpoint by name, written by any number of ranks. Throws DataError.
std::map<std::string, StoredTensor> stored_tensors(const CheckpointInfo& checkpoint);

/// Name prefix of the routers' state other than weights, which is whole and equal on all ranks.
inline constexpr const char* kRoutingState = "routing.";

enum class CheckpointPart { kAll, kWeights, kAverage, kNumbers };

/// Loads a verified checkpoint into new tensors from the stream's pool. kWeights loads only the
/// tensors "model.", "snapshot." (the accepted weights of a checkpoint taken in Predict) and
/// "routing."; kAverage loads only "average." and "routing.", kNumbers none.
State load_checkpoint(const CheckpointInfo& checkpoint, const Stream& stream,
                      CheckpointPart part = CheckpointPart::kAll);

/// Elements [first, last) of a tensor, to load as a tensor of `shape`.
struct WantedElements {
  std::int64_t first = 0, last = 0;
  Shape shape;
};

/// Loads the given elements of each tensor, reading only their bytes.
State load_checkpoint(
    const CheckpointInfo& checkpoint, const Stream& stream,
    const std::function<WantedElements(const std::string&, const StoredTensor&)>& wanted);

struct TensorDigest {
  std::string name;
  std::string checksum;  // of its elements; see Checksum
};

/// Checksums of a checkpoint's tensors, independent of their files.
struct CheckpointDigest {
  std::vector<TensorDigest> tensors;  // by name
  std::string all;                    // over the names, dtypes, shapes and elements of all
};

/// Verifies the checkpoint, then reads its tensors one by one. Throws DataError if it is damaged.
CheckpointDigest digest_of(const CheckpointInfo& checkpoint);

}  // namespace hybrid_trainer
