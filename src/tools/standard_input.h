#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hybrid_trainer/core/process_end.h"

namespace hybrid_trainer {

/// A file with the content of standard input, which its owner alone may read, and one beside it that names the
/// current folder, to which paths in rows are relative (folder_of_rows). The destructor and
/// signals that end the process remove it, unless it is kept.
class StandardInput {
 public:
  /// The name of standard input on a command line, and in messages.
  static constexpr const char* kOption = "-";
  static constexpr const char* kCalled = "standard input";

  /// Reads standard input to its end into a new file: `stem` with .parquet, .json, .jsonl or .csv, as
  /// its first bytes tell. Throws UsageError where it is a terminal, DataError where it is empty,
  /// CannotCreate, IoError.
  explicit StandardInput(const std::filesystem::path& stem);
  /// In the folder for temporary files.
  StandardInput();
  ~StandardInput();
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Signals remove the file no more.
  void keep_at_signals() {
    removed_at_signals_.reset();
    folder_removed_at_signals_.reset();
  }
  void keep() { is_kept_ = true; }

 private:
  std::filesystem::path path_;
  std::optional<TemporaryPath> removed_at_signals_, folder_removed_at_signals_;
  bool is_kept_ = false;
};

}  // namespace hybrid_trainer
