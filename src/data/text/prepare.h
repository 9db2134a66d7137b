#pragma once

#include <fstream>

#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

/// Bytes [begin, end) of a file: one document, or part of one.
struct TextPiece {
  std::shared_ptr<const std::filesystem::path> path;  // as many pieces may have
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t document_begin = 0;  // behind a byte-order mark
  /// Of a row of a table, whose text is kept in `path`: the table, and the row's number.
  std::shared_ptr<const std::filesystem::path> table{};
  std::int64_t row = 0;
  std::int64_t bytes() const { return end - begin; }
};

class TableTexts;

/// Text files, one document each; and the rows of tables.
struct Corpus {
  std::vector<TextPiece> documents;  // none is empty
  std::int64_t bytes = 0;
  std::int64_t skipped_binary_files = 0;  // in folders: a NUL in the first 8 KB
  std::int64_t repeated_files = 0;        // files found again, each time; they count once
  /// Its name in messages: the first input, and how many more there are.
  std::string name;
};

/// The files named, and all files below the folders named, sorted within each folder. A named file
/// is always taken, a file in a folder is skipped if it is binary. A file found again, also by
/// another spelling or a link, counts once, so that it is in one split only. Links to folders
/// inside a folder are not followed. Throws MissingInput, which names an input that does not exist,
/// or DataError if there is no text at all, or a file that was named is no plain text by its first bytes
/// (compressed, UTF-16, …). With `tables`, files of rows whose texts it takes are as many documents.
Corpus find_corpus(const std::vector<std::filesystem::path>& inputs, TableTexts* tables = nullptr);

struct CorpusSplit {
  std::vector<TextPiece> train;
  std::vector<TextPiece> validation;
};

/// Makes about `validation` of the bytes, 0 < validation < 1, validation text. Of several documents
/// each goes whole to one split, spread evenly over the corpus, if the share so reached is within
/// half to one and a half of what was asked for. Otherwise, and always with one document, the last
/// `validation` of the corpus's characters is cut off.
CorpusSplit split_corpus(const Corpus& corpus, double validation);

/// Texts of the rows of tables: each is a document. They are written to one file, from which they are
/// read as often as needed, since a table is compressed.
class TableTexts {
 public:
  struct Settings {
    std::string column = "text";
    bool is_asked = false;  // the user named the column, so that each table must have it
    /// Makes the file's folder, once there is a table, and gives the file's path.
    std::function<std::filesystem::path()> place;
  };
  /// Rows without a text.
  struct LeftOut {
    std::int64_t rows = 0;
    std::string first;  // "row 3 of t.csv: why"
  };
  explicit TableTexts(Settings settings) : settings_(std::move(settings)) {}

  /// Adds the rows of a file; those without a text are left out. False where the name is none of a
  /// table's, or where a .json or .csv file has no such column and none was asked for: then it is text
  /// itself. Throws DataError where it is damaged or lacks the column, IoError.
  bool add(const std::filesystem::path& path, std::vector<TextPiece>& documents);
  /// Whether the file is the one that the texts are written to.
  bool is_own(const std::filesystem::path& path) const {
    return place_ && std::filesystem::equivalent(path, *place_);
  }
  /// Writes out what was added.
  void finish();
  /// Removes the file.
  void remove();
  const LeftOut& left_out() const { return left_out_; }

 private:
  void add_text(std::string_view text, TextPiece piece, std::vector<TextPiece>& documents);

  Settings settings_;
  std::shared_ptr<const std::filesystem::path> place_;
  std::optional<OutputFile> file_;
  std::string buffer_;
  std::int64_t bytes_ = 0;
  LeftOut left_out_;
};

/// Part of a document, small enough for memory.
struct TextSegment {
  std::string text;
  bool starts_document = false;
  std::string place;        // "book.txt from byte 7 on", or "row 3 of t.csv"
  bool is_divided = false;  // cut where it is one word, for its length
};

/// Reads pieces in order as segments of about `segment_bytes`. A document is only cut where `cut`
/// says, as Tokenizer::last_cut does, so that its segments' tokens are the document's tokens; but a
/// text of kLongestSegment without such a place is cut between any two characters.
class SegmentReader {
 public:
  using Cut = std::function<std::size_t(std::string_view text, std::size_t first)>;
  static constexpr std::int64_t kSegmentBytes = 256 << 10;
  static constexpr std::int64_t kLongestSegment = 16 << 20;
  SegmentReader(std::vector<TextPiece> pieces, Cut cut, std::int64_t segment_bytes = kSegmentBytes);
  /// The next segments, together about `bytes` long; empty at the end. Throws IoError.
  std::vector<TextSegment> next(std::int64_t bytes);

 private:
  std::optional<TextSegment> next_segment();
  void open_piece();
  std::vector<TextPiece> pieces_;
  Cut cut_;
  std::int64_t segment_bytes_;
  std::size_t piece_ = 0;
  bool is_in_piece_ = false;
  std::int64_t position_ = 0;  // of rest_ in the file; meaningful in a piece
  std::ifstream file_;
  std::shared_ptr<const std::filesystem::path> opened_;  // the file that is open
  std::int64_t read_to_ = 0;                             // in it
  std::string rest_;                                     // read, but after the last cut
};

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
