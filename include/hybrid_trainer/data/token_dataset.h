#pragma once

#include "hybrid_trainer/data/data_config.h"
#include "hybrid_trainer/data/dataset.h"
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

/// Windows of T tokens of a split, which must outlive it, with the next tokens as targets; with masks the
/// chosen tokens are their own targets, and all others have none. An epoch cuts the split into windows
/// that do not overlap. Training draws masks from seed, batch and row. An evaluation draws them from the
/// window's tokens alone, so that runs and steps are measured on the same masks, whatever their seeds and
/// batches.
class TokenWindows final : public Dataset {
 public:
  struct Settings {
    std::int64_t sequence_length = 0;  // T
    /// In training the first window begins at a random token in [0, T), another one in each epoch; else
    /// at token 0.
    bool shifts = false;
    std::uint64_t seed = 0;  // of shifts and masks
    std::optional<MaskSettings> masks{};
  };
  /// Of N tokens makes floor((N - T) / T) windows with shifts (what every shift leaves room for, at
  /// least 1), else floor((N - 1) / T). Throws DataError if N < T + 1.
  TokenWindows(const TokenDataset& tokens, const Settings& settings);
  /// Windows without shifts and the shorter one that is left at the end: each token but the first is a
  /// target once. A short split is one window. Throws DataError if the split has fewer than 2 tokens.
  static std::shared_ptr<const TokenWindows> to_measure_on(
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
