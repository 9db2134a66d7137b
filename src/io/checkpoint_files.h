#pragma once

#include <string>

#include "hybrid_trainer/io/checkpoint.h"

namespace hybrid_trainer {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kStateName = "state.bin";
inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kOptimizerName = "optimizer.safetensors";
inline constexpr const char* kTrainerName = "trainer.safetensors";

/// "step-0000000020", and back; -1 if a name is not of this form.
std::string checkpoint_name(std::int64_t step);
std::int64_t step_of_checkpoint_name(const std::string& name);

/// The manifest's JSON, its own digest last. It does not contain `info.path`.
std::string manifest_text(const CheckpointInfo& info);
/// Reads back only what manifest_text wrote, byte for byte. Throws DataError.
CheckpointInfo parse_manifest(const std::string& text, const std::string& path);

/// The numbers, series and texts of a State as bytes, and back. Bytes to be read must come from
/// state_bytes: pass only bytes whose checksum matched. Throws DataError.
std::string state_bytes(const State& state);
void read_state_bytes(const std::string& bytes, State& state);

}  // namespace hybrid_trainer
