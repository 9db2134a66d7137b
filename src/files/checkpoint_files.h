#pragma once

#include "src/files/checkpoint.h"

namespace hybrid_trainer {

inline constexpr std::size_t kMaxManifestBytes = std::size_t{1} << 28;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kStateName = "state.bin";
inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kOptimizerName = "optimizer.safetensors";
inline constexpr const char* kTrainerName = "trainer.safetensors";

/// Return the file name of one of several ranks, and whether a name has this form.
std::string rank_file_name(int rank);
bool is_rank_file_name(const std::string& name);
bool has_rank_files(const CheckpointInfo& checkpoint);

/// Convert a step to "step-0000000020" and back; other names give step -1.
std::string checkpoint_name(std::int64_t step);
std::int64_t step_of_checkpoint_name(const std::string& name);

/// Name prefixes of folders that are not yet checkpoints, and of folders that no longer are.
inline constexpr const char* kTemporary = ".tmp-";
inline constexpr const char* kTrash = ".trash-";

/// Returns the steps of checkpoints, newest first; none without the folder. Throws IoError.
std::vector<std::int64_t> checkpoint_steps(const std::string& folder);

/// Removes the files of killed processes, and the checkpoints up to `step` that `options` do not
/// keep. The checkpoint of `step` must be safe. Later ones belong to another run or are damaged,
/// and stay. Adds failures to `warnings`, because they must not end the training.
void clean_up_checkpoints(const std::string& folder, std::int64_t step,
                          const CheckpointSaveOptions& options, std::vector<std::string>& warnings);

/// Returns the manifest's JSON, which ends with its own digest, without `info.path`.
std::string manifest_text(const CheckpointInfo& info);
/// Reads a manifest. Throws DataError unless the text is byte for byte as manifest_text writes it.
CheckpointInfo parse_manifest(const std::string& text, const std::string& path);

/// Converts the numbers, series and texts of a State to bytes and back. Throws DataError.
std::string state_bytes(const State& state);
void read_state_bytes(const std::string& bytes, State& state);

}  // namespace hybrid_trainer
