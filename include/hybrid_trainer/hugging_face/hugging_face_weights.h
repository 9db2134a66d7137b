#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/io/safetensors.h"

namespace hybrid_trainer {

/// The tensors of a Hugging Face folder: those of model.safetensors or, if there is none, of the
/// shards that model.safetensors.index.json names. Only headers are kept, so a model is read tensor
/// by tensor, however many files it is in.
class HuggingFaceWeights {
 public:
  /// Throws MissingInput if there is neither file or a shard is missing, and DataError for an index
  /// that is damaged, names a file outside the folder, or disagrees with the shards.
  explicit HuggingFaceWeights(const std::filesystem::path& folder);

  /// Whether the folder holds weights that can be read, or is a GGUF file.
  static bool are_in(const std::filesystem::path& folder);
  /// Whether the folder is a model's, with weights that can be read or not.
  static bool are_meant(const std::filesystem::path& folder);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// The single file, or the index.
  const std::string& path() const { return path_; }
  bool contains(const std::string& name) const { return file_of_.count(name) > 0; }
  /// The file that holds the tensor. Throws DataError with the nearest name.
  const SafetensorsFile& file_of(const std::string& name) const;

 private:
  void add_file(const std::string& path);
  void add_shards(const std::filesystem::path& folder);
  std::string path_;  // of the single file or the index
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // index into files_, by the tensor's name
};

}  // namespace hybrid_trainer
