#include "src/observability/console_sink.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "src/core/messages.h"
#include "src/files/escaped_text.h"
#include "src/observability/watch/terminal_drawing.h"

namespace hybrid_trainer {

namespace {

constexpr double kSecondsBetweenRewrites = 0.1;
constexpr double kSecondsBetweenLines = 5;
constexpr double kSecondsBetweenEvents = 5;
constexpr std::size_t kPhaseWidth = 7;

}  // namespace

ConsoleStyle ConsoleStyle::for_stderr(bool quiet) {
  ConsoleStyle style{.rewrites = is_drawing_terminal(STDERR_FILENO),
                     .colors = is_color_terminal(STDERR_FILENO),
                     .quiet = quiet};
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.columns = size.ws_col;
  return style;
}

ConsoleSink::ConsoleSink(std::ostream& out, std::int64_t total_steps, ConsoleStyle style)
    : out_(out), total_steps_(total_steps), style_(style) {}

void ConsoleSink::write(const StepRecord& record) {
  const double seconds = record.seconds + record.overhead_seconds;
  clock_ += seconds;
  ++steps_;
  const double weight = 1.0 / static_cast<double>(std::min(steps_, kStepsOfMean));
  seconds_per_step_ += weight * (seconds - seconds_per_step_);
  if (style_.quiet) return;
  show_event(record);
  const double interval = style_.rewrites ? kSecondsBetweenRewrites : kSecondsBetweenLines;
  if (clock_ - last_progress_ < interval && record.step != total_steps_) return;
  last_progress_ = clock_;
  show_progress(record);
}

void ConsoleSink::report(const std::string& text) {
  print_line(style_.rewrites ? printable(text) : text);
}

void ConsoleSink::finish() {
  if (!progress_.empty()) out_ << '\n';
  progress_.clear();
  out_.flush();
}

std::string ConsoleSink::progress_text(const StepRecord& record) const {
  const double left = seconds_per_step_ *
                      static_cast<double>(std::max<std::int64_t>(0, total_steps_ - record.step));
  std::string text = concat("step ", record.step, "/", total_steps_);
  text += concat("  loss ", units::fixed(record.loss, 4));
  text += concat("  ", units::count(record.tokens_per_second), " ", record.unit(), "/s");
  text += record.step < total_steps_ ? concat("  ", units::duration(left), " left") : "  done";
  text += concat("  ", units::bytes(record.device_memory.peak_total));
  if (record.host_memory.live_total > 0)
    text += concat(" + ", units::bytes(record.host_memory.live_total), " host");
  if (record.slowest_rank_ratio)
    text += concat("  rank ", record.slowest_rank, " ", units::fixed(*record.slowest_rank_ratio, 1),
                   "x as long");
  return text;
}

std::string ConsoleSink::colored(Phase phase, const std::string& text) const {
  if (!style_.colors) return text;
  return concat("\x1b[", color_of(phase), "m", text, "\x1b[0m");
}

void ConsoleSink::show_progress(const StepRecord& record) {
  std::string phase = name_of(record.phase);
  phase.resize(kPhaseWidth, ' ');
  std::string text = concat(' ', progress_text(record));
  if (!style_.rewrites) {
    print(concat(colored(record.phase, phase), text, "\n"));
    return;
  }
  const auto room = static_cast<std::size_t>(std::max(style_.columns - 1, 1));
  text.resize(std::min(text.size(), room - std::min(room, phase.size())));
  phase.resize(std::min(phase.size(), room));
  const std::size_t length = phase.size() + text.size();
  const std::size_t rest = progress_.size() > length ? progress_.size() - length : 0;
  print(concat("\r", colored(record.phase, phase), text, std::string(rest, ' ')));
  progress_ = phase + text;
}

static std::string preference_text(const StepRecord& record) {
  if (!record.validation_preference_accuracy) return "";
  return concat(", preference accuracy ",
                units::fixed(100 * *record.validation_preference_accuracy, 1), " %, margin ",
                brief(record.validation_reward_margin.value_or(0)));
}

void ConsoleSink::show_event(const StepRecord& record) {
  const std::string phase = colored(record.phase, name_of(record.phase));
  bool& seen = seen_[static_cast<std::size_t>(record.phase)];
  if (!seen) print_line(concat("phase ", phase, " from step ", record.step));
  seen = true;
  if (record.validation_loss) {
    const std::optional<double>& average = record.average_validation_loss;
    print_line(concat(
        "step ", record.step, ": validation loss ", units::fixed(*record.validation_loss, 4),
        average ? ", averaged weights " + units::fixed(*average, 4) : "", preference_text(record)));
  }
  if (record.event.empty()) return;
  const bool decides = record.decision != Decision::kNone;  // always shown
  if (!decides && clock_ - last_event_ < kSecondsBetweenEvents) {
    ++hidden_events_;
    return;
  }
  const std::string more = hidden_events_ > 0 ? concat(" (and ", hidden_events_, " earlier)") : "";
  const std::string event = style_.rewrites ? printable(record.event) : record.event;
  print_line(concat("step ", record.step, ": ", phase, " ", event, more));
  last_event_ = clock_;
  hidden_events_ = 0;
}

void ConsoleSink::print_line(const std::string& text) {
  erase_progress();
  print(text + "\n");
}

void ConsoleSink::erase_progress() {
  if (progress_.empty()) return;
  print(concat("\r", std::string(progress_.size(), ' '), "\r"));
  progress_.clear();
}

/// Prints text that may contain the console's own colors and carriage returns.
void ConsoleSink::print(const std::string& text) {
  if (style_.rewrites) {
    print_trusted(out_, text);
  } else {
    out_ << text;
  }
  out_ << std::flush;
}

}  // namespace hybrid_trainer
