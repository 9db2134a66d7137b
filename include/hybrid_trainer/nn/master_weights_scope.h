#pragma once

#include <vector>

#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

/// While it exists, the model computes with its f32 master weights; the bf16 working copies are set
/// aside and put back unchanged.
class MasterWeightsScope {
 public:
  explicit MasterWeightsScope(LossModel& model);
  ~MasterWeightsScope();
  MasterWeightsScope(const MasterWeightsScope&) = delete;
  MasterWeightsScope& operator=(const MasterWeightsScope&) = delete;

 private:
  LossModel& model_;
  std::vector<Tensor> aside_;
};

}  // namespace hybrid_trainer
