#pragma once

#include "hybrid_trainer/io/checkpoint.h"

namespace hybrid_trainer {

/// Writes this rank's tensors to files in `folder`, durably: where there are several ranks, its
/// ranges to one of its own. Gives the files and, of several, the ranges.
CheckpointInfo write_share(const std::string& folder, const CheckpointShare& share,
                           const CheckpointRanks& ranks);

/// What a rank has written, as it tells the others: its file, and of each tensor a range that
/// begins at 0, with the shape that the tensor has as a whole, where the rank knows it.
std::string share_text(const CheckpointInfo& written);

/// What all have written, one rank after the other. Throws IoError where they do not fit together.
void add_shares(CheckpointInfo& checkpoint, const std::vector<std::string>& texts);

}  // namespace hybrid_trainer
