#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hybrid_trainer/io/run_directory.h"

namespace hybrid_trainer {

/// What tells a Hugging Face folder from another one: a checksum of config.json, of what its tensors
/// are, and of samples of their bytes.
std::string identity_of_base(const std::filesystem::path& folder);
/// Identifies a PEFT adapter in the same way.
std::string identity_of_adapter(const std::filesystem::path& folder);
/// Remembers the one that holds the frozen weights of a run, and its identity. Throws IoError.
void write_run_base(const RunPaths& paths, const std::filesystem::path& folder);

/// The folder of the run's frozen weights, which may lie at `given` now; none where the run has
/// none. Throws MissingInput where it is gone, DataError where another model is there.
std::optional<std::filesystem::path> base_of_run(
    const RunPaths& paths, const std::optional<std::filesystem::path>& given = {});

}  // namespace hybrid_trainer
