#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/core/process.h"

namespace hybrid_trainer {

/// A file with the contents of standard input, readable only by its owner. A second file names the
/// current folder, which paths in rows are relative to (folder_of_rows). The destructor and signals
/// that end the process remove both files, unless they are kept.
class StandardInput {
 public:
  /// Name of standard input on the command line and in messages.
  static constexpr const char* kOption = "-";
  static constexpr const char* kCalled = "standard input";

  /// Reads standard input to its end into a new file: `stem` plus .parquet, .json, .jsonl or .csv,
  /// depending on its first bytes. Throws UsageError if standard input is a terminal, DataError if
  /// it is empty, CannotCreate, IoError.
  explicit StandardInput(const std::filesystem::path& stem);
  /// Uses the system's folder for temporary files.
  StandardInput();
  ~StandardInput();
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Disables the removal by signals.
  void keep_on_signals() {
    removed_on_signals_.reset();
    folder_removed_on_signals_.reset();
  }
  void keep() { is_kept_ = true; }

 private:
  std::filesystem::path path_;
  std::optional<TemporaryPath> removed_on_signals_, folder_removed_on_signals_;
  bool is_kept_ = false;
};

/// Examples of a fine-tuning run. Stores examples from standard input in the run's folder, so that
/// the run can be resumed, and removes them if no run is created. If a start is killed, its file
/// remains. With `resumes`, the next start uses this file without reading standard input; otherwise
/// it refuses different input.
class StoredExamples {
 public:
  /// `data`: the option --data. Throws UsageError for standard input under a launcher, CannotCreate
  /// if the folder has a run that is not resumed or other examples; otherwise as StandardInput.
  StoredExamples(const std::string& run, const std::string& data, bool resumes);
  ~StoredExamples();
  StoredExamples(const StoredExamples&) = delete;
  StoredExamples& operator=(const StoredExamples&) = delete;

  /// Returns the file or folder of the examples, or "" if the run resumes with its own data.
  const std::string& data() const { return data_; }
  /// Replaces standard input by the file in the arguments, for processes that cannot read it again.
  std::vector<std::string> in_place_of_input(std::vector<std::string> arguments) const;

 private:
  void reuse_leftover(const std::string& left, bool resumes);
  void read_input();

  std::string run_, data_;
  bool makes_folder_ = false, is_from_input_ = false;
  std::optional<StandardInput> input_;
};

}  // namespace hybrid_trainer
