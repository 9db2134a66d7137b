#pragma once

#include "tests/emulation/nccl/fake_nccl.h"

namespace hybrid_trainer::emulation {

/// The library that replaces NCCL. After this call it enqueues on emulated streams.
FakeNccl& fake_nccl();

}  // namespace hybrid_trainer::emulation
