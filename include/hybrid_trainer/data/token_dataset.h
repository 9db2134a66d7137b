#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Token files of llm.c: int32 header[256] = {magic, version, tokens, 0, …}, then the ids,
/// little-endian. u16: magic 20240520, version 1. u32: magic 20240801, version 7; written where the
/// vocabulary is over 65,535. Source: github.com/karpathy/llm.c, dev/data/data_common.py.
inline constexpr std::int64_t kDefaultShardTokens = 100'000'000;

/// Writes one split as `<split>_000000.bin`, `<split>_000001.bin`, … of at most `shard_tokens`
/// tokens each.
class ShardWriter {
 public:
  struct Settings {
    std::filesystem::path folder;
    std::string split;  // "train" or "val"
    std::int64_t vocabulary_size = 0;
    std::int64_t shard_tokens = kDefaultShardTokens;
  };
  explicit ShardWriter(Settings settings);
  ~ShardWriter();
  /// Throws IoError, and DataError for an id outside the vocabulary.
  void append(std::span<const std::int32_t> tokens);
  /// Completes the last file; nothing may be appended after. Throws IoError.
  void finish();
  std::int64_t tokens() const { return tokens_; }

 private:
  class File;
  Settings settings_;
  std::unique_ptr<File> file_;
  std::int64_t files_ = 0;
  std::int64_t tokens_ = 0;
};

/// One token file, open to read windows of it.
class TokenShard {
 public:
  /// Throws MissingInput, or DataError where magic, version or length are wrong.
  explicit TokenShard(const std::filesystem::path& path);

  std::int64_t tokens() const { return tokens_; }
  int bytes_per_token() const { return bytes_per_token_; }
  const std::filesystem::path& path() const { return file_.path(); }
  /// Copies the tokens [start, start + out.size()). Throws IoError, also if the file has been
  /// truncated since it was opened.
  void read(std::int64_t start, std::span<std::int32_t> out) const;
  /// Reads the whole file; throws DataError that names file, position and value of the first token
  /// >= vocabulary_size.
  void check_tokens(std::int64_t vocabulary_size) const;

 private:
  InputFile file_;
  std::int64_t tokens_ = 0;
  int bytes_per_token_ = 2;
};

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
