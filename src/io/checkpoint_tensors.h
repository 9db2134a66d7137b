#pragma once

#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/safetensors.h"

namespace hybrid_trainer {

/// Reads the tensors of a checkpoint, which must outlive it, whatever files they lie in. A file is
/// opened when it is needed first.
class CheckpointTensors {
 public:
  explicit CheckpointTensors(const CheckpointInfo& checkpoint) : checkpoint_(checkpoint) {}
  /// Elements [first, first + into.elements()) of the tensor `name`. Throws DataError, IoError.
  void read(const std::string& name, const StoredTensor& tensor, std::int64_t first,
            const Tensor& into);

 private:
  const CheckpointInfo& checkpoint_;
  std::map<std::string, SafetensorsFile> files_;
};

/// One of a checkpoint's safetensors files. Throws DataError where it does not hold what the
/// manifest says of it.
SafetensorsFile open_checkpoint_file(const CheckpointInfo& checkpoint, const std::string& name);

}  // namespace hybrid_trainer
