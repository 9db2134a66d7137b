#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/tools/standard_input.h"

namespace hybrid_trainer {

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
