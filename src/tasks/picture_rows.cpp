#include "src/tasks/picture_rows.h"

#include <boost/json.hpp>
#include <cctype>
#include <charconv>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/tables/row_files.h"
#include "src/files/checksum.h"
#include "src/files/json.h"
#include "src/files/text.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kWantedPicture = R"(want {"image": "a.png", "label": "cat"})";
const std::vector<std::string> kPictureKeys{"image", "label", "file_name"};

constexpr RowFileWords kWords{
    .holds = "contains the picture as text; write it to a PNG or JPEG file and give its path",
    .file = "a picture",
    .wanted = kWantedPicture};

PictureLabel label_in(const json::object& row) {
  constexpr std::int64_t kMaxClasses = 1 << 20;
  const json::value* value = value_in_row(row, "label");
  if (value == nullptr) throw DataError(concat("no \"label\"; ", kWantedPicture));
  if (value->is_string()) {
    const std::string text(value->get_string());
    if (text.find_first_not_of(" \t\r\n") == text.npos)
      throw DataError("\"label\" is empty; want the class of the picture");
    return {.text = text};
  }
  // Numeric columns with missing values are written as 0.0, 1.0.
  const double number = value->is_number() ? value->to_number<double>() : -1;
  if (number >= 0 && number < kMaxClasses && number == std::floor(number)) {
    const auto whole = static_cast<std::int64_t>(number);
    return {.text = std::to_string(whole), .number = whole};
  }
  throw DataError(concat("\"label\" is ", json_line(*value).substr(0, 60),
                         "; want the name of a class, or its number, counted from 0"));
}

namespace fs = std::filesystem;

/// Returns whether a file has the name of an image, also of an unsupported format.
bool has_name_of_picture(const fs::path& path) {
  static constexpr std::string_view kEndings[] = {".png",  ".jpg", ".jpeg", ".npy",  ".gif", ".bmp",
                                                  ".webp", ".tif", ".tiff", ".heic", ".avif"};
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kEndings, std::string_view(ending)) != std::end(kEndings) &&
         !path.filename().string().starts_with('.');
}

/// Returns the images in a folder and its subfolders, without hidden ones, sorted by name.
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

/// Throws DataError if the folders are splits of a data set, which contain the class folders.
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

void read_classes(const fs::path& folder, const std::function<void(const FilePart&)>& check,
                  PictureRows& read) {
  read.files.push_back({folder, {.container = RowContainer::kCsv}});
  const std::vector<fs::path> classes = folders_in(folder);
  refuse_parts(folder, classes);
  std::string names;
  std::int64_t row = 0;
  for (const fs::path& one : classes)
    for (const fs::path& file : pictures_in(one)) {
      names += concat(file.lexically_relative(folder).string(), " ", fs::file_size(file), "\n");
      ++row;
      try {
        check(file);
        read.rows.push_back(
            {.picture = file, .label = {.text = one.filename().string()}, .line = row});
      } catch (const DataError& error) {
        read.refused.push_back({row, error.what()});
      } catch (const MissingInput& error) {
        read.refused.push_back({row, error.what()});
      }
    }
  read.checksum = checksum_of(names);
}

std::string names_of_classes(const std::vector<ClassLabel>& classes) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const ClassLabel& one : classes) {
    if (names.size() == kShown) break;
    names.push_back(one.name);
  }
  return concat(join(names),
                classes.size() > kShown ? concat(" and ", classes.size() - kShown, " more") : "");
}

/// Parses a label as a number in a table's notation: "7", but not "07", which is a different label.
std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  if (text.size() > 1 && text.front() == '0') return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) return {};
  return number;
}

}  // namespace

bool is_folder_of_classes(const std::filesystem::path& path) {
  std::error_code unreadable;
  if (!fs::is_directory(path, unreadable) || is_folder_of_rows(path)) return false;
  return std::ranges::any_of(folders_in(path), holds_picture);
}

