#pragma once

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/network_config.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

/// Label of an image: a class name or number; the text "7" is a number.
struct PictureLabel {
  std::string text{};
  std::optional<std::int64_t> number{};  // from a JSON number
};

struct PictureRow {
  FilePart picture{};
  PictureLabel label{};
  std::int32_t target = 0;  // class index, set later
  bool is_damaged = false;  // the pixels cannot be read
  std::size_t file = 0;     // index in PictureRows::files
  std::int64_t line = 0;    // line of its file, element of its array or row of its table, from 1
};

/// Contents of image row files. Each line is in one of the lists, in order.
struct PictureRows : ReadRows {
  std::vector<PictureRow> rows{};
  std::string checksum{};  // of the files, or of the names in a class folder

  /// Returns "line 3 of FILE is refused: why".
  std::string text_of(const Refusal& one) const {
    return concat(place(one.file, one.line, true), " is refused: ", one.reason);
  }
};

/// Reads an image row file, or the files of a folder (row_files, visit_rows):
///   {"image": "a.png", "label": "cat"}
/// Paths are relative to the row file. Instead of a path, accepts an object with a "path" or
/// "bytes", as in Hugging Face data sets, and plain bytes in a Parquet table. Instead of "image",
/// accepts "file_name". A label is a name or a number from 0 on. In a folder of classes, each image
/// is a row, sorted by name. A row is refused if `check` throws DataError or MissingInput, or if a
/// key is missing. If `needs_labels` is false, row files are read without labels. Warns once about
/// unused keys. Throws MissingInput, IoError, and DataError if a file has no rows or its first 1,000
/// are all refused.
PictureRows read_picture_rows(const std::filesystem::path& path, const ColumnNames& columns,
                              const std::function<void(const FilePart&)>& check,
                              bool needs_labels = true);

/// Returns the class of a label, by name or number. Throws DataError unless exactly one matches.
std::int32_t class_of(const PictureLabel& label, const std::vector<ClassLabel>& classes);

/// Returns the number that a label is or spells.
std::optional<std::int64_t> number_of(const PictureLabel& label);

/// Returns whether a class has the label's name. For a number, returns whether the class with this
/// number has no name, or shares its name with another class.
bool is_named(const PictureLabel& label, const std::vector<ClassLabel>& classes);

/// Returns a warning about names that differ only in blanks, case, zeros or Unicode form, or "".
std::string similar_classes_warning(const std::vector<ClassLabel>& classes);

/// Returns the classes of rows for a new model: names in sorted order or, for numbers, all classes
/// up to the largest with transformers' names. Throws DataError if names and numbers are mixed, or
/// if all labels are equal.
std::vector<ClassLabel> classes_in(const std::vector<PictureRow>& rows);

}  // namespace hybrid_trainer
