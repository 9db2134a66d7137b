#pragma once

#include "src/files/checkpoint.h"

namespace hybrid_trainer {

inline constexpr std::size_t kMaxManifestBytes = std::size_t{1} << 28;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kStateName = "state.bin";
inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kOptimizerName = "optimizer.safetensors";
inline constexpr const char* kTrainerName = "trainer.safetensors";

/// What a rank writes where there are several, and whether a name is of this form.
std::string rank_file_name(int rank);
bool is_rank_file_name(const std::string& name);
bool are_of_ranks(const CheckpointInfo& checkpoint);

/// "step-0000000020", and back; -1 if a name is not of this form.
std::string checkpoint_name(std::int64_t step);
std::int64_t step_of_checkpoint_name(const std::string& name);

/// How folders begin that are no checkpoint yet, or no longer.
inline constexpr const char* kTemporary = ".tmp-";
inline constexpr const char* kTrash = ".trash-";

/// The steps of the folder's checkpoints, the newest first; none where there is no folder. Throws
/// IoError if it cannot be listed.
std::vector<std::int64_t> checkpoint_steps(const std::string& folder);

/// Removes the checkpoints up to `step`, which is safe, but those that `options` keep, and what killed
/// savers left. Those of later steps are another run's or damaged: they stay. What fails is a
/// warning: it must not end the training.
void clean_up_checkpoints(const std::string& folder, std::int64_t step,
                          const CheckpointSaveOptions& options, std::vector<std::string>& warnings);

/// The manifest's JSON, its own digest last. It does not contain `info.path`.
std::string manifest_text(const CheckpointInfo& info);
/// Reads back only what manifest_text wrote, byte for byte. Throws DataError.
CheckpointInfo parse_manifest(const std::string& text, const std::string& path);

/// The numbers, series and texts of a State as bytes, and back. Throws DataError.
std::string state_bytes(const State& state);
void read_state_bytes(const std::string& bytes, State& state);

}  // namespace hybrid_trainer
