#pragma once

#include <array>
#include <iosfwd>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Style of the console; for_stderr reads it from standard error and NO_COLOR.
struct ConsoleStyle {
  bool rewrites = false;  // rewrites one line with \r; otherwise prints a line every few seconds
  bool colors = false;
  int columns = 100;
  bool quiet = false;  // prints no progress, only messages
  static ConsoleStyle for_stderr(bool quiet);
};

/// Prints a progress line, and separate lines for a phase's first entry, validations, events (at
/// most one in five seconds) and messages. Time is the sum of the records' seconds.
class ConsoleSink {
 public:
  /// `out` must outlive the sink. `total_steps` is the last step of the run.
  ConsoleSink(std::ostream& out, std::int64_t total_steps, ConsoleStyle style);
  void write(const StepRecord& record);
  void report(const std::string& text);
  void finish();

 private:
  std::string progress_text(const StepRecord& record) const;
  std::string colored(Phase phase, const std::string& text) const;
  void show_progress(const StepRecord& record);
  void show_event(const StepRecord& record);
  void print_line(const std::string& text);
  void print(const std::string& text);
  void erase_progress();

  std::ostream& out_;
  std::int64_t total_steps_;
  ConsoleStyle style_;
  std::array<bool, kPhases> seen_{};
  double clock_ = 0;                // sum of the records' seconds
  double last_progress_ = -1e9;     // value of clock_ at the last progress line
  double last_event_ = -1e9;        // value of clock_ at the last event
  double seconds_per_step_ = 0;     // running mean
  std::int64_t steps_ = 0;          // number of steps written by this sink
  std::int64_t hidden_events_ = 0;  // number of events hidden since the last displayed event
  std::string progress_;            // current text of the terminal's line, without colors
};

}  // namespace hybrid_trainer
