#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hybrid_trainer/files/input_file.h"

namespace boost::json {
class object;
class value;
}  // namespace boost::json

namespace hybrid_trainer {

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
