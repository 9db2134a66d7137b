#pragma once

#include <initializer_list>

#include "hybrid_trainer/files/input_file.h"
#include "src/files/json.h"

namespace hybrid_trainer {

std::string ending_of(const std::filesystem::path& path);

/// Returns whether the name ends in .jsonl, .ndjson, .json, .csv, .tsv or .parquet.
bool has_name_of_rows(const std::filesystem::path& path);

/// Returns whether the path is a folder of such files, and not a data folder of `hybrid prepare`.
bool is_folder_of_rows(const std::filesystem::path& path);

/// Use of the rows of a file, by its name.
enum class RowSplit { kTrain, kValidation, kTest };

/// Returns the file itself, or the files of a folder sorted by name. Skips hidden files, subfolders
/// and descriptions of a data set (dataset_info.json and the like). A name with the word "valid",
/// "validation", "val" or "dev" belongs to kValidation, one with "test" or "eval" to kTest, and any
/// other to kTrain. If no file would belong to kTrain, all do. Throws MissingInput if there is no
/// such file, listing the folders that have some.
std::vector<std::filesystem::path> row_files(const std::filesystem::path& path,
                                             RowSplit split = RowSplit::kTrain);

/// Returns a note on a folder's files in other splits than `read` or without rows, else "".
std::string unread_files_note(const std::filesystem::path& path,
                              std::initializer_list<RowSplit> read);

/// Returns a warning that names validation and test files next to training files, else "".
std::string mixed_splits_warning(const std::vector<std::filesystem::path>& files);

/// Returns the value under this name in a row; null if it is absent or null.
const boost::json::value* value_in_row(const boost::json::object& row, std::string_view name);

/// Returns the folder that paths in a file of rows are relative to: the file's folder or, for rows
/// from standard input, the folder named in the file `rows` + kFolderOfRows.
std::filesystem::path folder_of_rows(const std::filesystem::path& rows);
inline constexpr const char* kFolderOfRows = ".folder";

/// Words for messages about the files that rows name.
struct RowFileWords {
  std::string_view holds;  // "contains the sound as text; …"
  std::string_view file;   // "a WAV file"
  std::string_view wanted;
};

/// Files that rows refer to, such as clips and pictures.
class FilesInRows {
 public:
  /// Returns the file that a row has under `name`. The value is a path relative to `folder`, or the
  /// file's bytes, each directly or as "path" or "bytes" of an object. `place` is the row's
  /// location, "row 3 of a.parquet", for messages. Throws DataError if there is no file, IoError.
  FilePart file(const boost::json::object& row, std::string_view name, const RowFileWords& words,
                const std::filesystem::path& folder, const std::string& place);

 private:
  std::optional<ScratchFile> held_;  // bytes from tables
};

}  // namespace hybrid_trainer
