#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

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

}  // namespace hybrid_trainer
