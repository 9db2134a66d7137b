#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/core/process.h"

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

/// The examples of a fine-tuning run. Those from standard input become a file of the run's folder, so
/// that the run can go on from it; where no run comes to be, nothing is left of them. A start that was
/// killed leaves its file: `resumes` takes that and reads no input, and input is refused that differs.
class KeptExamples {
 public:
  /// `data`: the option --data. Throws UsageError for standard input under a launcher, CannotCreate
  /// where the folder holds a run that is not to go on, or other examples, and what StandardInput
  /// throws.
  KeptExamples(const std::string& run, const std::string& data, bool resumes);
  ~KeptExamples();
  KeptExamples(const KeptExamples&) = delete;
  KeptExamples& operator=(const KeptExamples&) = delete;

  /// The file or folder; "" where a run goes on with its own.
  const std::string& data() const { return data_; }
  /// The arguments for processes that cannot read standard input again.
  std::vector<std::string> in_place_of_input(std::vector<std::string> arguments) const;

 private:
  void take_left_over(const std::string& left, bool resumes);
  void read_input();

  std::string run_, data_;
  bool makes_folder_ = false, is_of_input_ = false;
  std::optional<StandardInput> input_;
};

}  // namespace hybrid_trainer
