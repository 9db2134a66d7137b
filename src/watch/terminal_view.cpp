#include "hybrid_trainer/watch/terminal_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/terminal_text.h"
#include "src/watch/loss_curve.h"
#include "src/watch/run_frame.h"
#include "src/watch/terminal_colors.h"
#include "src/watch/text_columns.h"

namespace hybrid_trainer {

WindowStyle WindowStyle::of(int descriptor) {
  WindowStyle style;
  if (::isatty(descriptor) != 1) return style;
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
    style.columns = size.ws_col, style.rows = size.ws_row;
  style.colors = is_color_terminal(descriptor);
  return style;
}

namespace {

/// One line for each run.
std::string list_of(const WatchedFolder& folder, const WindowStyle& window) {
  std::size_t widest = 4;
  for (const auto& run : folder.runs()) widest = std::max(widest, columns_of(run->name()));
  const std::size_t name_columns = std::min(widest, window.columns > 72 ? window.columns - 56 : 16);
  std::vector<StyledLine> lines(1);
  lines.front()
      .add("run", kSoft)
      .pad_to(name_columns + 2)
      .add("loss over steps   loss    phase    step           state", kSoft);
  for (const auto& run : folder.runs()) {
    StyledLine& line = lines.emplace_back();
    line.add(cut_to(run->name(), name_columns)).pad_to(name_columns + 2);
    if (run->has_steps()) {
      const StepRecord& last = run->last();
      line.add(sparkline(run->content().curves(), 16)).pad_to(name_columns + 20);
      line.add(units::fixed(last.loss, 4)).pad_to(name_columns + 28);
      line.add(name_of(last.phase), color_of(last.phase)).pad_to(name_columns + 37);
      line.add(
          concat(last.step, run->planned_steps() > 0 ? concat("/", run->planned_steps()) : ""));
    }
    line.pad_to(name_columns + 52);
    line.add(run->state(), run->is_active() ? kGreen : run->state() == "finished" ? "" : kRed);
    if (const auto left = run->seconds_left()) line.add(" " + units::duration(*left));
  }
  std::string text;
  for (const StyledLine& line : lines) text += line.text(window.columns, window.colors) + "\n";
  return text;
}

}  // namespace

void refresh_all(WatchedFolder& folder) {
  folder.refresh();
  for (const auto& run : folder.runs()) run->refresh();
}

std::string view_of(const WatchedFolder& folder, const WindowStyle& window) {
  return folder.is_run() ? frame_of(*folder.runs().front(), window) : list_of(folder, window);
}

}  // namespace hybrid_trainer
