#pragma once

#include <initializer_list>

#include "hybrid_trainer/files/input_file.h"
#include "src/files/json.h"

namespace hybrid_trainer {

std::string ending_of(const std::filesystem::path& path);

bool has_name_of_rows(const std::filesystem::path& path);

/// Returns whether the path is a folder of row files and not of `hybrid prepare`.
bool is_folder_of_rows(const std::filesystem::path& path);

enum class RowSplit { kTrain, kValidation, kTest };

/// Returns the file itself, or a folder's files sorted by name, without hidden files, subfolders
/// and descriptions of a data set. A file whose name contains the word "valid", "validation", "val"
/// or "dev" belongs to kValidation, a file with "test" or "eval" to kTest, and others to kTrain. If
/// none would belong to kTrain, all do. Throws MissingInput if a folder contains no files of rows.
std::vector<std::filesystem::path> row_files(const std::filesystem::path& path,
                                             RowSplit split = RowSplit::kTrain);

/// Returns a note on files that belong to splits other than `read` or contain no rows, or "".
std::string unread_files_note(const std::filesystem::path& path,
                              std::initializer_list<RowSplit> read);

/// Returns a warning about validation and test files next to training files, or "".
std::string mixed_splits_warning(const std::vector<std::filesystem::path>& files);

const boost::json::value* value_in_row(const boost::json::object& row, std::string_view name);

/// Returns the folder to which paths in a file of rows are relative. It is the file's folder or,
/// for rows from standard input, the folder named in the file `rows` + kFolderOfRows.
std::filesystem::path folder_of_rows(const std::filesystem::path& rows);
inline constexpr const char* kFolderOfRows = ".folder";

struct RowFileWords {
  std::string_view holds;  // "contains the sound as text; …"
  std::string_view file;   // "a WAV file"
  std::string_view wanted;
};

/// Files that rows refer to, such as clips and pictures.
class FilesInRows {
 public:
  /// Returns a row's file: a path relative to `folder`, the bytes, or an object with "path" or
  /// "bytes". `place` is the row's location for messages. Throws DataError and IoError.
  FilePart file(const boost::json::object& row, std::string_view name, const RowFileWords& words,
                const std::filesystem::path& folder, const std::string& place);

 private:
  std::optional<ScratchFile> held_;  // file with bytes from tables
};

}  // namespace hybrid_trainer
