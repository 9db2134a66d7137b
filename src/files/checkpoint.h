#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "hybrid_trainer/core/state.h"
#include "src/files/checksum.h"

namespace hybrid_trainer {

/// The processes that save or read a checkpoint together, as one of them sees them. They share the
/// checkpoint's folder. By default there is one.
class CheckpointRanks {
 public:
  /// Gives the bytes that each rank gave, by rank; all ranks call it equally often.
  using Gather = std::function<std::vector<std::string>(const std::string&)>;

  CheckpointRanks() = default;
  CheckpointRanks(int rank, int size, Gather gather);
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool lead() const { return rank_ == 0; }
  bool are_several() const { return size_ > 1; }
  /// By rank. A collective of several.
  std::vector<std::string> gather(const std::string& mine) const;
  /// Calls `attempt` and gathers the result of each rank. Where it fails on one for want of a file
  /// or of memory, all ranks throw the IoError "rank 2: PROBLEM"; a single rank throws what it met.
  /// A collective of several.
  std::vector<std::string> attempt(const std::function<std::string()>& attempt) const;

 private:
  int rank_ = 0, size_ = 1;
  Gather gather_;
};

/// Elements [first, last) of a tensor, in row-major order, and the file that holds them.
struct StoredRange {
  std::string file;
  std::int64_t first = 0, last = 0;
};

/// A tensor of a checkpoint: its ranges follow one another from its first element to its last.
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
/// Where several ranks wrote it, in place of the three there is rank-00000.safetensors and so on,
/// one for each rank, whose tensors are ranges of elements, as vectors under the tensor's name; the
/// manifest says which. What a checkpoint holds does not depend on who wrote it.
struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  std::string config_hash;      // as given when it was saved
  std::string project_version;  // of the program that wrote it
  std::map<std::string, FileDigest> files;
  std::map<std::string, StoredTensor> tensors;  // where several ranks wrote it
  std::size_t bytes() const;                    // of all files but the manifest
};

struct SavedCheckpoint {
  std::string path;
  /// Failures after the checkpoint was safe: older ones or leftovers that could not be removed.
  std::vector<std::string> warnings;
};

struct CheckpointSaveOptions {
  std::int64_t keep = 3;                  // newest checkpoints that stay, at least 1
  std::string config_hash;                // to recognize a checkpoint of another configuration
  std::vector<std::int64_t> also_keep{};  // steps whose checkpoints stay besides
  std::optional<std::int64_t> best{};     // step that the file `best` beside the checkpoints names
};

/// The part that one of several ranks writes of a state that they share; alone it writes all.
struct CheckpointShare {
  /// Ranges of tensors; that of a rank follows those of the ranks before it. Numbers, series and
  /// texts are written as rank 0 has them.
  State state;
  /// By name, of a tensor that has a shape as a whole. Others are vectors.
  std::map<std::string, Shape> shapes{};
};

/// Commits a state as `folder`/step-NNNNNNNNNN. Everything is written beside it and made durable;
/// then one rename makes it visible. A kill or a power cut leaves the old checkpoints, with or
/// without the new one. Afterwards removes those that need not stay and the leftovers of killed savers;
/// if that fails, the next save tries again. Only one process, or the ranks of one job, may save to a
/// folder at a time. Throws IoError (disk full, for example): then nothing of the new checkpoint is
/// left, or all of it if only the last fsync failed; all others remain, and training may go on.
///
/// Of several ranks each writes a file of its own; rank 0 writes the manifest once all have. Then it
/// is a collective. Where one cannot write, all throw the IoError that names it. Each is told of the
/// same path, rank 0 of warnings.
SavedCheckpoint save_checkpoint(const std::string& folder, std::int64_t step,
                                const CheckpointShare& share, const CheckpointSaveOptions& options,
                                const CheckpointRanks& ranks = {});

/// Writes the name of the checkpoint of that step into the file `best` of the folder, or removes it.
/// "", or what could not be written.
std::string name_best_checkpoint(const std::string& folder, std::optional<std::int64_t> step);

