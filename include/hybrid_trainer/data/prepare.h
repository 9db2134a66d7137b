#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

struct PrepareSettings {
  std::vector<std::filesystem::path> inputs;  // files and folders
  std::filesystem::path output;               // the data folder; must not exist, or be empty
  std::string tokenizer = "bpe";        // "bpe", "bytes", "characters", or the path of a tokenizer
  std::int64_t vocabulary_size = 4096;  // of a "bpe" to be trained; includes <|endoftext|>
  double validation = 0.1;              // share of the text that is kept for validation
  std::int64_t shard_tokens = kDefaultShardTokens;
  ControlText control_text = ControlText::kAsText;  // of text that spells special tokens
  bool replace = false;  // an output that is a data folder already is replaced
  /// Of files of rows (.jsonl, .json, .csv, .parquet) the column with the text of a document. None:
  /// "text", and .json and .csv files without it are text themselves.
  std::optional<std::string> column{};
};

struct PrepareProgress {
  const char* stage = "";  // "learning the vocabulary" or "encoding"
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
};

struct PrepareResult {
  DataInfo info;
  std::int64_t skipped_binary_files = 0;
  std::int64_t repeated_files = 0;   // given more than once; each counts once
  std::int64_t missing_merges = 0;   // by how much the vocabulary is smaller than asked for
  std::int64_t forgotten_words = 0;  // rare ones, dropped while learning the vocabulary
  std::int64_t divided_bytes = 0;    // of 16 MiB of text and more that may be cut nowhere, and is
  std::int64_t rows_left_out = 0;    // of tables, without a text
  std::string first_left_out;        // the first of them, and why
  double tokenizer_seconds = 0;
  double encode_seconds = 0;
};

/// Makes a data folder from text files and from the rows of tables, whose texts lie in a file beside
/// the output meanwhile: tokenizer, token shards of both splits and data.json. Documents
/// are preceded by the end-of-text token if there are several and the tokenizer has one, and by what
/// its template puts before a text. Everything
/// is written to a folder beside the output, which is renamed at the end, so that a failed run
/// leaves nothing. Throws UsageError (tokenizer or vocabulary size), MissingInput, DataError (no
/// text, or too little to train and validate), CannotCreate (the output exists), IoError.
PrepareResult prepare_data(const PrepareSettings& settings,
                           const std::function<void(const PrepareProgress&)>& progress = {});

}  // namespace hybrid_trainer
