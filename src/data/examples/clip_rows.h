#pragma once

#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// A clip of speech and what is said in it.
struct ClipRow {
  FilePart sound{};
  std::string text{};
  std::string language{};  // "en"; empty where the row names none
  double seconds = 0;
  std::size_t file = 0;   // in ClipRows::files
  std::int64_t line = 0;  // of its file, from 1; of an array its place, of a table its row
};

/// Contents of files of clips: each of their lines is in one of the lists, in order.
struct ClipRows : ReadRows {
  std::vector<ClipRow> rows{};
};

struct ClipFormat {
  ColumnNames columns{};              // by which rows are read
  std::string called{};               // the file's name in messages, if that is not its path
  double longest_seconds = 30;        // a longer clip is refused
  RowSplit split = RowSplit::kTrain;  // of a folder, the files that are read
};

/// Reads a file of clips, or the files of a folder (row_files, visit_rows):
///   {"audio": "a.wav", "text": "what is said", "language": "en"}
/// Paths are relative to the file of rows; standard input's to the current folder. An object with a
/// "path" or "bytes", as data sets of Hugging Face have it, is as good as the path, and so are the bytes
/// alone in a parquet table. "language" may be left out. A row is refused if its clip is missing, no
/// WAV file, damaged, or longer than format.longest_seconds, or its text is empty. Warns once of keys that
/// are not read. Throws MissingInput, DataError if a file holds no rows or its first 1,000 are all refused, IoError.
ClipRows read_clip_rows(const std::filesystem::path& path, const ClipFormat& format = {});

}  // namespace hybrid_trainer
