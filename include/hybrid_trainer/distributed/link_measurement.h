#pragma once

#include "hybrid_trainer/distributed/imitated_link.h"

namespace hybrid_trainer {

/// Measures messages while all ranks send at once: the median of barriers, and the bytes a second
/// that the slowest rank sends by all_to_all at its best. A collective of two ranks or more;
/// blocks. The same on all ranks.
LinkSpeed measure_link(Communicator& ranks, const Stream& stream);

}  // namespace hybrid_trainer
