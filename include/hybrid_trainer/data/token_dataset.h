#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hybrid_trainer/data/token_shards.h"

namespace hybrid_trainer {

enum class Split { kTrain, kValidation };
const char* name_of(Split split);  // "train", "val", as in the shards' names

/// The contents of a data folder's `data.json`.
struct DataInfo {
  std::string tokenizer;  // "bpe", "bytes" or "characters"
  std::int64_t vocabulary_size = 0;
  std::int64_t train_tokens = 0;
  std::int64_t validation_tokens = 0;
  std::int64_t train_bytes = 0;       // of text
  std::int64_t validation_bytes = 0;  // of text
  std::int64_t documents = 0;
  double validation_fraction = 0;  // as asked for
};
/// Throws IoError.
void write_data_info(const DataInfo& info, const std::filesystem::path& folder);
/// None if the folder has no data.json. Throws MissingInput if there is no folder, DataError.
std::optional<DataInfo> read_data_info(const std::filesystem::path& folder);

/// The tokens of one split of a data folder, over all its shards in order of their names. A folder
/// without data.json is accepted too if it holds token files with "train" or "val" in their names,
/// as llm.c writes them; a name with both is refused.
class TokenDataset {
 public:
  /// Every token is checked against `vocabulary_size` and data.json's, where they are given. Throws
  /// MissingInput that names the folder, or DataError that names the file.
  TokenDataset(const std::filesystem::path& folder, Split split,
               std::optional<std::int64_t> vocabulary_size = {});

  std::int64_t tokens() const { return starts_.back(); }
  /// data.json's, or what the constructor was given; none where neither is known.
  std::optional<std::int64_t> vocabulary_size() const { return vocabulary_size_; }
  const std::optional<DataInfo>& info() const { return info_; }
  const std::filesystem::path& folder() const { return folder_; }
  Split split() const { return split_; }
  const std::vector<TokenShard>& shards() const { return shards_; }
  /// Copies the tokens [start, start + out.size()), across shard borders.
  void read(std::int64_t start, std::span<std::int32_t> out) const;

 private:
  std::filesystem::path folder_;
  Split split_;
  std::optional<DataInfo> info_;
  std::optional<std::int64_t> vocabulary_size_;
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> starts_;  // first token of each shard, then the total
};

}  // namespace hybrid_trainer
