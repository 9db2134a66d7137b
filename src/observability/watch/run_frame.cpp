#include <algorithm>
#include <cmath>
#include <functional>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/observability/watch/terminal_drawing.h"
#include "src/observability/watch/terminal_view.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLabelColumns = 9;  // columns to the left of the plot
constexpr std::size_t kMinPlotRows = 5;
constexpr std::size_t kShownDecisions = 5;

/// Returns a bar such as "██████▌   ", with a resolution of an eighth of a column.
std::string bar(double share, std::size_t columns) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<std::size_t>(
      std::lround(std::clamp(share, 0., 1.) * 8 * static_cast<double>(columns)));
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[eighths % 8];
  return text + std::string(columns - (eighths + 7) / 8, ' ');
}

class Frame {
 public:
  Frame(const WatchedRun& run, const WindowStyle& window) : run_(run), window_(window) {}

  std::string text() {
    head();
    if (run_.has_steps()) {
      std::vector<StyledLine> above;
      above.swap(lines_);
      memory();
      facts();
      decisions();
      std::vector<StyledLine> below;
      below.swap(lines_);
      const std::size_t least = above.size() + kMinPlotRows + 2;
      const std::size_t room = window_.rows > least ? window_.rows - least : 0;
      below.resize(std::min(below.size(), room));
      const std::size_t used = above.size() + below.size() + 2;
      lines_ = std::move(above);
      plot(std::max(kMinPlotRows, window_.rows > used ? window_.rows - used : 0));
      lines_.insert(lines_.end(), below.begin(), below.end());
    }
    std::string out;
    for (const StyledLine& line : lines_) {
      std::string text = line.text(window_.columns, window_.colors);
      if (!window_.colors) text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
    return out;
  }

 private:
  StyledLine& line() { return lines_.emplace_back(); }

  void head() {
    line()
        .add(run_.name(), kBold)
        .add("  " + run_.state(), state_color())
        .add("  ")
        .add(run_.command(), kSoft);
    if (!run_.has_steps()) {
      line().add(run_.is_active() ? "the run is starting: no step is completed yet"
                                  : "no step was completed",
                 kSoft);
      return;
    }
    const StepRecord& last = run_.last();
    StyledLine& progress = line();
    progress.add(name_of(last.phase), color_of(last.phase))
        .add(concat(" step ", last.step,
                    run_.planned_steps() > 0 ? concat("/", run_.planned_steps()) : std::string(),
                    " "));
    progress.add(bar(run_.done_share(), 16), color_of(last.phase));
    progress.add(concat(" ", narrow<int>(100 * run_.done_share()), " %"));
    if (const auto left = run_.seconds_left())
      progress.add("  " + units::duration(*left) + " left");
    progress.add(concat("  ", units::count(run_.tokens_per_second()), " ", last.unit(), "/s"));
    StyledLine& losses = line();
    losses.add("loss " + units::fixed(last.loss, 4), kBold);
    if (const auto& validation = run_.summary().final_validation_loss)
      losses.add("  validation " + units::fixed(*validation, 4));
    losses.add("  time " + units::duration(run_.summary().total_seconds()));
  }

  const char* state_color() const {
    if (run_.is_active()) return kGreen;
    return run_.state() == "finished" ? "" : kRed;
  }

  void plot(std::size_t rows) {
    const Curves& curves = run_.content().curves();
    const std::size_t columns =
        window_.columns > kLabelColumns + 4 ? window_.columns - kLabelColumns : 4;
    const LossCurve curve = loss_curve(curves, 2 * columns);
    BraillePlot plot(columns, rows);
    plot.draw(curve.values, curve.low, curve.high);
    for (const CurveMark& mark : curves.validation())
      plot.mark(curve.column(mark.step, columns), mark.value, curve.low, curve.high);
    for (std::size_t row = 0; row < rows; ++row) {
      const bool labeled = row == 0 || row == rows - 1 || row == rows / 2;
      const double share = 1 - static_cast<double>(row) / static_cast<double>(rows - 1);
      std::string label =
          labeled ? units::fixed(curve.low + share * (curve.high - curve.low), 3) : "";
      label.insert(0, kLabelColumns - 2 - std::min(label.size(), kLabelColumns - 2), ' ');
      StyledLine& one = line();
      one.add(label, kSoft).add(labeled ? " ┤" : " │", kSoft);
      for (const std::string& cell : plot.rows()[row]) one.add(cell, cell == "◆" ? kRed : "");
    }
    strip(curve, columns);
    axis(curve, columns);
  }

  /// Draws the phases below the curve as colors or, without colors, as letters.
  void strip(const LossCurve& curve, std::size_t columns) {
    std::vector<std::optional<Phase>> cells(columns);
    for (const PhaseRun& band : run_.content().curves().bands()) {
      const std::size_t begin = curve.column(band.first_step, columns);
      for (std::size_t i = begin; i <= curve.column(band.last_step, columns); ++i)
        if (!cells[i] || band.phase > Phase::kFull) cells[i] = band.phase;  // shows rare phases
    }
    for (std::size_t i = 1; i < columns; ++i)
      if (!cells[i]) cells[i] = cells[i - 1];
    StyledLine& one = line();
    one.add(window_.colors ? "" : "phase", kSoft).pad_to(kLabelColumns);
    for (const std::optional<Phase>& phase : cells) {
      if (!phase) {
        one.add(" ");
      } else if (window_.colors) {
        one.add("▀", color_of(*phase));
      } else {
        one.add(std::string(1, name_of(*phase)[0]));
      }
    }
  }

  void axis(const LossCurve& curve, std::size_t columns) {
    StyledLine& one = line();
    one.pad_to(kLabelColumns).add(concat(curve.first), kSoft).add("  ");
    for (const Phase phase : kAllPhases) {
      if (run_.summary().phase(phase).steps == 0) continue;
      if (window_.colors) {
        one.add("▀ ", color_of(phase)).add(concat(name_of(phase), " "), kSoft);
      } else {
        one.add(concat(name_of(phase)[0], " ", name_of(phase), " "));
      }
    }
    if (!run_.content().curves().validation().empty()) one.add("◆", kRed).add(" validation", kSoft);
    const std::string last = concat("step ", curve.last);
    const std::size_t end = kLabelColumns + columns;
    one.pad_to(end > last.size() ? end - last.size() : 0).add(last, kSoft);
  }

  void memory() {
    const StepRecord& last = run_.last();
    const std::size_t peak = last.device_memory.peak_total, budget = run_.device_budget();
    const std::size_t whole = std::max<std::size_t>(budget > 0 ? budget : peak, 1);
    const auto row = [&](const std::string& name, std::size_t bytes, const std::string& more) {
      StyledLine& one = line();
      one.add(name).pad_to(18).add(units::bytes(bytes)).pad_to(28);
      const std::size_t columns =
          window_.columns > 50 ? std::min<std::size_t>(window_.columns - 50, 60) : 8;
      one.add(bar(static_cast<double>(bytes) / static_cast<double>(whole), columns), "34");
      one.add(" " + more, kSoft);
    };
    line();
    row("memory, a step", peak,
        (budget > 0 ? "of " + units::bytes(budget) : "no budget") +
            (last.host_memory.live_total > 0
                 ? " + " + units::bytes(last.host_memory.live_total) + " host"
                 : ""));
    std::vector<std::pair<std::size_t, const char*>> kinds;
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
      if (last.device_memory.peak[kind] > 0)
        kinds.emplace_back(last.device_memory.peak[kind], name_of(static_cast<MemoryKind>(kind)));
    std::ranges::sort(kinds, std::greater());
    kinds.resize(std::min<std::size_t>(kinds.size(), window_.rows < 40 ? 5 : kMemoryKinds));
    for (const auto& [bytes, kind] : kinds) {
      std::string name = concat("  ", kind);
      std::ranges::replace(name, '_', ' ');
      row(name, bytes, "");
    }
  }

  void facts() {
    const StepRecord& last = run_.last();
    StyledLine& one = line();
    one.add("learning rate " + brief(last.learning_rate));
    if (last.gradient_norm) one.add("  gradient norm " + brief(*last.gradient_norm));
    if (last.confidence) one.add("  confidence " + units::fixed(*last.confidence, 2));
    if (last.planned_steps) one.add(concat("  horizon ", *last.planned_steps));
    if (last.advantage) one.add("  advantage " + brief(*last.advantage));
    if (last.slowest_rank_ratio)
      line().add(concat("rank ", last.slowest_rank, " takes ",
                        units::fixed(*last.slowest_rank_ratio, 1), " times as long as the others"),
                 kRed);
  }

  void decisions() {
    const auto& events = run_.content().curves().events();
    if (events.empty()) return;
    const auto first =
        events.size() > kShownDecisions ? events.end() - kShownDecisions : events.begin();
    for (auto event = first; event != events.end(); ++event)
      line()
          .add(concat("step ", event->step, " "), kSoft)
          .add(name_of(event->phase), color_of(event->phase))
          .add(" " + event->text, event->warns ? kRed : "");
  }

  const WatchedRun& run_;
  const WindowStyle window_;
  std::vector<StyledLine> lines_;
};

}  // namespace

std::string frame_of(const WatchedRun& run, const WindowStyle& window) {
  return Frame(run, window).text();
}

}  // namespace hybrid_trainer
