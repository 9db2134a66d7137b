#pragma once

#include <initializer_list>

#include "hybrid_trainer/files/input_file.h"
#include "src/files/json.h"

namespace hybrid_trainer {

/// The extension in small letters.
std::string ending_of(const std::filesystem::path& path);

/// Whether the name ends as files of rows do: .jsonl, .ndjson, .json, .csv, .tsv or .parquet.
bool has_name_of_rows(const std::filesystem::path& path);

/// Whether the path is a folder that has such files, and is no data folder of `hybrid prepare`.
bool is_folder_of_rows(const std::filesystem::path& path);

/// Use of the rows of a file, by its name.
enum class RowSplit { kTrain, kValidation, kTest };

/// The files that a path means: itself, or those of a folder in order of their names. Hidden files,
/// folders inside it and what describes a data set (dataset_info.json and the like) are left out. A
/// name with the word "valid", "validation", "val" or "dev" is of kValidation, one with "test" or
/// "eval" of kTest, any other of kTrain; all are of kTrain if none would be.
/// Throws MissingInput where there is no such file, with the folders that have some.
std::vector<std::filesystem::path> row_files(const std::filesystem::path& path,
                                             RowSplit split = RowSplit::kTrain);

/// Names the files of a folder in other splits than `read`, and those that are no files of rows; "" if
/// there are none.
std::string told_of_other_files(const std::filesystem::path& path,
                                std::initializer_list<RowSplit> read);

/// Names the validation and test files next to training files of the same folder; "" if there are none.
std::string told_of_mixed_splits(const std::vector<std::filesystem::path>& files);

/// What a row has under this name; null where it has nothing, or null.
const boost::json::value* value_in_row(const boost::json::object& row, std::string_view name);

/// The folder that paths in a file of rows are relative to: its own, or the one that a file beside it names,
/// `rows` + kFolderOfRows, if the rows came from standard input.
std::filesystem::path folder_of_rows(const std::filesystem::path& rows);
inline constexpr const char* kFolderOfRows = ".folder";

/// How messages speak of the files that rows name.
struct RowFileWords {
  std::string_view holds;  // "holds the sound as text; write it to WAV files and give their paths"
  std::string_view file;   // "a WAV file"
  std::string_view wanted;
};

/// The files of rows, such as clips and pictures.
class FilesInRows {
 public:
  /// The file that a row has under `name`: a path relative to `folder`, alone or as the "path" of an object,
  /// or the file's bytes, alone or as the object's "bytes". `place`: of the row, "row 3 of a.parquet", by
  /// which messages call such bytes. Throws DataError if there is none, IoError.
  FilePart file(const boost::json::object& row, std::string_view name, const RowFileWords& words,
                const std::filesystem::path& folder, const std::string& place);

 private:
  std::optional<ScratchFile> held_;  // bytes of tables
};

}  // namespace hybrid_trainer
