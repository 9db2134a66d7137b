#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/optim/optimizer.h"

namespace hybrid_trainer {

/// Zeroed state in the parameter's shape, in the pool of `home`.
Tensor make_state(const Parameter& parameter, const Stream& home, DType dtype = DType::kF32);

/// A state tensor on the stream's pool for the time of one update, wherever its home is.
class StagedState : public StagedTensor {
 public:
  StagedState(const Tensor& state, const std::shared_ptr<MemoryPool>& home, const Stream& stream,
              Use use = Use::kChange)
      : StagedTensor(state, use, stream, home != stream.pool()) {}
};

/// Throws Error, which names the parameter, if its state is offloaded.
void require_state(const Parameter& parameter, const Tensor& state);

/// Throws ShapeMismatch unless there is one f32 tensor of the right shape per parameter.
void require_directions(const std::vector<Tensor>& directions,
                        const std::vector<Parameter*>& parameters);

/// The decay of a parameter: 0 for vectors.
inline float decay_of(const Parameter& parameter, double weight_decay) {
  return parameter.role() == Role::kVector ? 0.0f : static_cast<float>(weight_decay);
}

/// What an update writes. The compute copy holds no values where there is none.
struct UpdatedWeight {
  UpdatedWeight(const Parameter& parameter, const Stream& stream);
  Weight master;
  Weight compute_copy;
};

}  // namespace hybrid_trainer
