#pragma once

#include <filesystem>
#include <string>

namespace hybrid_trainer {

/// Contents of a path, as JSON and as text.
struct Inspection {
  std::string json;  // one object; "kind" determines the other keys
  std::string text;  // text for display; ends with a newline
};

/// Describes a run ("run"), a checkpoint ("checkpoint"), a data folder ("data"), a Hugging Face
/// folder ("hugging_face"), a safetensors file ("safetensors"), a llama.cpp file ("gguf"), a token
/// shard ("token_shard") or a run's oom.json ("out_of_memory"). Verifies a checkpoint's checksums.
/// Throws MissingInput; DataError if the path is of another kind or damaged.
Inspection inspect(const std::filesystem::path& path);

/// Returns checksums of the tensors of a checkpoint ("digest"). There is one checksum per tensor
/// and, in the last line of the text, one of all tensors. Throws MissingInput. Throws DataError if
/// `path` is not a checkpoint or is damaged.
Inspection inspect_digest(const std::filesystem::path& path);

/// Describes how the routers distributed the tokens of a run's last step over experts ("experts").
/// Throws MissingInput, or DataError if `path` is not a run or its model has no experts.
Inspection inspect_experts(const std::filesystem::path& path);

/// Writes a run's records for TensorBoard to `folder` ("tensorboard"). Throws DataError if `path`
/// is not a run, CannotCreate if the folder has event files, MissingInput and IoError.
Inspection write_events_of(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace hybrid_trainer
