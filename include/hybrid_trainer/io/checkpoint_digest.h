#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/io/checkpoint.h"

namespace hybrid_trainer {

struct TensorDigest {
  std::string name;
  std::string checksum;  // of its elements, as Checksum gives it
};

/// What a checkpoint's tensors hold, whatever files they lie in.
struct CheckpointDigest {
  std::vector<TensorDigest> tensors;  // by name
  std::string all;                    // over names, dtypes, shapes and elements of all of them
};

/// Verifies the checkpoint, then reads its tensors, one at a time. Throws DataError where it is
/// damaged.
CheckpointDigest digest_of(const CheckpointInfo& checkpoint);

}  // namespace hybrid_trainer
