#pragma once

#include <string>

namespace hybrid_trainer {

/// What a file or folder holds, for people and as one JSON object.
struct Inspection {
  std::string text;
  std::string json;
};

/// Tensors, dtypes, shapes and metadata. Throws MissingInput or DataError.
Inspection inspect_safetensors(const std::string& path);

/// Step, files and tensors of a checkpoint; every checksum is verified and a damage is part of the
/// answer. Throws MissingInput where `path` is no folder, DataError where its manifest is damaged.
Inspection inspect_checkpoint(const std::string& path);

}  // namespace hybrid_trainer
