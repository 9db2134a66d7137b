#pragma once

#include <string>

#include "hybrid_trainer/watch/terminal_view.h"

namespace hybrid_trainer {

/// What a run does, as lines of text: progress, the loss as a plot, memory, the last decisions.
std::string frame_of(const WatchedRun& run, const WindowStyle& window);

}  // namespace hybrid_trainer
