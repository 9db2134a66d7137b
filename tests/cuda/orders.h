#pragma once

#include <functional>

namespace hybrid_trainer {

/// Calls `run` several times, where the device is emulated with its threads and blocks in several
/// orders. All must give the same bits.
void in_several_orders(const std::function<void()>& run);

/// How far losses may be from the processor's, relative: a device adds in orders of its own.
double loss_tolerance();

/// Recordings replayed so far; -1 where nobody counts.
int recordings_replayed();

}  // namespace hybrid_trainer
