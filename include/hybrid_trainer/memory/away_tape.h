#pragma once

#include <memory>

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

/// A tape that keeps activations in the pool of `home`: on the device, or by copies in stream
/// order elsewhere. `home` must outlive it.
std::unique_ptr<PlainTape> make_tape(const Pass& pass, Rebuild rebuild, const Stream& home,
                                     const Stream& device);

}  // namespace hybrid_trainer
