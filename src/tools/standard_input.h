#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/core/process.h"

namespace hybrid_trainer {

/// A file with the contents of standard input, which only its owner can read. A second file names
/// the current folder, to which paths in rows are relative (folder_of_rows). The destructor, and
/// signals that end the process, remove both files unless they are kept.
class StandardInput {
 public:
  /// Name of standard input on the command line and in messages.
  static constexpr const char* kOption = "-";
  static constexpr const char* kCalled = "standard input";

  /// Copies standard input to `stem` plus .parquet, .json, .jsonl or .csv, by the first bytes.
  /// Throws UsageError for a terminal, DataError if it is empty, CannotCreate and IoError.
  explicit StandardInput(const std::filesystem::path& stem);
  /// Creates the file in the system's folder for temporary files.
  StandardInput();
  ~StandardInput();
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Keeps the files if a signal ends the process.
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
/// the run can be resumed. Removes them if no run is created. If the process is killed before that,
/// the file remains. If `resumes` is set, the next start uses this file and does not read standard
/// input; otherwise it rejects different input.
class StoredExamples {
 public:
  /// Throws UsageError for standard input under a launcher, and CannotCreate if the folder has
  /// other examples or a run that is not resumed. Also throws like StandardInput.
  StoredExamples(const std::string& run, const std::string& data, bool resumes);
  ~StoredExamples();
  StoredExamples(const StoredExamples&) = delete;
  StoredExamples& operator=(const StoredExamples&) = delete;

  /// Returns the file or folder of the examples, or "" if the run resumes with its own data.
  const std::string& data() const { return data_; }
  /// Returns the arguments with the file in place of standard input, which can be read only once.
  std::vector<std::string> in_place_of_input(std::vector<std::string> arguments) const;

 private:
  void reuse_leftover(const std::string& left, bool resumes);
  void read_input();

  std::string run_, data_;
  bool makes_folder_ = false, is_from_input_ = false;
  std::optional<StandardInput> input_;
};

}  // namespace hybrid_trainer
