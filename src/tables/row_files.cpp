#include "hybrid_trainer/tables/row_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// Of the files that data sets of others have beside their rows.
bool describes_a_data_set(const std::string& name) {
  static constexpr std::array kNames{"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                     "state.json"};
  return std::ranges::find(kNames, name) != kNames.end();
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || describes_a_data_set(name) || !has_name_of_rows(name)) continue;
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::string folders_with_rows(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && is_folder_of_rows(entry.path()))
      found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  return found.empty() ? "" : "; these folders in it have some: " + join(found);
}

}  // namespace

bool has_name_of_rows(const fs::path& path) {
  static constexpr std::array kEndings{".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"};
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

bool is_folder_of_rows(const fs::path& path) {
  std::error_code unreadable;
  if (!fs::is_directory(path, unreadable) || fs::exists(path / "data.json", unreadable))
    return false;
  const bool holds_tokens = std::ranges::any_of(
      fs::directory_iterator(path),
      [](const fs::directory_entry& entry) { return entry.path().extension() == ".bin"; });
  return !holds_tokens && !files_in(path).empty();
}

std::vector<fs::path> row_files(const fs::path& path) {
  std::error_code absent;
  if (!fs::is_directory(path, absent)) return {path};
  std::vector<fs::path> files = files_in(path);
  if (files.empty())
    throw MissingInput(concat(path.string(),
                              ": is a folder without .jsonl, .json, .csv or .parquet files",
                              folders_with_rows(path)));
  return files;
}

}  // namespace hybrid_trainer
