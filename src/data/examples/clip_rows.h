#pragma once

#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

struct ClipRow {
  FilePart sound{};
  std::string text{};
  std::string language{};  // "en"; empty if not given
  std::size_t file = 0;    // index in ReadRows::files
  /// Line of the file, element of the array or row of the table, counted from 1.
  std::int64_t line = 0;
};

/// Reads a file of clips, or the files of a folder (row_files, visit_rows), and calls `use` for
/// each row:
///   {"audio": "a.wav", "text": "what is said", "language": "en"}
/// Paths are relative to the row file, or the current folder for standard input. "audio" may also
/// be an object with "path" or "bytes", or the bytes in a Parquet table. "language" is optional. A
/// row is rejected if its clip is unusable or longer than `longest_seconds`, its text is empty, or
/// `use` throws DataError. Warns once about unused keys. Throws DataError if there are no rows or
/// the first 1,000 are rejected. Also throws MissingInput and IoError.
void read_clip_rows(const RowSource& source, double longest_seconds, ReadRows& read,
                    const std::function<void(const ClipRow&)>& use);

}  // namespace hybrid_trainer
