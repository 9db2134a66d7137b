#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/corpus.h"
#include "hybrid_trainer/files/output_file.h"

namespace hybrid_trainer {

/// Texts of the rows of tables: each is a document. They are written to one file, from which they are
/// read as often as needed, since a table is compressed.
class TableTexts {
 public:
  struct Settings {
    std::string column = "text";
    bool is_asked = false;  // the user named the column, so that each table must have it
    /// Makes the file's folder, once there is a table, and gives the file's path.
    std::function<std::filesystem::path()> place;
  };
  /// Rows without a text.
  struct LeftOut {
    std::int64_t rows = 0;
    std::string first;  // "row 3 of t.csv: why"
  };
  explicit TableTexts(Settings settings) : settings_(std::move(settings)) {}

  /// Adds the rows of a file; those without a text are left out. False where the name is none of a
  /// table's, or where a .json or .csv file has no such column and none was asked for: then it is text
  /// itself. Throws DataError where it is damaged or lacks the column, IoError.
  bool add(const std::filesystem::path& path, std::vector<TextPiece>& documents);
  /// Whether the file is the one that the texts are written to.
  bool is_own(const std::filesystem::path& path) const {
    return place_ && std::filesystem::equivalent(path, *place_);
  }
  /// Writes out what was added.
  void finish();
  /// Removes the file.
  void remove();
  const LeftOut& left_out() const { return left_out_; }

 private:
  void add_text(std::string_view text, TextPiece piece, std::vector<TextPiece>& documents);

  Settings settings_;
  std::shared_ptr<const std::filesystem::path> place_;
  std::optional<OutputFile> file_;
  std::string buffer_;
  std::int64_t bytes_ = 0;
  LeftOut left_out_;
};

}  // namespace hybrid_trainer
