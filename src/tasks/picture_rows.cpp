#include "src/tasks/picture_rows.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cmath>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/checksum.h"
#include "hybrid_trainer/tables/file_in_row.h"
#include "hybrid_trainer/tables/row_files.h"
#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr const char* kWantedPicture = R"(want {"image": "a.png", "label": "cat"})";
const std::vector<std::string> kPictureKeys{"image", "label", "file_name"};

constexpr RowFileWords kWords{
    .holds = "holds the picture as text; write it to a PNG or JPEG file and give its path",
    .file = "a picture",
    .wanted = kWantedPicture};

PictureLabel label_in(const json::object& row) {
  constexpr std::int64_t kMostClasses = 1 << 20;
  const json::value* value = value_in_row(row, "label");
  if (value == nullptr) throw DataError(concat("it has no \"label\"; ", kWantedPicture));
  if (value->is_string()) {
    const std::string text(value->get_string());
    if (text.find_first_not_of(" \t\r\n") == text.npos)
      throw DataError("\"label\" is empty; write what the picture shows");
    return {.text = text};
  }
  // A column of numbers in which some were missing is written as 0.0, 1.0.
  const double number = value->is_number() ? value->to_number<double>() : -1;
  if (number >= 0 && number < kMostClasses && number == std::floor(number)) {
    const auto whole = static_cast<std::int64_t>(number);
    return {.text = std::to_string(whole), .number = whole};
  }
  throw DataError(concat("\"label\" is ", json_line(*value).substr(0, 60),
                         "; want the name of a class, or its number, from 0 on"));
}

namespace fs = std::filesystem;

/// By its ending: also of kinds that are not read, so that they are refused by name.
bool has_name_of_picture(const fs::path& path) {
  static constexpr std::string_view kEndings[] = {".png",  ".jpg", ".jpeg", ".npy",  ".gif", ".bmp",
                                                  ".webp", ".tif", ".tiff", ".heic", ".avif"};
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kEndings, std::string_view(ending)) != std::end(kEndings) &&
         !path.filename().string().starts_with('.');
}

/// Of a folder and those in it that are not hidden, in order of their names.
std::vector<fs::path> pictures_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');
    if (is_hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (has_name_of_picture(entry->path()) && entry->is_regular_file())
      files.push_back(entry->path());
  }
  std::ranges::sort(files);
  return files;
}

bool holds_picture(const fs::path& folder) { return !pictures_in(folder).empty(); }

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && !entry.path().filename().string().starts_with('.'))
      folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

/// Throws DataError if the folders are parts of a data set, whose folders are the classes.
void refuse_parts(const fs::path& folder, const std::vector<fs::path>& folders) {
  static constexpr std::string_view kParts[] = {"train",      "training", "val", "valid",
                                                "validation", "test",     "dev"};
  const auto is_part = [&](const fs::path& one) {
    return std::ranges::find(kParts, one.filename().string()) != std::end(kParts);
  };
  if (!std::ranges::all_of(folders, is_part)) return;
  const auto train = std::ranges::find_if(
      folders, [](const fs::path& one) { return one.filename().string().starts_with("train"); });
  throw DataError(
      concat(folder.string(), ": its folders are parts of a data set, not classes; give ",
             "one as --data ", shell_path(train == folders.end() ? folders.front() : *train),
             folders.size() > 1 ? " and another one as --validation" : ""));
}

/// Reads files of pictures' rows one behind the other.
class PictureReader {
 public:
  PictureReader(const ColumnNames& columns, const std::function<void(const FilePart&)>& check)
      : columns_(columns), check_(check) {}

  void read(const std::filesystem::path& path) {
    read_.files.push_back({path, {}});
    const TableVisitor visitor{
        [&](std::int64_t line, const json::object& row, const WideIntegers&) {
          add_or_refuse(line, [&] { return picture_in(line, row); });
        },
        [&](std::int64_t line, const std::string& reason) { refuse(line, reason); }};
    read_.files.back().form = visit_rows(
        path, {.columns = columns_, .wanted = kPictureKeys, .takes_bytes = true}, visitor);
    read_.checksum += checksum_of_file(path);
  }

