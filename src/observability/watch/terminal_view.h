#pragma once

#include <cstddef>

#include "src/observability/watch/watched_run.h"

namespace hybrid_trainer {

struct WindowStyle {
  std::size_t columns = 80, rows = 30;
  bool colors = false;  // whether to write escape sequences for colors
  /// Returns the terminal's window for a file descriptor, or 80 columns if it is not a terminal.
  static WindowStyle of(int descriptor);
};

void refresh_all(WatchedFolder& folder);
/// Returns the frame of a run, or the list of a folder's runs.
std::string view_of(const WatchedFolder& folder, const WindowStyle& window);

/// Shows the view in the terminal every `interval` seconds, until `q`, Ctrl-C or a signal.
void watch_in_terminal(WatchedFolder& folder, double interval);

/// Returns a run's state as lines of text: progress, loss plot, memory, the last decisions.
std::string frame_of(const WatchedRun& run, const WindowStyle& window);

}  // namespace hybrid_trainer
