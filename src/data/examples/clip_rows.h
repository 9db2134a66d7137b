#pragma once

#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// A speech clip and its transcript.
struct ClipRow {
  FilePart sound{};
  std::string text{};
  std::string language{};  // "en"; empty if not given
  std::size_t file = 0;    // index in ReadRows::files
  std::int64_t line = 0;   // line of its file, element of its array or row of its table, from 1
};

/// Reads a file of clips, or the files of a folder (row_files, visit_rows), and calls `use` for
/// each row:
///   {"audio": "a.wav", "text": "what is said", "language": "en"}
/// Paths are relative to the row file, or to the current folder for rows from standard input. An
/// object with a "path" or "bytes", as in Hugging Face data sets, is accepted instead of a path,
/// and plain bytes in a Parquet table. "language" is optional. A row is refused if its clip is
/// missing, not a WAV file, damaged or longer than `longest_seconds`, if its text is empty, or if
/// `use` throws DataError. Warns once about unused keys. Throws MissingInput, DataError if a file
/// has no rows or its first 1,000 are all refused, IoError.
void read_clip_rows(const RowSource& source, double longest_seconds, ReadRows& read,
                    const std::function<void(const ClipRow&)>& use);

}  // namespace hybrid_trainer
