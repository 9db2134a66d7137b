#pragma once

#include "tests/emulation/nccl/fake_nccl.h"

namespace hybrid_trainer::emulation {

/// The library in NCCL's place, which enqueues on emulated streams from then on.
FakeNccl& fake_nccl();

}  // namespace hybrid_trainer::emulation