PictureRows read_picture_rows(const std::filesystem::path& path, const ColumnNames& columns,
                              const std::function<void(const FilePart&)>& check,
                              bool needs_labels) {
  PictureRows read;
  if (is_folder_of_classes(path)) {
    read_classes(path, check, read);
    return read;
  }
  FilesInRows pictures;
  const auto use = [&](const GivenRow& row) {
    const bool is_named_file = value_in_row(row.object, "image") == nullptr &&
                               value_in_row(row.object, "file_name") != nullptr;
    PictureRow picture{
        .picture = file_in_row(pictures, row, is_named_file ? "file_name" : "image", kWords, read),
        .label = needs_labels ? label_in(row.object) : PictureLabel(),
        .file = row.file,
        .line = row.line};
    check(picture.picture);
    read.rows.push_back(std::move(picture));
  };
  read_rows({path, columns},
            {.rows = "pictures", .keys = kPictureKeys, .allows_bytes = true, .use = use}, read);
  for (const RowFile& file : read.files) read.checksum += checksum_of_file(file.path);
  const std::string others = unread_files_note(path, {RowSplit::kTrain});
  if (!others.empty()) warn(path.string(), others);
  return read;
}

std::optional<std::int64_t> number_of(const PictureLabel& label) {
  return label.number ? label.number : number_in(label.text);
}

bool is_named(const PictureLabel& label, const std::vector<ClassLabel>& classes) {
  const auto has = [&](const std::string& name) {
    return std::ranges::find(classes, name, &ClassLabel::name) != classes.end();
  };
  const std::optional<std::int64_t> number = number_of(label);
  if (has(label.text)) return true;
  if (!number || *number >= std::ssize(classes)) return false;
  const std::string& name = classes[static_cast<std::size_t>(*number)].name;
  return name == concat("LABEL_", *number) ||
         std::ranges::count(classes, name, &ClassLabel::name) > 1;
}

std::string similar_classes_warning(const std::vector<ClassLabel>& classes) {
  std::map<std::string, std::string> seen;  // names by their normalized form
  for (const ClassLabel& one : classes) {
    std::string left = in_unicode_form(one.name, UnicodeForm::kC);
    std::erase_if(left, [](unsigned char c) { return std::isspace(c) != 0; });
    std::ranges::transform(left, left.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::size_t digits = left.find_first_not_of('0');
    if (digits != left.npos && left.find_first_not_of("0123456789") == left.npos)
      left = left.substr(digits);
    const auto [other, is_new] = seen.emplace(left, one.name);
    if (!is_new)
      return concat("the labels \"", other->second, "\" and \"", one.name,
                    "\" are two classes; use one spelling if they mean the same");
  }
  return "";
}

std::int32_t class_of(const PictureLabel& label, const std::vector<ClassLabel>& classes) {
  std::optional<std::int64_t> found = label.number;
  if (!found) {
    const auto named = std::ranges::find(classes, label.text, &ClassLabel::name);
    if (named != classes.end()) {
      const auto other = std::ranges::find(named + 1, classes.end(), label.text, &ClassLabel::name);
      if (other != classes.end())
        throw DataError(concat("the label ", label.text, " is the name of the classes ",
                               named - classes.begin(), " and ", other - classes.begin(),
                               "; use their numbers instead"));
      return static_cast<std::int32_t>(named - classes.begin());
    }
    found = number_in(label.text);
  }
  if (found && *found < std::ssize(classes)) return static_cast<std::int32_t>(*found);
  throw DataError(concat("the label ", label.text,
                         " is not one of the model's classes: ", names_of_classes(classes)));
}

std::vector<ClassLabel> classes_in(const std::vector<PictureRow>& rows) {
  std::set<std::string> names;
  std::int64_t largest = -1;
  bool all_are_numbers = true;
  for (const PictureRow& row : rows) {
    const auto number = number_of(row.label);
    all_are_numbers = all_are_numbers && number;
    if (number) largest = std::max(largest, *number);
    names.insert(row.label.text);
  }
  std::vector<ClassLabel> classes;
  if (all_are_numbers) {
    constexpr std::int64_t kMaxClasses = 1 << 16;
    if (largest >= kMaxClasses)
      throw DataError(
          concat("the largest label is ", largest, "; want numbers below ", kMaxClasses));
    for (std::int64_t i = 0; i <= largest; ++i) classes.push_back({concat("LABEL_", i)});
  } else {
    const auto number =
        std::ranges::find_if(rows, [](auto& row) { return row.label.number.has_value(); });
    if (number != rows.end())
      throw DataError(concat("some labels are names and others numbers, such as ",
                             *number->label.number, "; want one or the other"));
    for (const std::string& name : names) classes.push_back({name});
  }
  if (classes.size() < 2)
    throw DataError(concat("all pictures have the label ", rows.front().label.text,
                           "; want two classes or more"));
  return classes;
}

}  // namespace hybrid_trainer
