#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// New tensors of the shapes of the weights.
std::vector<Tensor> empty_like_weights(Trainable& model, MemoryKind kind);

/// Writes views of the tensors as "<name>.0", "<name>.1", … and their count as "<name>.count".
void save_tensors(State& state, const std::string& name, const std::vector<Tensor>& tensors);
/// Copies of what save_tensors wrote, in the stream's pool. Throws DataError where one is missing.
std::vector<Tensor> load_tensors(const State& state, const std::string& name, MemoryKind kind,
                                 const Stream& stream);

/// A copy of the batch that survives when its loader reuses the memory.
Batch copy_of(const Batch& batch, const Stream& stream);

}  // namespace hybrid_trainer
