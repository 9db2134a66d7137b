#pragma once

#include "hybrid_trainer/data/data_config.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Default number of tokens per file, for files in the format of llm.c: int32 header[256] = {magic,
/// version, tokens, 0, …}, then the ids, little-endian. u16 files have magic 20240520 and version
/// 1. u32 files have magic 20240801 and version 7, and are used for vocabularies above 65,535.
/// Source: github.com/karpathy/llm.c, dev/data/data_common.py.
inline constexpr std::int64_t kDefaultShardTokens = 100'000'000;

/// Writes one split to `<split>_000000.bin`, … with at most `shard_tokens` tokens each.
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
  /// Appends tokens. Throws IoError, and DataError for an id outside the vocabulary.
  void append(std::span<const std::int32_t> tokens);
  /// Completes the last file; append must not be called afterwards. Throws IoError.
  void finish();
  std::int64_t tokens() const { return tokens_; }

 private:
  class File;
  Settings settings_;
  std::unique_ptr<File> file_;
  std::int64_t files_ = 0;
  std::int64_t tokens_ = 0;
};

class TokenShard {
 public:
  /// Opens the file. Throws MissingInput, or DataError if magic, version or length are wrong.
  explicit TokenShard(const std::filesystem::path& path);

  std::int64_t tokens() const { return tokens_; }
  int bytes_per_token() const { return bytes_per_token_; }
  const std::filesystem::path& path() const { return file_.path(); }
  /// Copies the tokens [start, start + out.size()). Throws IoError, also if the file was truncated.
  void read(std::int64_t start, std::span<std::int32_t> out) const;
  /// Checks all tokens. Throws DataError with file, position and value of the first invalid one.
  void check_tokens(std::int64_t vocabulary_size) const;

 private:
  InputFile file_;
  std::int64_t tokens_ = 0;
  int bytes_per_token_ = 2;
};

enum class Split { kTrain, kValidation };
const char* name_of(Split split);  // "train", "val", as in the names of shards

/// Contents of a data folder's `data.json`.
struct DataInfo {
  std::string tokenizer;  // "bpe", "bytes" or "characters"
  std::int64_t vocabulary_size = 0;
  std::int64_t train_tokens = 0;
  std::int64_t validation_tokens = 0;
  std::int64_t train_bytes = 0;       // size of the text
  std::int64_t validation_bytes = 0;  // size of the text
  std::int64_t documents = 0;
  double validation_fraction = 0;  // requested share; the actual share may differ
};
/// Writes data.json. Throws IoError.
void write_data_info(const DataInfo& info, const std::filesystem::path& folder);
/// Reads data.json, if any. Throws MissingInput if the folder does not exist, DataError if
/// data.json is invalid.
std::optional<DataInfo> read_data_info(const std::filesystem::path& folder);

/// Tokens of one split of a data folder, in all its shards sorted by name. If the folder has no
/// data.json, each token file must have either "train" or "val" in its name, as in llm.c.
class TokenDataset {
 public:
  /// Checks that every token is below `vocabulary_size` and the vocabulary size in data.json, if
  /// these are known. Throws MissingInput naming the folder, or DataError naming the file.
  TokenDataset(const std::filesystem::path& folder, Split split,
               std::optional<std::int64_t> vocabulary_size = {});

  std::int64_t tokens() const { return starts_.back(); }
  /// Returns the size in data.json. If it is unknown, returns the constructor's argument, or
  /// nullopt if there is none.
  std::optional<std::int64_t> vocabulary_size() const { return vocabulary_size_; }
  const std::optional<DataInfo>& info() const { return info_; }
  const std::filesystem::path& folder() const { return folder_; }
  Split split() const { return split_; }
  const std::vector<TokenShard>& shards() const { return shards_; }
  /// Copies the tokens [start, start + out.size()), across shard boundaries.
  void read(std::int64_t start, std::span<std::int32_t> out) const;

 private:
  std::filesystem::path folder_;
  Split split_;
  std::optional<DataInfo> info_;
  std::optional<std::int64_t> vocabulary_size_;
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> starts_;  // first token of each shard, then the total
};

/// Windows of T tokens of a split, with the next tokens as targets. With masks, each chosen token
/// is its own target, and the other tokens have no target. An epoch divides the split into windows
/// that do not overlap. Training masks depend on seed, batch and row, evaluation masks only on the
/// window's tokens. The split must outlive this object.
class TokenWindows final : public Dataset {
 public:
  struct Settings {
    std::int64_t sequence_length = 0;  // T
    bool shifts = false;               // starts epochs at a random token in [0, T)
    std::uint64_t seed = 0;            // seeds shifts and masks
    std::optional<MaskSettings> masks{};
  };
  /// Divides N tokens into floor((N - 1) / T) windows. With shifts, uses max(1, floor((N - T) / T))
  /// windows, which fit at every shift. Throws DataError if N < T + 1.
  TokenWindows(const TokenDataset& tokens, const Settings& settings);
  /// Makes windows without shifts. Adds a shorter last window, so that each token except the first
  /// is a target once. Throws DataError for fewer than 2 tokens.
  static std::shared_ptr<const TokenWindows> for_evaluation(
      const TokenDataset& tokens, std::int64_t sequence_length,
      const std::optional<MaskSettings>& masks = {});

  std::int64_t size() const override { return windows_; }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(std::int64_t number, const ExampleMemory& memory) const override;
  std::uint64_t order_key() const override;
  bool counts_epochs() const override { return false; }
  std::int64_t rest() const override;

 private:
  std::int64_t shift_of(std::uint64_t epoch) const;
  const TokenDataset* tokens_;
  Settings settings_;
  std::int64_t windows_;
};

}  // namespace hybrid_trainer
