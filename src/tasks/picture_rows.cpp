#include "src/tasks/picture_rows.h"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/tables/file_in_row.h"
#include "hybrid_trainer/tables/row_files.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr const char* kWantedPicture = R"(want {"image": "a.png", "label": "cat"})";
const std::vector<std::string> kPictureKeys{"image", "label", "file_name"};

std::string path_in(const json::object& row) {
  const bool has_other_name =
      value_in_row(row, "image") == nullptr && value_in_row(row, "file_name");
  return path_in_row(
      row, has_other_name ? "file_name" : "image",
      {.holds = "holds the picture itself; write it to a PNG or JPEG file and give its path",
       .file = "a picture",
       .wanted = kWantedPicture});
}

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
  if (value->is_int64() && value->get_int64() >= 0 && value->get_int64() < kMostClasses)
    return {.text = std::to_string(value->get_int64()), .number = value->get_int64()};
  throw DataError(concat("\"label\" is ", json::serialize(*value).substr(0, 60),
                         "; want the name of a class, or its number, from 0 on"));
}

/// Reads files of pictures' rows one behind the other.
class PictureReader {
 public:
  PictureReader(const ColumnNames& columns,
                const std::function<void(const std::filesystem::path&)>& check)
      : columns_(columns), check_(check) {}

  void read(const std::filesystem::path& path) {
    read_.files.push_back({path, {}});
    const TableVisitor visitor{
        [&](std::int64_t line, const json::object& row, const WideIntegers&) {
          try {
            add(line, row);
          } catch (const DataError& error) {
            refuse(line, error.what());
          } catch (const MissingInput& error) {
            refuse(line, error.what());
          }
        },
        [&](std::int64_t line, const std::string& reason) { refuse(line, reason); }};
    read_.files.back().form = visit_rows(path, {columns_, kPictureKeys, ""}, visitor);
  }

  PictureRows take() {
    if (!unread_.empty())
      warn(read_.files.front().path.string(), concat("these keys of pictures have no effect here: ",
                                                     join({unread_.begin(), unread_.end()})));
    return std::move(read_);
  }

 private:
  void add(std::int64_t line, const json::object& row) {
    for (const auto& member : row)
      if (std::ranges::find(kPictureKeys, std::string_view(member.key())) == kPictureKeys.end())
        unread_.insert(concat('"', std::string_view(member.key()), '"'));
    PictureRow picture{
        .path = path_in(row), .label = label_in(row), .file = read_.files.size() - 1, .line = line};
    picture.path = read_.files.back().path.parent_path() / picture.path;
    check_(picture.path);
    read_.rows.push_back(std::move(picture));
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
  const std::function<void(const std::filesystem::path&)>& check_;
  PictureRows read_;
  std::set<std::string> unread_;
};

}  // namespace

std::string PictureRows::place(std::size_t file, std::int64_t line) const {
  return concat(files.at(file).form.unit(), " ", line, " of ", files.at(file).path.string());
}

PictureRows read_picture_rows(const std::filesystem::path& path, const ColumnNames& columns,
                              const std::function<void(const std::filesystem::path&)>& check) {
  PictureReader reader(columns, check);
  for (const std::filesystem::path& file : row_files(path)) reader.read(file);
  const std::string others = told_of_other_files(path, {RowSplit::kTrain});
  if (!others.empty()) warn(path.string(), others);
  PictureRows read = reader.take();
  if (read.rows.empty() && read.refused.empty())
    throw DataError(path.string() + ": holds no pictures");
  return read;
}

}  // namespace hybrid_trainer
