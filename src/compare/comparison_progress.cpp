#include "src/compare/comparison_progress.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/terminal_text.h"

namespace hybrid_trainer {
namespace {

constexpr double kSecondsBetweenLooks = 0.2, kSecondsBetweenNewLines = 10;

}  // namespace

/// After `done` steps of the current run.
std::string ComparisonProgress::left(std::int64_t done) const {
  const std::int64_t here = first_step_ > 0 ? done - first_step_ + 1 : 0;
  const std::int64_t steps = steps_done_ + here;
  const double seconds = seconds_ + (here > 0 ? seconds_since(run_began_) : 0);
  if (steps == 0) return "";
  const double each = seconds / static_cast<double>(steps);
  return concat("  ", units::duration(each * static_cast<double>(steps_left_ - done)), " left");
}

void ComparisonProgress::begin(const std::string& arm, const RunPoint& point) {
  point_ = point;
  first_step_ = 0;
  run_began_ = Clock::now();
  label_ = concat("run ", ended_ + 1, "/", runs_, "  ", arm, "  ", units::grouped(point.steps),
                  " steps  seed ", point.seed);
  if (point.value) label_ += "  at " + brief(*point.value);
}

void ComparisonProgress::step(std::int64_t step, double loss) {
  if (first_step_ == 0) first_step_ = step;
  if (style_.quiet) return;
  const double interval = style_.rewrites ? kSecondsBetweenLooks : kSecondsBetweenNewLines;
  if (seconds_since(last_shown_) < interval) return;
  last_shown_ = Clock::now();
  std::string text = concat(label_, "  step ", step, "  loss ", units::fixed(loss, 4), left(step));
  if (!style_.rewrites) {
    out_ << text << std::endl;
    return;
  }
  text.resize(std::min<std::size_t>(text.size(), static_cast<std::size_t>(style_.columns - 1)));
  erase();
  out_ << text << std::flush;
  shown_ = text.size();
}

void ComparisonProgress::end(const RunOutcome& outcome, bool ran) {
  ++ended_;
  steps_left_ -= point_.steps;
  if (ran) {
    steps_done_ += first_step_ > 0 ? point_.steps - first_step_ + 1 : point_.steps;
    seconds_ += seconds_since(run_began_);
  }
  first_step_ = 0;
  if (style_.quiet) return;
  tell(concat(label_,
              outcome.loss ? "  validation loss " + units::fixed(*outcome.loss, 4)
                           : "  failed: " + outcome.failure,
              ran ? concat("  ", units::duration(seconds_since(run_began_))) : "  was finished",
              ended_ < runs_ ? left(0) : ""));
}

void ComparisonProgress::skip(std::int64_t runs, std::int64_t steps) {
  ended_ += runs;
  steps_left_ -= steps;
}

void ComparisonProgress::tell(const std::string& text) {
  erase();
  out_ << text << std::endl;
}

void ComparisonProgress::erase() {
  if (shown_ > 0) print_trusted(out_, concat("\r", std::string(shown_, ' '), "\r"));
  shown_ = 0;
}

}  // namespace hybrid_trainer
