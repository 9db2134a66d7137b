#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/network_config.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// Class of a row's picture: a name or a number; "7" is a number.
struct PictureLabel {
  std::string text{};
  std::optional<std::int64_t> number{};  // of a JSON number
};

/// A picture in a file, and what it shows.
struct PictureRow {
  FilePart picture{};
  PictureLabel label{};
  std::int32_t target = 0;  // the number of its class, once that is known
  bool is_damaged = false;  // its pixels cannot be read
  std::size_t file = 0;     // in PictureRows::files
  std::int64_t line = 0;    // of its file, from 1; of an array its place, of a table its row
};

/// Contents of files of pictures' rows: each of their lines is in one of the lists, in order.
struct PictureRows : ReadRows {
  std::vector<PictureRow> rows{};
  std::string checksum{};  // of the files, or of the names in a folder of classes

  /// "line 3 of FILE is refused: why".
  std::string text_of(const Refusal& one) const {
    return concat(place(one.file, one.line, true), " is refused: ", one.reason);
  }
};

/// Reads a file of pictures, or the files of a folder (row_files, visit_rows):
///   {"image": "a.png", "label": "cat"}
/// Paths are relative to the file of rows. An object with a "path" or "bytes", as data sets of Hugging Face
/// have it, is as good as the path, and so are the bytes alone in a parquet table, and "file_name" in place
/// of "image". A label is a name or a number from 0 on. Of a folder of classes each picture is a row, in
/// order of their names. A row is refused if `check` throws DataError or MissingInput for its picture, or
/// a key is missing. Warns once of keys that are not read. Throws MissingInput, DataError if a file
/// holds no rows or its first 1,000 are all refused, IoError.
PictureRows read_picture_rows(const std::filesystem::path& path, const ColumnNames& columns,
                              const std::function<void(const FilePart&)>& check);

/// The number of the class that a row's label means, by its name or number. Throws DataError where it is
/// none of them, or the name of several.
std::int32_t class_of(const PictureLabel& label, const std::vector<ClassLabel>& classes);

/// The number that a label is, or is written as.
std::optional<std::int64_t> number_of(const PictureLabel& label);

/// Whether a class has the label's name, or of a number the one that it has if there are no names, or a
/// name that another class has too.
bool is_named(const PictureLabel& label, const std::vector<ClassLabel>& classes);

/// Of names that differ in blanks, case, leading zeros or Unicode form alone, a line for people; "" if there are none.
std::string told_of_similar(const std::vector<ClassLabel>& classes);

/// The classes of rows that a model does not know: names in their order, or numbers up to the largest,
/// called as transformers calls them. Throws DataError where some are names and others numbers, or all
/// are one.
std::vector<ClassLabel> classes_in(const std::vector<PictureRow>& rows);

}  // namespace hybrid_trainer
