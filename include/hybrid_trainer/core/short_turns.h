#pragma once

namespace hybrid_trainer {

/// For a thread that mostly waits, beside others that compute: from now on the system gives its turns
/// a tenth of a millisecond, so that it interrupts one with longer turns on its core where it has
/// something to do, and need not wait for that one's turn to end. Linux since 6.12 (EEVDF, which
/// prefers short slices); elsewhere nothing changes. False where the system does not let it.
bool take_short_turns() noexcept;

}  // namespace hybrid_trainer