/// Steps of all checkpoints in the folder, newest first, as rank 0 sees them. A collective.
std::vector<std::int64_t> steps_of_checkpoints(const std::string& folder,
                                               const CheckpointRanks& ranks = {});

/// The checkpoint of one step, verified. Throws MissingInput where there is none, which names the steps
/// that there are, and DataError where it is damaged.
CheckpointInfo find_checkpoint(const std::string& folder, std::int64_t step);

/// Removes what killed savers left in `folder`.
void remove_checkpoint_leftovers(const std::string& folder);

/// Before this every step is.
inline constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

struct FoundCheckpoint {
  /// None where the folder holds no checkpoint or does not exist.
  std::optional<CheckpointInfo> checkpoint;
  /// "checkpoint step-… is damaged (checksum check: …); using step-…"
  std::vector<std::string> warnings;
};

/// The newest checkpoint, of those of a step less than `before`, whose manifest and files verify.
/// Of several ranks each verifies some of the files, and all find the same: a collective. Throws
/// DataError, which names all of them, if all are damaged; IoError if the folder cannot be listed.
FoundCheckpoint find_newest_checkpoint(const std::string& folder, std::int64_t before = kAnyStep,
                                       const CheckpointRanks& ranks = {});

/// Removes the checkpoints of steps after `step`, which a run that went back to `step` gives up, so that
/// none of them counts as the newest. "", or what could not be removed.
std::string discard_checkpoints_after(const std::string& folder, std::int64_t step);

/// The newest checkpoint whose manifest verifies and whose files have the sizes that it says, of which
/// nothing is read: quick, where it only is to be named. None where there is no such one.
std::optional<CheckpointInfo> find_newest_whole_checkpoint(const std::string& folder);

/// Reads a checkpoint's manifest alone. Throws DataError if it is damaged.
CheckpointInfo read_checkpoint_info(const std::string& path);

/// "" or what is damaged: "model.safetensors has CHECKSUM, want CHECKSUM". Reads every file.
std::string checkpoint_damage(const CheckpointInfo& checkpoint);
/// Damage in the files that `rank` verifies; each rank reads about as much.
std::string checkpoint_damage(const CheckpointInfo& checkpoint, int rank, int ranks);

/// Tensors of a checkpoint, by name, of one rank or several. Throws DataError.
std::map<std::string, StoredTensor> stored_tensors(const CheckpointInfo& checkpoint);

/// Begins the names of what routers have beside their weights; it is whole, and the same, on all ranks.
inline constexpr const char* kRoutingState = "routing.";

enum class CheckpointPart { kAll, kWeights, kAverage, kNumbers };

/// The contents of a verified checkpoint; new tensors from the stream's pool. kWeights skips all
/// tensors but "model.", "snapshot." and "routing.": a checkpoint taken in Predict has the first two,
/// and there the snapshot holds the accepted weights. kAverage skips all but "average." and "routing.",
/// kNumbers all.
State load_checkpoint(const CheckpointInfo& checkpoint, const Stream& stream,
                      CheckpointPart part = CheckpointPart::kAll);

/// Elements [first, last) of a tensor, to be loaded as one of `shape`.
struct WantedElements {
  std::int64_t first = 0, last = 0;
  Shape shape;
};

/// Loads some elements of each tensor, and reads only their bytes.
State load_checkpoint(
    const CheckpointInfo& checkpoint, const Stream& stream,
    const std::function<WantedElements(const std::string&, const StoredTensor&)>& wanted);

struct TensorDigest {
  std::string name;
  std::string checksum;  // of its elements, as Checksum gives it
};

/// Checksums of a checkpoint's tensors, independent of their files.
struct CheckpointDigest {
  std::vector<TensorDigest> tensors;  // by name
  std::string all;                    // over names, dtypes, shapes and elements of all of them
};

/// Verifies the checkpoint, then reads its tensors, one at a time. Throws DataError where it is
/// damaged.
CheckpointDigest digest_of(const CheckpointInfo& checkpoint);

}  // namespace hybrid_trainer
