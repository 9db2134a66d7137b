#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/optim/optimizer.h"

namespace hybrid_trainer {

/// Zeroed f32 state in the parameter's shape, in the pool of `home`.
Tensor make_state(const Parameter& parameter, const Stream& home);

/// State in the memory of the stream's pool for the time of one update: itself, or a copy of what
/// lies elsewhere, which is copied back at the end. Undefined state stays undefined.
class StagedState {
 public:
  enum class Use { kRead, kChange };
  StagedState(const Tensor& state, const std::shared_ptr<MemoryPool>& home, const Stream& stream,
              Use use = Use::kChange);
  ~StagedState();
  StagedState(const StagedState&) = delete;
  StagedState& operator=(const StagedState&) = delete;
  operator const Tensor&() const { return here_; }

 private:
  Tensor state_, here_;
  const Stream& stream_;
  bool goes_back_;
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
