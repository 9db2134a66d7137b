#pragma once

#include <filesystem>
#include <string>

namespace hybrid_trainer {

/// What a path holds, as JSON and as text.
struct Inspection {
  std::string json;  // one object; "kind" says which keys follow
  std::string text;  // the same for people, ending in a newline
};

/// Looks at a run ("run"), a checkpoint ("checkpoint"), a data folder ("data"), a Hugging Face
/// folder ("hugging_face"), a safetensors file ("safetensors"), a file of llama.cpp ("gguf"), a token
/// shard ("token_shard") or
/// what a run that ran out of memory left ("out_of_memory"). A
/// checkpoint's checksums are verified and a shard's tokens are read. Nothing is changed. Throws
/// MissingInput, or DataError where it is none of these or damaged.
Inspection inspect(const std::filesystem::path& path);

/// What a checkpoint's tensors hold ("digest"): a checksum for each and, in the text's last line,
/// one over all. `path`: a checkpoint. Throws MissingInput, or DataError where it is none or
/// damaged.
Inspection inspect_digest(const std::filesystem::path& path);

/// How the routers of a run's last step spread its tokens over experts ("experts"). `path`: a run.
/// Throws MissingInput, or DataError where it is none, or its model has no experts.
Inspection inspect_experts(const std::filesystem::path& path);

/// Writes the records of a run for TensorBoard into `folder` ("tensorboard"). Throws MissingInput,
/// DataError where `path` is no run, CannotCreate where the folder holds event files, IoError.
Inspection write_events_of(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace hybrid_trainer