  void read_classes(const fs::path& folder) {
    read_.files.push_back({folder, {.container = RowContainer::kCsv}});
    const std::vector<fs::path> classes = folders_in(folder);
    refuse_parts(folder, classes);
    std::string names;
    std::int64_t row = 0;
    for (const fs::path& one : classes)
      for (const fs::path& file : pictures_in(one)) {
        names += concat(file.lexically_relative(folder).string(), " ", fs::file_size(file), "\n");
        ++row;
        add_or_refuse(row, [&] {
          return PictureRow{
              .picture = file, .label = {.text = one.filename().string()}, .line = row};
        });
      }
    read_.checksum += checksum_of(names);
  }

  PictureRows take() {
    if (!unread_.empty())
      warn(read_.files.front().path.string(), concat("these keys of pictures have no effect here: ",
                                                     join({unread_.begin(), unread_.end()})));
    return std::move(read_);
  }

 private:
  template <class Make>
  void add_or_refuse(std::int64_t line, const Make& make) {
    try {
      PictureRow picture = make();
      check_(picture.picture);
      read_.rows.push_back(std::move(picture));
    } catch (const DataError& error) {
      refuse(line, error.what());
    } catch (const MissingInput& error) {
      refuse(line, error.what());
    }
  }

  PictureRow picture_in(std::int64_t line, const json::object& row) {
    for (const auto& member : row)
      if (std::ranges::find(kPictureKeys, std::string_view(member.key())) == kPictureKeys.end())
        unread_.insert(concat('"', std::string_view(member.key()), '"'));
    const fs::path& file = read_.files.back().path;
    const char* key = value_in_row(row, "image") == nullptr && value_in_row(row, "file_name")
                          ? "file_name"
                          : "image";
    return {.picture = pictures_.file(row, key, kWords, folder_of_rows(file),
                                      concat("row ", line, " of ", file.string())),
            .label = label_in(row),
            .file = read_.files.size() - 1,
            .line = line};
  }

  /// A file that is something else is not read to its end.
  void refuse(std::int64_t line, const std::string& reason) {
    constexpr std::size_t kManyRefused = 1000;
    read_.refuse(read_.files.size() - 1, line, reason);
    if (!read_.rows.empty() || read_.refused.size() < kManyRefused) return;
    throw DataError(concat(read_.files.back().path.string(), ": none of its first ", kManyRefused,
                           " rows can be used; ", read_.refused.front()));
  }

  const ColumnNames& columns_;
  const std::function<void(const FilePart&)>& check_;
  PictureRows read_;
  FilesInRows pictures_;
  std::set<std::string> unread_;
};

}  // namespace

std::string PictureRows::place(std::size_t file, std::int64_t line) const {
  return concat(files.at(file).form.unit(), " ", line, " of ", files.at(file).path.string());
}

bool is_folder_of_classes(const std::filesystem::path& path) {
  std::error_code unreadable;
  if (!fs::is_directory(path, unreadable) || is_folder_of_rows(path)) return false;
  return std::ranges::any_of(folders_in(path), holds_picture);
}

PictureRows read_picture_rows(const std::filesystem::path& path, const ColumnNames& columns,
                              const std::function<void(const FilePart&)>& check) {
  PictureReader reader(columns, check);
  if (is_folder_of_classes(path)) {
    reader.read_classes(path);
  } else {
    for (const std::filesystem::path& file : row_files(path)) reader.read(file);
    const std::string others = told_of_other_files(path, {RowSplit::kTrain});
    if (!others.empty()) warn(path.string(), others);
  }
  PictureRows read = reader.take();
  if (read.rows.empty() && read.refused.empty())
    throw DataError(path.string() + ": holds no pictures");
  return read;
}

}  // namespace hybrid_trainer
