#pragma once

#include <fstream>

#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

/// Bytes [begin, end) of a file: a document, or a part of one.
struct TextPiece {
  std::shared_ptr<const std::filesystem::path> path;  // shared by many pieces
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t document_begin = 0;  // after a byte-order mark
  /// Table and row number, if this is a table's row. The text of the row is stored in `path`.
  std::shared_ptr<const std::filesystem::path> table{};
  std::int64_t row = 0;
  std::int64_t bytes() const { return end - begin; }
};

class TableTexts;

/// Text files, each of which is one document, and the rows of tables.
struct Corpus {
  std::vector<TextPiece> documents;  // not empty
  std::int64_t bytes = 0;
  std::int64_t skipped_binary_files = 0;  // files in folders with a NUL in the first 8 KB
  /// Number of times that a file was found again; each file is used once.
  std::int64_t repeated_files = 0;
  /// Name in messages: the first input and the number of further inputs.
  std::string name;
};

/// Finds the named files and all files below the named folders, sorted within each folder. Skips
/// binary files in folders, but not named files. A file counts once, even under another spelling or
/// a link. Does not follow links to folders. With `tables`, the rows of tables are separate
/// documents. Throws MissingInput, or DataError if there is no text or a named file is not plain
/// text (compressed, UTF-16, …).
Corpus find_corpus(const std::vector<std::filesystem::path>& inputs, TableTexts* tables = nullptr);

struct CorpusSplit {
  std::vector<TextPiece> train;
  std::vector<TextPiece> validation;
};

/// Splits off about the share `validation` of the bytes for validation, 0 < validation < 1. If
/// there are several documents, assigns each document to one split, evenly over the corpus. If the
/// resulting share is not between 0.5 and 1.5 times the requested share, or if there is only one
/// document, cuts off the last `validation` of the corpus's characters instead.
CorpusSplit split_corpus(const Corpus& corpus, double validation);

/// Texts of the rows of tables; each is a document. Writes the texts to a file that can be read
/// repeatedly, because tables are compressed.
class TableTexts {
 public:
  struct Settings {
    std::string column = "text";
    /// True if the user named the column, so that each table must have it.
    bool is_requested = false;
    std::function<std::filesystem::path()> place;
  };
  struct SkippedRows {
    std::int64_t rows = 0;
    std::string first;  // "row 3 of t.csv: why"
  };
  explicit TableTexts(Settings settings) : settings_(std::move(settings)) {}

  /// Adds the rows of a file and skips rows without a text. Returns false if the file is not a
  /// table by its name, or if it is a .json or .csv file without the column and no column was
  /// requested; the file is then plain text. Throws DataError if the table is damaged or lacks the
  /// column. Also throws IoError.
  bool add(const std::filesystem::path& path, std::vector<TextPiece>& documents);
  /// Returns whether `path` is the file that the texts are written to.
  bool is_own(const std::filesystem::path& path) const {
    return place_ && std::filesystem::equivalent(path, *place_);
  }
  void finish();
  void remove();
  const SkippedRows& left_out() const { return left_out_; }

 private:
  void add_text(std::string_view text, TextPiece piece, std::vector<TextPiece>& documents);

  Settings settings_;
  std::shared_ptr<const std::filesystem::path> place_;
  std::optional<OutputFile> file_;
  std::string buffer_;
  std::int64_t bytes_ = 0;
  SkippedRows left_out_;
};

/// Part of a document, small enough for memory.
struct TextSegment {
  std::string text;
  bool starts_document = false;
  std::string place;        // "book.txt from byte 7 on", or "row 3 of t.csv"
  bool is_divided = false;  // whether it was cut within a word because of its length
};

/// Reads pieces in order as segments of about `segment_bytes`. Cuts a document only at positions
/// that `cut` returns, so that the segments have the document's tokens. A text of kLongestSegment
/// bytes without such a position is cut between any characters.
class SegmentReader {
 public:
  using Cut = std::function<std::size_t(std::string_view text, std::size_t first)>;
  static constexpr std::int64_t kSegmentBytes = 256 << 10;
  static constexpr std::int64_t kLongestSegment = 16 << 20;
  SegmentReader(std::vector<TextPiece> pieces, Cut cut, std::int64_t segment_bytes = kSegmentBytes);
  /// Returns the next segments, about `bytes` in total, or none at the end. Throws IoError.
  std::vector<TextSegment> next(std::int64_t bytes);

 private:
  std::optional<TextSegment> next_segment();
  void open_piece();
  std::vector<TextPiece> pieces_;
  Cut cut_;
  std::int64_t segment_bytes_;
  std::size_t piece_ = 0;
  bool is_in_piece_ = false;
  std::int64_t position_ = 0;  // position of rest_ in the file; valid inside a piece
  std::ifstream file_;
  std::shared_ptr<const std::filesystem::path> opened_;  // the open file
  std::int64_t read_to_ = 0;                             // position in the open file
  std::string rest_;                                     // text read after the last cut
};

struct PrepareSettings {
  std::vector<std::filesystem::path> inputs;  // files and folders
  std::filesystem::path output;               // the data folder; must not exist, or be empty
  /// "bpe", "wordpiece", "bytes", "characters", or the path of a tokenizer.
  std::string tokenizer = "bpe";
  /// Vocabulary size of a "bpe" or "wordpiece" to train, including special tokens.
  std::int64_t vocabulary_size = 4096;
  double validation = 0.1;  // share of the text for validation
  std::int64_t shard_tokens = kDefaultShardTokens;
  ControlText control_text = ControlText::kAsText;  // treatment of text that spells special tokens
  bool replace = false;                             // whether to replace an existing data folder
  /// Column of tables (.jsonl, .json, .csv, .parquet) with the text of a document. If not set,
  /// "text" is used, and .json and .csv files without this column are read as plain text.
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
  std::int64_t repeated_files = 0;  // files given more than once; each file is used once
  std::int64_t missing_merges = 0;  // tokens by which the vocabulary is smaller than requested
  std::int64_t dropped_words = 0;   // rare words dropped while learning the vocabulary
  std::int64_t divided_bytes = 0;   // bytes of texts of at least 16 MiB that were cut within a word
  std::int64_t rows_left_out = 0;   // rows of tables that have no text
  std::string first_left_out;       // first row without a text, and the reason
  double tokenizer_seconds = 0;
  double encode_seconds = 0;
};

/// Makes a data folder from text files and tables: tokenizer, token shards of both splits and
/// data.json. Each document begins with the end-of-text token, if there are several documents and
/// the tokenizer has one, and with the start of its template. Writes to a folder next to the output
/// and renames it at the end. Throws UsageError (tokenizer or vocabulary size), MissingInput,
/// DataError (no text, or too little to train and validate), CannotCreate (the output exists),
/// IoError.
PrepareResult prepare_data(const PrepareSettings& settings,
                           const std::function<void(const PrepareProgress&)>& progress = {});

}  // namespace hybrid_trainer
