#pragma once

#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// A clip of speech and what is said in it.
struct ClipRow {
  FilePart sound{};
  std::string text{};
  std::string language{};  // "en"; empty where the row names none
  std::size_t file = 0;    // in ReadRows::files
  std::int64_t line = 0;   // of its file, from 1; of an array its place, of a table its row
};

/// Reads a file of clips, or the files of a folder (row_files, visit_rows), and calls `use` for each:
///   {"audio": "a.wav", "text": "what is said", "language": "en"}
/// Paths are relative to the file of rows; standard input's to the current folder. An object with a
/// "path" or "bytes", as data sets of Hugging Face have it, is as good as the path, and so are the bytes
/// alone in a parquet table. "language" may be left out. A row is refused if its clip is missing, no
/// WAV file, damaged, or longer than `longest_seconds`, its text is empty, or `use` throws DataError. Warns
/// once of keys that are not read. Throws MissingInput, DataError if a file holds no rows or its first
/// 1,000 are all refused, IoError.
void read_clip_rows(const RowSource& source, double longest_seconds, ReadRows& read,
                    const std::function<void(const ClipRow&)>& use);

}  // namespace hybrid_trainer
