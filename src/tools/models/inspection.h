#pragma once

#include <filesystem>
#include <string>

namespace hybrid_trainer {

/// Contents of a path, as JSON and as text.
struct Inspection {
  std::string json;  // one object; "kind" determines the other keys
  std::string text;  // for people; ends in a newline
};

/// Describes a run ("run"), a checkpoint ("checkpoint"), a data folder ("data"), a Hugging Face
/// folder ("hugging_face"), a safetensors file ("safetensors"), a llama.cpp file ("gguf"), a token
/// shard ("token_shard") or the oom.json of a run that ran out of memory ("out_of_memory").
/// Verifies the checksums of a checkpoint and reads the tokens of a shard. Changes no files. Throws
/// MissingInput, or DataError if the path is none of these or damaged.
Inspection inspect(const std::filesystem::path& path);

/// Returns checksums of a checkpoint's tensors ("digest"): one per tensor and, in the last line of
/// the text, one of all tensors. Throws MissingInput, or DataError if `path` is not a checkpoint or
/// is damaged.
Inspection inspect_digest(const std::filesystem::path& path);

/// Describes how the routers distributed the tokens of a run's last step over experts ("experts").
/// Throws MissingInput, or DataError if `path` is not a run or its model has no experts.
Inspection inspect_experts(const std::filesystem::path& path);

/// Writes the records of a run for TensorBoard to `folder` ("tensorboard"). Throws MissingInput,
/// DataError if `path` is not a run, CannotCreate if the folder has event files, IoError.
Inspection write_events_of(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace hybrid_trainer
