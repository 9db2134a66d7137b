#include "src/data/tables/row_files.h"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/case_conv.hpp>
#include <boost/json.hpp>
#include <cctype>
#include <iterator>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

/// Returns whether a file of this name describes another program's data set and has no rows.
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

/// Returns the names of other files in the folder that may contain more rows.
std::vector<std::string> other_names_in(const fs::path& folder) {
  static constexpr std::array kAside{".md",  ".png",  ".jpg", ".jpeg", ".gif", ".webp", ".bmp",
                                     ".ppm", ".tiff", ".wav", ".flac", ".mp3", ".ogg",  ".mp4"};
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_metadata_file = name.starts_with("README") || name.starts_with("LICENSE") ||
                                  std::ranges::find(kAside, ending_of(name)) != kAside.end();
    if (name.starts_with('.') || describes_a_data_set(name) || is_metadata_file) continue;
    if (entry.is_directory() || (entry.is_regular_file() && has_name_of_rows(name))) continue;
    names.push_back(concat(name, entry.exists() ? "" : " (a broken link)"));
  }
  std::ranges::sort(names);
  return names;
}

/// Returns the split that a word in the file's name selects, as in Hugging Face's datasets.
std::optional<RowSplit> named_split(const fs::path& file) {
  static const std::map<std::string, RowSplit> kWords{
      {"train", RowSplit::kTrain},      {"training", RowSplit::kTrain},
      {"valid", RowSplit::kValidation}, {"validation", RowSplit::kValidation},
      {"val", RowSplit::kValidation},   {"dev", RowSplit::kValidation},
      {"test", RowSplit::kTest},        {"testing", RowSplit::kTest},
      {"eval", RowSplit::kTest},        {"evaluation", RowSplit::kTest}};
  std::string word;
  for (const char letter : boost::algorithm::to_lower_copy(file.stem().string()) + ".") {
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) {
      word += letter;
      continue;
    }
    if (const auto found = kWords.find(word); found != kWords.end()) return found->second;
    word.clear();
  }
  return {};
}

RowSplit split_of(const fs::path& file) { return named_split(file).value_or(RowSplit::kTrain); }

/// Returns "a.jsonl, b.jsonl and 3 more".
std::string shown(std::vector<std::string> names) {
  constexpr std::size_t kNamed = 5;
  const std::size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  return concat(join(names), more > 0 ? concat(" and ", more, " more") : "");
}

std::string folders_with_rows(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && is_folder_of_rows(entry.path()))
      found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  return found.empty() ? "" : "; these subfolders have some: " + join(found);
}

/// Returns whether a text is binary data, such as sound or a picture, and therefore not a path.
bool is_binary(const json::string& text) {
  const std::string_view bytes(text);
  return bytes.find('\0') != bytes.npos || valid_utf8_bytes(bytes, 0) != bytes.size();
}

}  // namespace

std::string ending_of(const fs::path& path) {
  return boost::algorithm::to_lower_copy(path.extension().string());
}

bool has_name_of_rows(const fs::path& path) {
  static constexpr std::array kEndings{".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"};
  return std::ranges::find(kEndings, ending_of(path)) != kEndings.end();
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

std::vector<fs::path> row_files(const fs::path& path, RowSplit split) {
  const bool is_train = split == RowSplit::kTrain;
  std::error_code absent;
  if (!fs::is_directory(path, absent))
    return is_train ? std::vector{path} : std::vector<fs::path>();
  const std::vector<fs::path> all = files_in(path);
  const std::vector<std::string> others =
      all.empty() ? other_names_in(path) : std::vector<std::string>();
  if (all.empty())
    throw MissingInput(
        concat(path.string(), ": is a folder without .jsonl, .json, .csv or .parquet files",
               others.empty() ? "" : "; it has ", shown(others), folders_with_rows(path)));
  const auto count = std::ranges::count(all, RowSplit::kTrain, split_of);
  if (count == 0) return is_train ? all : std::vector<fs::path>();
  std::vector<fs::path> files;
  std::ranges::copy_if(all, std::back_inserter(files),
                       [&](const fs::path& file) { return split_of(file) == split; });
  return files;
}

std::string unread_files_note(const fs::path& path, std::initializer_list<RowSplit> read) {
  std::vector<std::string> names;
  for (const RowSplit split : {RowSplit::kTrain, RowSplit::kValidation, RowSplit::kTest}) {
    if (std::ranges::count(read, split) > 0) continue;
    for (const fs::path& file : row_files(path, split)) names.push_back(file.filename().string());
  }
  const std::vector<std::string> others =
      fs::is_directory(path) ? other_names_in(path) : std::vector<std::string>();
  std::string told;
  if (!names.empty())
    told = concat("skipped ", shown(std::move(names)),
                  ", because their names belong to another split; give the files that you want, or "
                  "rename them");
  if (!others.empty())
    told += concat(told.empty() ? "" : "; ", "skipped ", shown(others),
                   "; only .jsonl, .json, .csv and .parquet files have rows");
  return told;
}

std::string mixed_splits_warning(const std::vector<fs::path>& files) {
  std::set<fs::path> with_training;
  std::vector<std::string> others;
  for (const fs::path& file : files)
    if (named_split(file) == RowSplit::kTrain) with_training.insert(file.parent_path());
  for (const fs::path& file : files)
    if (split_of(file) != RowSplit::kTrain && with_training.contains(file.parent_path()))
      others.push_back(file.filename().string());
  if (others.empty()) return "";
  return concat("reads ", shown(std::move(others)),
                " with the training files, although their names belong to another split; give the "
                "files that you want");
}

const json::value* value_in_row(const json::object& row, std::string_view name) {
  const json::value* value = row.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::filesystem::path folder_of_rows(const std::filesystem::path& rows) {
  constexpr std::size_t kLongestPath = 1 << 12;
  const std::filesystem::path named = rows.string() + kFolderOfRows;
  return std::filesystem::exists(named) ? std::filesystem::path(read_file(named, kLongestPath))
                                        : rows.parent_path();
}

FilePart FilesInRows::file(const json::object& row, std::string_view name,
                           const RowFileWords& words, const std::filesystem::path& folder,
                           const std::string& place) {
  const json::value* value = value_in_row(row, name);
  if (value == nullptr) throw DataError(concat("it has no \"", name, "\"; ", words.wanted));
  const json::value* bytes = value->is_string() && is_binary(value->get_string()) ? value : nullptr;
  std::string called = place;
  if (value->is_object()) {
    const json::object& object = value->get_object();
    bytes = value_in_row(object, "bytes");
    value = value_in_row(object, "path");
    if (bytes != nullptr && bytes->is_string() && bytes->get_string().empty()) bytes = nullptr;
    if (bytes != nullptr && !(bytes->is_string() && is_binary(bytes->get_string())))
      throw DataError(concat("\"", name, "\" ", words.holds));
    if (bytes == nullptr && value == nullptr)
      throw DataError(concat("\"", name, "\" has no \"path\"; ", words.wanted));
    if (bytes != nullptr && value != nullptr && value->is_string())
      called = concat(std::string_view(value->get_string()), " in ", place);
  }
  if (bytes != nullptr) {
    if (!held_) held_.emplace();
    return held_->add(bytes->get_string(), called);
  }
  if (!value->is_string() || value->get_string().empty())
    throw DataError(concat("\"", name, "\" is not the path of ", words.file, "; ", words.wanted));
  return folder / std::string(value->get_string());
}

}  // namespace hybrid_trainer
