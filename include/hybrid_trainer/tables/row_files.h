#pragma once

#include <filesystem>
#include <vector>

namespace hybrid_trainer {

/// Whether the name ends as files of rows do: .jsonl, .ndjson, .json, .csv, .tsv or .parquet.
bool has_name_of_rows(const std::filesystem::path& path);

/// Whether the path is a folder that has such files, and is no data folder of `hybrid prepare`.
bool is_folder_of_rows(const std::filesystem::path& path);

/// The files that a path means: itself, or those of a folder in order of their names. Hidden files,
/// folders inside it and what describes a data set (dataset_info.json and the like) are left out.
/// Throws MissingInput where there is no such file, with the folders that have some.
std::vector<std::filesystem::path> row_files(const std::filesystem::path& path);

}  // namespace hybrid_trainer
