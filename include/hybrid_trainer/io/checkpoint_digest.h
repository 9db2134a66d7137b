#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/io/checkpoint.h"

namespace hybrid_trainer {

struct TensorDigest {
  std::string name;
  std::string checksum;  // of its elements, as Checksum gives it
};

/// Checksums of a checkpoint's tensors, independent of their files.
struct CheckpointDigest {
  std::vector<TensorDigest> tensors;  // by name
  std::string all;                    // over names, dtypes, shapes and elements of all of them
};

/// Verifies the checkpoint, then reads its tensors, one at a time. Throws DataError where it is
/// damaged.
CheckpointDigest digest_of(const CheckpointInfo& checkpoint);

}  // namespace hybrid_trainer
