#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "hybrid_trainer/compare/comparison_result.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/observability/console_sink.h"

namespace hybrid_trainer {

/// One progress line: run of all runs, arm, budget, seed, swept value, step, loss, time left; and a
/// line for each run that ended. The time left is by the steps that this process has done.
class ComparisonProgress {
 public:
  /// `out` outlives the object. All runs together take `steps` steps.
  ComparisonProgress(std::ostream& out, std::int64_t runs, std::int64_t steps, ConsoleStyle style)
      : out_(out), runs_(runs), steps_left_(steps), style_(style) {}
  void begin(const std::string& arm, const RunPoint& point);
  void step(std::int64_t step, double loss);
  /// `ran`: it was not finished before.
  void end(const RunOutcome& outcome, bool ran);
  void skip(std::int64_t runs, std::int64_t steps);
  void tell(const std::string& text);

 private:
  void erase();
  std::string left(std::int64_t steps) const;
  std::ostream& out_;
  std::int64_t runs_, steps_left_;
  ConsoleStyle style_;
  Clock::time_point began_ = Clock::now(), last_shown_ = began_;
  std::int64_t ended_ = 0, steps_done_ = 0;
  double seconds_ = 0;  // of runs that ended
  Clock::time_point run_began_ = began_;
  std::int64_t first_step_ = 0;  // of this run here, 0 before it
  RunPoint point_;
  std::string label_;
  std::size_t shown_ = 0;  // columns of the terminal's line
};

}  // namespace hybrid_trainer
