#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

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

}  // namespace hybrid_trainer
